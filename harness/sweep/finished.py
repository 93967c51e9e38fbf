"""Which runs are done, which would go on from what they have, and which code made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import HarnessError, UsageError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import (
    Claim,
    CodeRecord,
    Exit,
    PlannedRun,
    RunRecord,
    StopRule,
    read_record,
    read_record_if_there,
)


@dataclass(frozen=True)
class Earlier:
    """What earlier attempts left of a run.

    Attributes:
        code_hash: of the newest attempt.
        is_done: whether it reached what is asked for now, or one of the rules that are in force now
            has stopped it.
    """

    run_id: str
    code_hash: str
    is_done: bool


def find_earlier(
    paths: SweepPaths, runs: Iterable[PlannedRun], stop_when: Iterable[StopRule] = ()
) -> list[Earlier]:
    """Return the runs that a new submission would keep, or continue from a checkpoint.

    A run with a damaged record is left out: its state is unknown, and only its own.
    """
    found = []
    rules = frozenset(rule.text for rule in stop_when)
    for run in runs:
        try:
            earlier = _read_earlier(paths.run(run.arm, run.seed), run, rules)
        except HarnessError:
            continue
        if earlier is not None:
            found.append(earlier)
    return found


def count_done(earlier: Iterable[Earlier]) -> int:
    """Return how many runs are done."""
    return sum(run.is_done for run in earlier)


def find_other_code(earlier: Iterable[Earlier], code_hash: str) -> list[Earlier]:
    """Return the runs that other code than `code_hash` made."""
    return [run for run in earlier if run.code_hash != code_hash]


def refuse_other_code(earlier: Iterable[Earlier], code: CodeRecord, paths: SweepPaths) -> None:
    """Refuse to put new work beside, or on top of, the work of other code.

    Raises:
        UsageError: some runs were made by other code, and would be kept or continued.
    """
    other = find_other_code(earlier, code.hash)
    if other:
        done = count_done(other)
        parts = [f"{done} done"] * bool(done) + [f"{len(other) - done} begun"] * (len(other) > done)
        shown = ", ".join(run.run_id for run in other[:3]) + (", …" if len(other) > 3 else "")
        raise UsageError(
            f"{' and '.join(parts)} runs were made by other code than {code.hash}: {shown}"
            + _other_program(other[0], code, paths),
            "--reuse-across-code keeps them (the report will show it);"
            f" --as {paths.name}_2 starts anew",
        )


def _other_program(run: Earlier, code: CodeRecord, paths: SweepPaths) -> str:
    """Say so where the checkout that the trainer runs from is another one than `run` had."""
    with contextlib.suppress(HarnessError):
        then = read_record_if_there(CodeRecord, paths.code(run.code_hash).record)
        if then is not None and then.program_stamp != code.program_stamp:
            shown = [
                f"{(one.program_commit or 'no commit')[:10]}{'+' if one.program_is_dirty else ''}"
                for one in (then, code)
            ]
            return f"; the checkout of their trainer was at {shown[0]}, and is at {shown[1]}"
    return ""


def _read_earlier(run: RunPaths, planned: PlannedRun, rules: frozenset[str]) -> Earlier | None:
    attempts = run.attempts()
    if not attempts:
        return None
    claim = read_record(Claim, attempts[-1].claim)
    ended = read_record_if_there(Exit, attempts[-1].exit)
    is_done = ended is not None and _is_finished(ended, planned, rules)
    if not is_done and not _has_something_to_continue(run):
        return None
    return Earlier(planned.run_id, claim.code_hash, is_done)


def _is_finished(ended: Exit, planned: PlannedRun, rules: frozenset[str]) -> bool:
    if ended.reason == "stopped":
        return not ended.rule or ended.rule in rules
    return ended.reason == "done" and ended.max_steps >= planned.max_steps


def _has_something_to_continue(run: RunPaths) -> bool:
    record = read_record(RunRecord, run.record)
    if record.checkpoints is None:
        metrics = run.root / record.metrics
        if metrics.is_dir():
            return any(metrics.iterdir())
        return metrics.is_file() and metrics.stat().st_size > 0
    folder = run.root / record.checkpoints
    return folder.is_dir() and any(not p.name.startswith(".") for p in folder.iterdir())
