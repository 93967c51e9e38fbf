"""What stands in the record files: frozen dataclasses with exact JSON forms.

`to_record` and `from_record` are each other's inverse. Keys that a newer version added are
ignored on reading, so that an older analysis still reads a newer sweep.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import HarnessError
from harness.records.files import read_json, read_json_if_there
from harness.records.layout import repair_hint

SCHEMA_VERSION = 1

RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class KeyDifference:
    """A key whose resolved value in an arm is not the baseline's. None where a side lacks it."""

    key: str
    baseline: Any
    arm: Any


@dataclass(frozen=True)
class PlannedArm:
    """One named configuration: what was asked for and what it really changes.

    Attributes:
        overrides: as in the sweep file, after axes were expanded.
        differs: resolved keys that differ from the baseline's; empty for the baseline.
        restated: overrides that set what already held.
        loss: the resolved `loss` group.
    """

    name: str
    overrides: tuple[str, ...]
    differs: tuple[KeyDifference, ...]
    restated: tuple[str, ...]
    loss: dict[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed. `identity` is the hash of what it computes."""

    arm: str
    seed: int
    identity: str
    max_steps: int

    @property
    def run_id(self) -> str:
        return f"{self.arm}/seed_{self.seed}"


@dataclass(frozen=True)
class AnalysisSpec:
    """How the sweep will be judged, declared before any data exist.

    Attributes:
        primary: metrics that the verdicts are about.
        last_steps: length in steps of the final window.
        baseline_steps: first and last step (inclusive) of the window that a run's own baselines
            are taken from.
        explode_factor, explode_hold: exploded = mismatch KL above factor x the median of the
            baseline window for `hold` consecutive logged steps.
        collapse_window, collapse_fraction: collapsed = the mean solve rate over `window` steps
            falls below fraction x its mean in the baseline window and is still there at the end.
        margin: difference in solve rate that matters.
        alpha: two-sided error rate of intervals and tests.
    """

    primary: tuple[str, ...] = ("solve_rate", "mismatch_kl")
    last_steps: int = 100
    baseline_steps: tuple[int, int] = (1, 30)
    explode_factor: float = 20.0
    explode_hold: int = 3
    collapse_window: int = 20
    collapse_fraction: float = 0.5
    margin: float = 0.02
    alpha: float = 0.05


@dataclass(frozen=True)
class CodeRecord:
    """Which code runs. `hash` covers the content of every frozen file.

    Attributes:
        commit, is_dirty: of the harness; None outside a git checkout.
        program_commit, program_is_dirty: of the program of a command trainer, where it is frozen.
    """

    hash: str
    commit: str | None
    is_dirty: bool | None
    versions: dict[str, str]
    program_commit: str | None = None
    program_is_dirty: bool | None = None


@dataclass(frozen=True)
class PlanRecord:
    """plan.json: everything that was decided before anything ran.

    Attributes:
        runs: seed-major (all arms of a seed stand together).
        left: runs on disk that this plan no longer holds.
        overrides: of the command line, after `common`.
        earlier_analysis: analysis specs that were in force when data already existed.
    """

    schema_version: int
    sweep: str
    question: str
    baseline: str
    pairing: str
    may_differ: tuple[str, ...]
    common: tuple[str, ...]
    overrides: tuple[str, ...]
    conf_dirs: tuple[str, ...]
    trainer: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    runs: tuple[PlannedRun, ...]
    left: tuple[str, ...]
    analysis: AnalysisSpec
    earlier_analysis: tuple[AnalysisSpec, ...]
    code: CodeRecord

    def arm(self, name: str) -> PlannedArm:
        return next(arm for arm in self.arms if arm.name == name)


@dataclass(frozen=True)
class RunRecord:
    """run.json: who a run is and where its files are.

    Attributes:
        trainer: name of the trainer.
        metrics, tokens, checkpoints: paths relative to the run folder; None where there are none.
        metrics_format: name of the reader in `analysis`, such as `prime_rl`.
        metrics_keys: canonical name -> key, where the trainer logs under names of its own.
    """

    schema_version: int
    sweep: str
    arm: str
    seed: int
    identity: str
    trainer: str
    metrics: str
    metrics_format: str
    metrics_keys: dict[str, str] = field(default_factory=dict)
    tokens: str | None = None
    tokens_format: str | None = None
    checkpoints: str | None = None
    checkpoints_format: str | None = None


@dataclass(frozen=True)
class Intent:
    """submissions/<id>/intent.json: what a submitter set out to start, written before it starts.

    Attributes:
        nonce: proves to a runner that it belongs to this submission.
        profile: name of the profile; `settings` its values.
        runs: with the `max_steps` to reach.
        pid, pid_started: of the submitting process (local queue), see `process_start`.
    """

    schema_version: int
    id: str
    nonce: str
    profile: str
    settings: dict[str, Any]
    runs: tuple[PlannedRun, ...]
    code_hash: str
    code_dir: str | None
    host: str
    pid: int
    pid_started: str
    time: float


@dataclass(frozen=True)
class Receipt:
    """submissions/<id>/receipt.json: how the submission ended or that it was handed over."""

    schema_version: int
    id: str
    jobs: dict[str, str]
    outcomes: dict[str, str]
    start: float
    end: float


@dataclass(frozen=True)
class Claim:
    """attempts/<k>/claim.json: who works on the run. Created exclusively, never changed."""

    schema_version: int
    attempt: int
    submission: str
    nonce: str
    host: str
    pid: int
    pid_started: str
    time: float
    max_steps: int
    code_hash: str
    machine: dict[str, Any]
    job_id: str | None = None


@dataclass(frozen=True)
class Heartbeat:
    """attempts/<k>/heartbeat.json: rewritten while the runner lives.

    `step`, `tokens`, `mismatch_kl` and `solve_rate` are the latest that the trainer logged.
    """

    schema_version: int
    attempt: int
    time: float
    step: int | None
    max_steps: int
    tokens: int | None
    mismatch_kl: float | None
    solve_rate: float | None
    steps_per_s: float | None
    trainer_pid: int | None


@dataclass(frozen=True)
class Exit:
    """attempts/<k>/exit.json: written last; an attempt without one was cut off.

    Attributes:
        reason: `done`, `failed`, `cancelled`, `superseded` or `stopped`.
        code, signal: of the trainer; at most one is not None.
        error: the last line that explains a failure; empty otherwise.
        last_step: the newest step in the metrics.
        nodes: host names; gpus: indices or ids that the run held.
    """

    schema_version: int
    attempt: int
    reason: str
    code: int | None
    signal: int | None
    error: str
    last_step: int | None
    max_steps: int
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    start: float
    end: float


def to_record(value: Any) -> dict[str, Any]:
    """Return the JSON form of a record dataclass."""
    result: dict[str, Any] = _plain(dataclasses.asdict(value))
    return result


def from_record(kind: type[RecordT], data: dict[str, Any], *, where: str) -> RecordT:
    """Return the record that `data` stands for.

    Raises:
        HarnessError: a field is missing or of another type, naming `where` and the key.
    """
    result: RecordT = _convert(kind, data, where, "")
    return result


def read_record(kind: type[RecordT], path: Path) -> RecordT:
    """Return the record in `path`. Raises HarnessError where it is missing or not one."""
    return from_record(kind, read_json(path), where=str(path))


def read_record_if_there(kind: type[RecordT], path: Path) -> RecordT | None:
    """Return the record in `path`, or None where there is no such file."""
    data = read_json_if_there(path)
    return None if data is None else from_record(kind, data, where=str(path))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _convert(kind: Any, value: Any, where: str, key: str) -> Any:
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        if value is None:
            return None
        [kind] = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
        return _convert(kind, value, where, key)
    if dataclasses.is_dataclass(kind):
        return _convert_dataclass(kind, value, where, key)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, key, value)
        arguments = typing.get_args(kind)
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise _wrong(where, key, value)
        return tuple(
            _convert(arguments[0], item, where, f"{key}[{i}]") for i, item in enumerate(value)
        )
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, key, value)
        item_kind = typing.get_args(kind)[1]
        return {k: _convert(item_kind, v, where, f"{key}.{k}") for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(where, key, value)
    return value


def _convert_dataclass(kind: Any, value: Any, where: str, key: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, key, value)
    hints = _type_hints(kind)
    arguments: dict[str, Any] = {}
    for spec in dataclasses.fields(kind):
        dotted = f"{key}.{spec.name}" if key else spec.name
        if spec.name in value:
            arguments[spec.name] = _convert(hints[spec.name], value[spec.name], where, dotted)
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise HarnessError(f"`{where}` lacks `{dotted}`", repair_hint(Path(where)))
    return kind(**arguments)


@functools.cache
def _type_hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _wrong(where: str, key: str, value: Any) -> HarnessError:
    return HarnessError(f"`{where}`: `{key}` can't be {value!r}", repair_hint(Path(where)))
