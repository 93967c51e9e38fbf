"""Verifiable tasks. A new one is one file and one line in `TASKS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.trainers.builtin.tasks.cumsum import CumsumConfig, make_cumsum
from harness.trainers.builtin.tasks.dedup import DedupConfig, make_dedup
from harness.trainers.builtin.tasks.reverse import ReverseConfig, make_reverse
from harness.trainers.builtin.tasks.task import Task

TASKS: dict[str, tuple[type[Any], Callable[[Any], Task]]] = {
    "reverse": (ReverseConfig, make_reverse),
    "cumsum": (CumsumConfig, make_cumsum),
    "dedup": (DedupConfig, make_dedup),
}
"""By `task.type`: the dataclass behind the `task` group, and what makes the task of it."""


def make_task(config: Any) -> Task:
    """Return the task that a config dataclass of `TASKS` describes."""
    _, make = TASKS[config.type]
    return make(config)
