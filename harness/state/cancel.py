"""Cancelling runs from another shell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.dispatch.interface import load_dispatcher
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import SweepPaths
from harness.state.status import LIVE_STATES, RunStatus, read_states
from harness.state.submissions import LOCAL, Submissions


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
    sweep: SweepPaths, run_ids: Collection[str] | None = None, *, dry_run: bool = False
) -> Cancellation:
    """Ask the live submissions to drop waiting runs and stop running ones.

    Returns at once; the submissions act within a second, and trainers have their grace.

    Args:
        run_ids: `<arm>/seed_<n>`; None for all.
        dry_run: say what would be asked and write nothing.

    Raises:
        UsageError: a run doesn't exist.
        HarnessError: the sweep has no readable plan.
    """
    states = read_states(sweep)
    known = {status.run_id for status in states}
    for run_id in run_ids or ():
        if run_id not in known:
            raise UsageError(
                f"sweep `{sweep.name}` has no run `{run_id}`",
                did_you_mean(run_id, known, what="runs"),
            )
    chosen = [status for status in states if run_ids is None or status.run_id in run_ids]
    submissions = Submissions(sweep)
    live = {s.paths.id: s for s in submissions.live()}
    asked: dict[str, list[RunStatus]] = {}
    unaffected: list[RunStatus] = []
    for status in chosen:
        holders = [s for s in live.values() if status.run_id in s.run_ids]
        if status.state in LIVE_STATES and holders:
            asked.setdefault(holders[-1].paths.id, []).append(status)
        else:
            unaffected.append(status)
    if not dry_run:
        for submission_id, statuses in asked.items():
            submission = live[submission_id]
            dispatcher = load_dispatcher(str(submission.intent.settings.get("type", LOCAL)))
            dispatcher.cancel(submission.paths, [status.run_id for status in statuses])
    return Cancellation(
        runs=tuple(status for statuses in asked.values() for status in statuses),
        unaffected=tuple(unaffected),
    )
