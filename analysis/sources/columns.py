"""What the columns of a table mean before metrics are resolved: step, time, attempt, framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.metrics import nearest_keys
from harness.errors import UsageError

STEP_COLUMNS = (
    "step",
    # Before `global_step`, which counts episodes where a trainer logs both.
    "training_step",
    "global_step",
    "trainer/global_step",
    "training/global_step",
    # Last: it counts calls, and any other column is nearer to the truth.
    "_step",
)
"""Columns that are taken for the step, in order of preference, where none is mapped."""

TIME_COLUMNS = ("time", "_timestamp", "wall_time", "timestamp")
"""Columns that are taken for the unix time of a row, where none is mapped."""

UNDERSCORE_STEP = "no `step`: wandb's own `_step` is used, which counts calls, not updates"

NOT_METRICS = ("step", "time", "attempt")
"""What a column mapping may name beside metrics."""

_MAX_LISTED = 8

_TELLTALES = (
    ("prime_rl", r"mismatch_kl/|train/[^/]+/(all|effective)/(.+/)?reward/mean$"),
    ("verl", r"rollout_corr/|actor/|critic/|val-core/"),
    ("slime", r"train/mis_|train/train_rollout_logprob_abs_diff$|rollout/raw_reward$"),
    ("areal", r"ppo_actor/"),
    # Before skyrl: it logs `policy/` keys, too.
    ("open_instruct", r"objective/|val/rho_"),
    ("skyrl", r"policy/"),
    ("openrlhf", r"vllm_kl$"),
    ("trl", r"sampling/"),
)
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _TELLTALES)


def guess_framework(keys: Iterable[str]) -> str:
    """Return which trainer logs such keys (`prime_rl`, `verl`, ...); empty when nothing tells."""
    listed = list(keys)
    for name, pattern in _PATTERNS:
        if any(pattern.match(key) for key in listed):
            return name
    return ""


@dataclass(frozen=True)
class TableColumns:
    """Which columns hold what is no metric; None where there is no such column.

    Attributes:
        problems: what is odd about the choice, one sentence each.
    """

    step: str
    time: str | None = None
    attempt: str | None = None
    problems: tuple[str, ...] = ()

    def renamer(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Return what gives the time and the attempt of a row the names that readers expect."""
        moves = [
            (column, name)
            for column, name in ((self.time, "time"), (self.attempt, "attempt"))
            if column is not None and column != name
        ]
        if not moves:
            return lambda row: row

        def rename(row: dict[str, Any]) -> dict[str, Any]:
            renamed = dict(row)
            for column, name in moves:
                renamed.pop(name, None)
                if column in row:
                    renamed[name] = row[column]
                    # A step column may be the time column, too.
                    if column != self.step:
                        del renamed[column]
            return renamed

        return rename


def choose_columns(
    path: Path, available: Collection[str], columns: Mapping[str, str]
) -> TableColumns:
    """Return which of the `available` columns of `path` hold step, time and attempt.

    What `columns` (canonical name -> column) maps is taken as it is; the rest is guessed.

    Raises:
        UsageError: the file lacks a mapped column, or has none that could be the step.
    """
    for name, column in columns.items():
        if column not in available:
            near = nearest_keys(column, available).removeprefix("; ")
            raise UsageError(
                f"`{path}` has no column `{column}`, which `{name}` is mapped to",
                near or f"its columns: {_listed(available)}",
            )
    step = columns.get("step") or _first(STEP_COLUMNS, available)
    if step is None:
        raise UsageError(
            f"`{path}` has no step column (looked for {_listed(STEP_COLUMNS)})",
            f"map one, as in `step=NAME`; its columns: {_listed(available)}",
        )
    attempt = columns.get("attempt") or _first(("attempt",), available)
    time = columns.get("time") or _first(TIME_COLUMNS, available)
    problems = (UNDERSCORE_STEP,) if step == "_step" and "step" not in columns else ()
    return TableColumns(step, time, attempt, problems)


def _first(names: Iterable[str], available: Collection[str]) -> str | None:
    return next((name for name in names if name in available), None)


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:_MAX_LISTED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(f"`{name}`" for name in shown) + more if shown else "none"
