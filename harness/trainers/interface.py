"""What the planner and the runner need to know of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.checkpoint import Checkpoint
from harness.errors import UsageError
from harness.records.layout import RunPaths
from harness.records.model import KeyDifference

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RunFiles:
    """Where a trainer leaves its files, relative to the run folder, and in which format.

    Attributes:
        logs: name of a part of the trainer (`orchestrator`) -> its log, beside what the trainer
            itself prints.
    """

    metrics: str
    metrics_format: str
    metrics_keys: Mapping[str, str] = field(default_factory=dict)
    tokens: str | None = None
    tokens_format: str | None = None
    checkpoints: str | None = None
    checkpoints_format: str | None = None
    logs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunName:
    """Who a run is: what its trainer calls it in trackers and folders.

    Attributes:
        nonce: of its record; empty before there is one.
    """

    sweep: str
    arm: str
    seed: int
    identity: str
    nonce: str = ""


@dataclass(frozen=True)
class Start:
    """The checkpoint that a fork starts from while it has none of its own.

    Attributes:
        checkpoint: absolute.
        step: that it is of; the run's own steps begin after it.
    """

    checkpoint: Path
    step: int


@dataclass(frozen=True)
class Launch:
    """One start of a trainer, as the runner knows it.

    Attributes:
        name: who the run is.
        inputs_dir: a folder of this attempt alone (not there yet) for files that the trainer is
            started with.
        program_dir: where the frozen copy of the trainer's own code lies; None where there is none.
        program_stamp: what `Trainer.stamp` said when the sweep was planned.
        code_hash: of the code that the run was planned with.
        start: of a fork, also when it goes on from a checkpoint of its own.
    """

    paths: RunPaths
    config: Mapping[str, Any]
    name: RunName
    attempt: int
    max_steps: int
    inputs_dir: Path
    program_dir: Path | None = None
    program_stamp: str | None = None
    code_hash: str = ""
    start: Start | None = None

    @property
    def sweep(self) -> str:
        return self.name.sweep

    @property
    def arm(self) -> str:
        return self.name.arm

    @property
    def seed(self) -> int:
        return self.name.seed


@dataclass(frozen=True)
class Command:
    """What the runner executes. `env` is added to the runner's own environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True)
class Needs:
    """What a run must get from the profile that it is executed with.

    Attributes:
        nodes: that each run must hold; None for any number.
        gpus_per_node: that it uses on each of them; None where that can't be told.
        is_alone: whether no other run may be at work on its nodes.
        fatal_names: words that no path of the harness may hold: the trainer kills every process of
            its user whose command line does.
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    is_alone: bool = False
    fatal_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """Which version of a program that isn't copied is in use, such as a checkout of prime-rl.

    Attributes:
        text: differs wherever its code may differ.
        commit, is_dirty: of its git checkout; None outside one.
    """

    text: str
    commit: str | None
    is_dirty: bool | None


@dataclass(frozen=True)
class Candidate:
    """One arm with its first seed, to be looked at by the trainer before anything is queued."""

    name: RunName
    config: Mapping[str, Any]
    max_steps: int


@dataclass(frozen=True)
class Verdict:
    """What a trainer said of the arms of a sweep.

    Attributes:
        remarks: sentences for the plan and the report: how the arms were validated.
        warnings: sentences for these and for whoever starts the runs: what could not be validated.
        differs: arm -> where its configuration, as the trainer resolved it, differs from the
            baseline's, without what only names a run.
    """

    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    differs: Mapping[str, tuple[KeyDifference, ...]] = field(default_factory=dict)


def _accept(config: Mapping[str, Any]) -> None:
    del config


def _no_code(config: Mapping[str, Any]) -> str | None:
    del config
    return None


def _as_it_is(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config


def _no_remarks(config: Mapping[str, Any]) -> tuple[str, ...]:
    del config
    return ()


def _no_needs(config: Mapping[str, Any]) -> Needs:
    del config
    return Needs()


def _unknown(config: Mapping[str, Any]) -> Collection[str] | None:
    del config
    return None


def _no_stamp(config: Mapping[str, Any]) -> Stamp | None:
    del config
    return None


def _trust(
    candidates: Sequence[Candidate], baseline: str, may_differ: Sequence[str], progress: Progress
) -> Verdict:
    del candidates, baseline, may_differ, progress
    return Verdict()


def _refuse_start(config: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
    if checkpoint is not None:
        raise UsageError(
            f"`trainer.type`: the trainer `{config['trainer']['type']}` can't start from another"
            " run's checkpoint",
            "leave `start_from` out",
        )


@dataclass(frozen=True)
class Trainer:
    """A way to train.

    Attributes:
        config_type: dataclass behind the `trainer` group when `trainer.type` is `name`.
        files: from the resolved config and the run's name to where the run's files will be.
        command: from one start to the program. Called by the runner; may write to `inputs_dir` and
            raise HarnessError, which ends the attempt as failed.
        is_deterministic: whether equal seeds give equal numbers.
        check: refuses (UsageError) what each key allows but this trainer can't do, at plan time.
        code_dir: folder of the trainer's own code to freeze with the plan; None for none.
        derives: above the keys that the trainer derives from others when it resolves a config: arms
            may be declared to differ in them though no config of ours states them.
        expand: completes a checked config by what it points to (files of the trainer's own); the
            result is what a run's identity is the hash of, and what arms are compared by.
        remarks: sentences about an expanded config that a plan and a report show.
        needs: from an expanded config to what the profile must give.
        stamp: which version of a program that isn't copied the config names.
        logged: canonical names of the metrics that a run with an expanded config logs; None where
            that can't be told.
        validate: asks the trainer itself about the arms of a sweep. Raises UsageError for an arm
            that it refuses, arms that differ in more than `may_differ` (keys of our config), or
            arms that are the same.
        check_start: refuses (UsageError) a checkpoint that a run of this config can't start from;
            None stands for a start from scratch.
    """

    name: str
    config_type: type[Any]
    files: Callable[[Mapping[str, Any], RunName], RunFiles]
    command: Callable[[Launch], Command]
    is_deterministic: bool
    check: Callable[[Mapping[str, Any]], None] = _accept
    code_dir: Callable[[Mapping[str, Any]], str | None] = _no_code
    derives: str | None = None
    expand: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_it_is
    remarks: Callable[[Mapping[str, Any]], tuple[str, ...]] = _no_remarks
    needs: Callable[[Mapping[str, Any]], Needs] = _no_needs
    stamp: Callable[[Mapping[str, Any]], Stamp | None] = _no_stamp
    logged: Callable[[Mapping[str, Any]], Collection[str] | None] = _unknown
    validate: Callable[[Sequence[Candidate], str, Sequence[str], Progress], Verdict] = _trust
    check_start: Callable[[Mapping[str, Any], Checkpoint | None], None] = _refuse_start
