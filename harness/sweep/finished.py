"""Which runs are done already, and which code made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.errors import UsageError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import Claim, Exit, PlannedRun, read_record, read_record_if_there


def find_done(paths: SweepPaths, runs: Iterable[PlannedRun]) -> dict[str, str]:
    """Return run id -> code hash of its last attempt, for each run that reached its `max_steps`."""
    done = {}
    for run in runs:
        code_hash = _code_of_done(paths.run(run.arm, run.seed), run.max_steps)
        if code_hash is not None:
            done[run.run_id] = code_hash
    return done


def refuse_other_code(done: Mapping[str, str], code_hash: str, sweep: str) -> None:
    """Refuse to put new runs beside done runs of other code: they would differ in more than said.

    Raises:
        UsageError: some done runs were made by other code.
    """
    other = sorted(run_id for run_id, made_by in done.items() if made_by != code_hash)
    if other:
        shown = ", ".join(other[:3]) + (", …" if len(other) > 3 else "")
        raise UsageError(
            f"{len(other)} of {len(done)} done runs were made by other code than {code_hash}:"
            f" {shown}",
            f"--reuse-across-code keeps them (the report will show it); --as {sweep}_2 starts anew",
        )


def _code_of_done(run: RunPaths, max_steps: int) -> str | None:
    attempts = run.attempts()
    if not attempts:
        return None
    ended = read_record_if_there(Exit, attempts[-1].exit)
    if ended is None or ended.reason != "done" or ended.max_steps < max_steps:
        return None
    return read_record(Claim, attempts[-1].claim).code_hash
