"""Follows a submission that SLURM holds. Nothing of it depends on being followed."""

from __future__ import annotations

import dataclasses
import time

from harness.dispatch.interface import Order, Result, RunOutcome, RunProgress, Show, Snapshot
from harness.dispatch.stop_signals import received_signals
from harness.errors import HarnessError
from harness.records.layout import SubmissionPaths
from harness.records.model import Heartbeat, Intent, PlannedRun, read_record_if_there
from harness.state.jobs import JobTable
from harness.state.model import FINISHED_STATES, RunState, RunStatus, may_be_at_work
from harness.state.status import read_states

SHOW_EVERY_S = 1.0
_SLICE_S = 0.1
_WITHOUT_ERROR = FINISHED_STATES | {RunState.SUBMITTING, RunState.QUEUED, RunState.RUNNING}
"""Whose reason, if any, is not worth a line among the runs that need one."""


class SlurmHandle:
    """A submission that was handed over to SLURM."""

    def __init__(self, order: Order, paths: SubmissionPaths, intent: Intent) -> None:
        self._order = order
        self._paths = paths
        self._intent = intent
        self._jobs = JobTable()

    @property
    def submission(self) -> SubmissionPaths:
        return self._paths

    def follow(self, show: Show) -> Result:
        """Call `show` about every second until nothing is, or may be, at work on any run.

        SLURM is asked every `poll_s` of the profile, by one squeue and at most one sacct; in
        between heartbeats tell how far the runs are. While SLURM doesn't answer, runs without a
        fresh heartbeat are `unknown`, and the following goes on.

        Call it from the main thread: SIGINT, SIGTERM and SIGHUP then end the following and
        nothing else; the result is marked detached.
        """
        poll_s = float(self._intent.settings["poll_s"])
        with received_signals() as received:
            while True:
                statuses = self._read()
                asked_at = time.monotonic()
                show(self._snapshot(statuses))
                if not any(may_be_at_work(status) for status in statuses.values()):
                    return self._result(statuses, None)
                while (left_s := asked_at + poll_s - time.monotonic()) > 0 and not received:
                    _pause(min(left_s, SHOW_EVERY_S), received)
                    statuses = {run_id: self._advance(s) for run_id, s in statuses.items()}
                    show(self._snapshot(statuses))
                if received:
                    return self._result(statuses, received[0])

    def _read(self) -> dict[str, RunStatus]:
        wanted = {run.run_id for run in self._order.runs}
        statuses = read_states(self._order.sweep, jobs=self._jobs)
        return {status.run_id: status for status in statuses if status.run_id in wanted}

    def _advance(self, status: RunStatus) -> RunStatus:
        """Return a running run as its heartbeat shows it now. Its state stays what it was."""
        if status.state is not RunState.RUNNING or status.attempt is None:
            return status
        paths = self._order.sweep.run(status.arm, status.seed).attempt(status.attempt)
        try:
            beat = read_record_if_there(Heartbeat, paths.heartbeat)
        except HarnessError:
            return status
        if beat is None:
            return status
        return dataclasses.replace(
            status,
            step=beat.step,
            tokens=beat.tokens,
            mismatch_kl=beat.mismatch_kl,
            solve_rate=beat.solve_rate,
            steps_per_s=beat.steps_per_s,
            elapsed_s=None if status.since is None else time.time() - status.since,
        )

    def _snapshot(self, statuses: dict[str, RunStatus]) -> Snapshot:
        runs = self._order.runs
        return Snapshot(
            sweep=self._order.sweep.name,
            runs=tuple(_progress(run, statuses[run.run_id]) for run in runs),
            slots=self._intent.settings.get("parallelism") or len(runs),
            elapsed_s=time.time() - self._intent.time,
        )

    def _result(self, statuses: dict[str, RunStatus], signal_number: int | None) -> Result:
        found = [(run, statuses[run.run_id]) for run in self._order.runs]
        return Result(
            submission=self._paths.id,
            outcomes=tuple(RunOutcome(run, s.state, _error(s)) for run, s in found),
            interrupted_by=signal_number,
            is_detached=signal_number is not None,
        )


def _progress(run: PlannedRun, status: RunStatus) -> RunProgress:
    return RunProgress(
        run,
        status.state,
        step=status.step,
        steps_per_s=status.steps_per_s,
        mismatch_kl=status.mismatch_kl,
        solve_rate=status.solve_rate,
        elapsed_s=status.elapsed_s,
        error=_error(status),
        is_open=may_be_at_work(status),
    )


def _error(status: RunStatus) -> str:
    return "" if status.state in _WITHOUT_ERROR else status.reason


def _pause(seconds: float, received: list[int]) -> None:
    end = time.monotonic() + seconds
    while not received and (left_s := end - time.monotonic()) > 0:
        time.sleep(min(left_s, _SLICE_S))
