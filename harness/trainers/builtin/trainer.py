"""What the planner and the runner know of the built-in trainer. Light: needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.records.layout import RunPaths
from harness.trainers.builtin.config import BuiltinConfig, parse_config
from harness.trainers.interface import Command, Launch, RunFiles, RunName, Trainer


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


def _command(_launch: Launch) -> Command:
    # -P: what runs must not depend on what lies in the current folder.
    return Command(argv=(sys.executable, "-P", "-m", "harness.trainers.builtin"))


def _check(config: Mapping[str, Any]) -> None:
    parse_config(config)


TRAINER = Trainer(
    name="builtin",
    config_type=BuiltinConfig,
    files=_files,
    command=_command,
    is_deterministic=True,
    check=_check,
)
