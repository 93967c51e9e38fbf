"""Cancelling runs from another shell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.dispatch.interface import load_dispatcher
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import SweepPaths
from harness.state.jobs import JobTable
from harness.state.status import RunStatus, may_be_at_work, read_states
from harness.state.submissions import Submission, Submissions


@dataclass(frozen=True)
class Cancellation:
    """What a cancel command asked for.

    Attributes:
        runs: that are asked to end, in their state before.
        unaffected: runs that were named but have nothing to cancel.
    """

    runs: tuple[RunStatus, ...]
    unaffected: tuple[RunStatus, ...]


def cancel(
    sweep: SweepPaths,
    run_ids: Collection[str] | None = None,
    *,
    dry_run: bool = False,
    jobs: JobTable | None = None,
) -> Cancellation:
    """Ask the live submissions to drop waiting runs and stop running ones.

    Returns at once; the submissions act within a second, and trainers have their grace. On SLURM a
    run whose state is unknown is asked to end, too.

    Args:
        run_ids: `<arm>/seed_<n>`; None for all.
        dry_run: say what would be asked and write nothing.

    Raises:
        UsageError: a run doesn't exist.
        HarnessError: the sweep has no readable plan, or SLURM can't be asked.
    """
    states = read_states(sweep, jobs=jobs)
    known = {status.run_id for status in states}
    for run_id in run_ids or ():
        if run_id not in known:
            raise UsageError(
                f"sweep `{sweep.name}` has no run `{run_id}`",
                did_you_mean(run_id, known, what="runs"),
            )
    live = {s.paths.id: s for s in Submissions(sweep).live()}
    asked: dict[str, list[RunStatus]] = {}
    unaffected: list[RunStatus] = []
    for status in states:
        if run_ids is not None and status.run_id not in run_ids:
            continue
        holder = _holder(status, live)
        if holder is not None and may_be_at_work(status):
            asked.setdefault(holder.paths.id, []).append(status)
        else:
            unaffected.append(status)
    if not dry_run:
        for submission_id, statuses in asked.items():
            dispatcher = load_dispatcher(live[submission_id].profile_type)
            dispatcher.cancel(live[submission_id].paths, [status.run_id for status in statuses])
    return Cancellation(
        runs=tuple(status for statuses in asked.values() for status in statuses),
        unaffected=tuple(unaffected),
    )


def _holder(status: RunStatus, live: Mapping[str, Submission]) -> Submission | None:
    """Return the live submission that the run's state is about, else the newest that lists it."""
    if status.submission is not None and status.submission in live:
        return live[status.submission]
    holders = [s for s in live.values() if status.run_id in s.run_ids]
    return holders[-1] if holders else None
