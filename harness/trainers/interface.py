"""What the planner and the runner need to know of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records.layout import RunPaths


@dataclass(frozen=True)
class RunFiles:
    """Where a trainer leaves its files, relative to the run folder, and in which format."""

    metrics: str
    metrics_format: str
    metrics_keys: Mapping[str, str] = field(default_factory=dict)
    tokens: str | None = None
    tokens_format: str | None = None
    checkpoints: str | None = None
    checkpoints_format: str | None = None


@dataclass(frozen=True)
class Launch:
    """One start of a trainer, as the runner knows it."""

    paths: RunPaths
    config: Mapping[str, Any]
    sweep: str
    arm: str
    seed: int
    attempt: int
    max_steps: int
    program_dir: Path | None = None
    """Where the frozen copy of the trainer's own code lies; None where there is none."""


@dataclass(frozen=True)
class Command:
    """What the runner executes. `env` is added to the runner's own environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


def _accept(config: Mapping[str, Any]) -> None:
    del config


def _no_code(config: Mapping[str, Any]) -> str | None:
    del config
    return None


@dataclass(frozen=True)
class Trainer:
    """A way to train.

    Attributes:
        config_type: dataclass behind the `trainer` group when `trainer.type` is `name`.
        files: from the resolved config to where the run's files will be.
        command: from one start to the program.
        is_deterministic: whether equal seeds give equal numbers.
        check: refuses (UsageError) what each key allows but this trainer can't do, at plan time.
        code_dir: folder of the trainer's own code to freeze with the plan; None for none.
    """

    name: str
    config_type: type[Any]
    files: Callable[[Mapping[str, Any]], RunFiles]
    command: Callable[[Launch], Command]
    is_deterministic: bool
    check: Callable[[Mapping[str, Any]], None] = _accept
    code_dir: Callable[[Mapping[str, Any]], str | None] = _no_code
