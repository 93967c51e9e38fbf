"""The last job of a submission: the report, the totals and the notice.

`python -P -m harness.dispatch.finish`, with the submission's folder in the environment. It runs
once all its jobs have ended, whoever still follows them.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness.dispatch.notify import NotifyError, notify
from harness.dispatch.receipts import ACCEPTED, read_receipts
from harness.errors import HarnessError
from harness.printable import one_line
from harness.profile import Profile
from harness.records.files import write_json
from harness.records.layout import FINISH_JOB, SUBMISSION_DIR_ENV, SubmissionPaths, SweepPaths
from harness.records.model import (
    SCHEMA_VERSION,
    Intent,
    PlanRecord,
    from_record,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.slurm_profile import SlurmProfile
from harness.state.model import RunStatus, may_be_at_work
from harness.state.status import read_states
from harness.sweep.gpu_hours import planned_gpu_hours


@dataclass(frozen=True)
class Totals:
    """submissions/<id>/totals.json: what a submission came to.

    Attributes:
        states: state -> number of runs, over the whole sweep.
        runs: run of the submission -> state.
        gpu_hours, lost_gpu_hours: of all attempts of its runs; None where none tells.
        planned_gpu_hours: what its runs may have taken; None where that can't be told.
        report: path of the report; None where it can't be rendered, and `error` says why.
        notified: `sent`, `failed: …`, or empty where the profile asks for no notice.
    """

    schema_version: int
    submission: str
    sweep: str
    states: dict[str, int]
    runs: dict[str, str]
    gpu_hours: float | None
    lost_gpu_hours: float | None
    planned_gpu_hours: float | None
    report: str | None
    error: str
    notified: str
    time: float


def main() -> int:
    """End the submission that the environment names; return the exit code.

    0: reported, or nothing to do; 1: the report can't be rendered, or the notice not sent.
    """
    folder = os.environ.get(SUBMISSION_DIR_ENV)
    if not folder:
        _say(f"error: `{SUBMISSION_DIR_ENV}` is not set: this is the last job of a submission")
        return 1
    try:
        return finish(SubmissionPaths(Path(folder).absolute()))
    except (HarnessError, OSError) as error:
        _say(f"error: {one_line(str(error))}")
        return 1


def finish(paths: SubmissionPaths) -> int:
    """Render the report of the sweep, write the totals and send the notice, once.

    Where a newer submission still has runs at work, that one will do it: nothing happens.
    """
    intent = read_record(Intent, paths.intent)
    statuses = read_states(paths.sweep)
    newer = _newer_at_work(paths, statuses)
    if newer is not None:
        _say(f"nothing to do: submission {newer} is newer, still has runs, and will report")
        return 0
    report, error = _render(paths.sweep)
    totals = _sum_up(paths, intent, statuses, report, error)
    before = read_record_if_there(Totals, paths.totals)
    notified = "" if before is None else before.notified
    _write(paths, totals, notified)
    summary = summarise(totals)
    _say(summary)
    wanted = intent.settings.get("notify")
    if wanted and notified != "sent":  # SLURM may start this job twice
        try:
            notify(wanted, summary, to_record(totals))
            notified = "sent"
        except NotifyError as failure:
            notified = f"failed: {failure}"
            _say(f"error: the notice was not sent: {failure}")
        _write(paths, totals, notified)
    return 1 if error or notified.startswith("failed") else 0


def summarise(totals: Totals) -> str:
    """Return what a submission came to, in one line."""
    states = ", ".join(f"{number} {state}" for state, number in totals.states.items())
    line = f"{totals.sweep}: {states}"
    if totals.gpu_hours is not None:
        line += f"; {totals.gpu_hours:.2f} GPU-hours used"
        if totals.lost_gpu_hours:
            line += f", {totals.lost_gpu_hours:.2f} of them lost"
    if totals.report is not None:
        return f"{line}; report: {totals.report}"
    return f"{line}; no report: {totals.error}"


def _newer_at_work(paths: SubmissionPaths, statuses: list[RunStatus]) -> str | None:
    """Return a newer submission that has runs at work and a finishing job of its own, or None."""
    for newer in paths.sweep.submissions():
        if newer.id > paths.id and any(
            status.submission == newer.id and may_be_at_work(status) for status in statuses
        ):
            receipts = read_receipts(newer, read_record(Intent, newer.intent))
            if FINISH_JOB in receipts and receipts[FINISH_JOB].state == ACCEPTED:
                return newer.id
    return None


def _render(sweep: SweepPaths) -> tuple[str | None, str]:
    """Return where the report is, and why there is none."""
    try:
        import analysis  # noqa: PLC0415 (pandas and matplotlib load only where there is a report)

        return str(analysis.write_report(sweep.root).html), ""
    except HarnessError as error:
        return None, error.message
    except Exception as error:  # the totals and the notice must come whatever happens here
        traceback.print_exc()
        return None, one_line(f"{type(error).__name__}: {error}")


def _sum_up(
    paths: SubmissionPaths,
    intent: Intent,
    statuses: list[RunStatus],
    report: str | None,
    error: str,
) -> Totals:
    run_ids = {run.run_id for run in intent.runs}
    own = [status for status in statuses if status.run_id in run_ids]
    planned = Counter(str(status.state) for status in statuses if status.is_planned)
    return Totals(
        schema_version=SCHEMA_VERSION,
        submission=paths.id,
        sweep=paths.sweep.name,
        states=dict(planned),
        runs={status.run_id: str(status.state) for status in own},
        gpu_hours=_sum([status.gpu_hours for status in own]),
        lost_gpu_hours=_sum([status.lost_gpu_hours for status in own]),
        planned_gpu_hours=_planned(paths, intent),
        report=report,
        error=error,
        notified="",
        time=time.time(),
    )


def _planned(paths: SubmissionPaths, intent: Intent) -> float | None:
    plan = read_record(PlanRecord, paths.sweep.plan)
    settings = from_record(SlurmProfile, intent.settings, where=str(paths.intent))
    planned = planned_gpu_hours(plan, Profile(intent.profile, settings), intent.runs)
    return None if planned is None else planned.total


def _sum(hours: list[float | None]) -> float | None:
    told = [value for value in hours if value is not None]
    return sum(told) if told else None


def _write(paths: SubmissionPaths, totals: Totals, notified: str) -> None:
    write_json(paths.totals, {**to_record(totals), "notified": notified}, durable=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
