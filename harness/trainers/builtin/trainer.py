"""What the planner and the runner know of the built-in trainer. Light: needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.checkpoint import BUILTIN, Checkpoint
from harness.errors import UsageError
from harness.records.layout import START_CHECKPOINT_ENV, RunPaths
from harness.trainers.builtin.about import about_checkpoint, what_does_not_fit
from harness.trainers.builtin.config import BuiltinConfig, parse_config
from harness.trainers.interface import Command, Launch, RunFiles, RunName, Trainer

LOGGED_METRICS = frozenset(
    {
        "entropy",
        "grad_norm",
        "importance_ratio_max_kept",
        "is_masked",
        "is_masked_token",
        "learning_rate",
        "loss",
        "masked_mismatch_kl",
        "mismatch_kl",
        "mismatch_kl_sampled",
        "nonfinite",
        "solve_rate",
        "solve_rate_effective",
        "solved_all",
        "solved_none",
        "staleness",
        "step_time_s",
        "token_class_drop",
        "token_class_rise",
        "tokens",
        "unmasked_mismatch_kl",
    }
)
"""Canonical names of what its rows hold, in a run in which something can be learnt."""


def _files(config: Mapping[str, Any], _name: RunName) -> RunFiles:
    root = Path("run")
    paths = RunPaths(root)
    has_tokens = config["trainer"]["tokens"]["every"] > 0
    return RunFiles(
        metrics=_relative(paths.metrics, root),
        metrics_format="prime_rl",
        tokens=_relative(paths.tokens_dir, root) if has_tokens else None,
        tokens_format="harness_parquet" if has_tokens else None,
        checkpoints=_relative(paths.checkpoints_dir, root),
        checkpoints_format="builtin",
    )


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _command(launch: Launch) -> Command:
    # -P: what runs must not depend on what lies in the current folder.
    start = launch.start
    env = {} if start is None else {START_CHECKPOINT_ENV: str(start.checkpoint)}
    return Command(argv=(sys.executable, "-P", "-m", "harness.trainers.builtin"), env=env)


def _check(config: Mapping[str, Any]) -> None:
    parse_config(config)


def _check_start(config: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
    """Refuse a checkpoint whose weights or averages have no place in a run of `config`."""
    if checkpoint is None:
        return
    if checkpoint.kind != BUILTIN:
        raise UsageError(
            f"`{checkpoint.path}` is no checkpoint of the built-in trainer",
            f"it keeps them in `{RunPaths(Path('RUN')).checkpoints_dir}/step_N`",
        )
    differing = what_does_not_fit(checkpoint.about, about_checkpoint(config))
    if differing:
        shown = ", ".join(f"`{d.key}`: {d.baseline} -> {d.arm}" for d in differing[:4])
        raise UsageError(
            f"`{checkpoint.path}` holds the state of another recipe: {shown}",
            "weights, averages of the optimiser and task must fit: set these keys back, or choose"
            " another checkpoint",
        )


TRAINER = Trainer(
    name="builtin",
    config_type=BuiltinConfig,
    files=_files,
    command=_command,
    is_deterministic=True,
    check=_check,
    logged=lambda _config: LOGGED_METRICS,
    check_start=_check_start,
)
