"""A queue on this machine: slots, GPU leases, one runner process per run.

The queue holds the sweep's lock while it runs, starts runs in the given order, and ends with a
receipt. Should it be killed, the kernel tells its runners, which stop their trainers.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Collection

from harness.dispatch.interface import (
    Order,
    Preview,
    Result,
    RunOutcome,
    RunProgress,
    Show,
    Snapshot,
)
from harness.dispatch.lock import Lock, acquire_lock
from harness.dispatch.requests import cancelled_runs, write_cancel_request
from harness.dispatch.slots import Slots, plan_slots
from harness.dispatch.started import StartedRun
from harness.dispatch.stop_signals import received_signals
from harness.dispatch.submission import (
    Submission,
    check_order,
    open_submission,
    write_receipt,
)
from harness.errors import HarnessError, UsageError
from harness.profile import Profile
from harness.records.layout import SubmissionPaths
from harness.records.model import PlannedRun
from harness.runner.process import adopt_orphans
from harness.state.status import RunState

POLL_S = 0.2
SHOW_EVERY_S = 0.5


def count_slots(profile: Profile) -> int:
    """Return how many runs a local profile takes at once. Raises UsageError as `submit` does."""
    return plan_slots(profile.settings, profile.name).num_slots


class LocalDispatcher:
    """Runs submissions in queues of the calling process."""

    def submit(self, order: Order, lock: Lock | None = None) -> LocalQueue:
        """Write the intent, under `lock` or one that is taken here. Nothing starts before `follow`.

        The queue releases the lock when it ends, or at once where this raises.

        Raises:
            UsageError: the sweep is being run, the profile doesn't fit this machine, a run stands
                twice, or the code folder can't be imported from.
        """
        try:
            slots = _check(order)
            if lock is None:
                lock = acquire_lock(order.sweep)
            return LocalQueue(order, slots, lock, open_submission(order))
        except BaseException as error:
            if lock is not None:
                lock.release()
            if not isinstance(error, OSError):
                raise
            raise UsageError(
                f"`{order.sweep.root}` can't be written: {error.strerror or error}",
                "choose another folder with HARNESS_OUTPUTS",
            ) from error

    def preview(self, order: Order) -> Preview:
        """Return an empty preview: a local queue hands nothing over. Raises as `submit` does."""
        _check(order)
        return Preview()

    def cancel(self, submission: SubmissionPaths, run_ids: Collection[str] | None) -> None:
        """Ask the queue to drop waiting runs and stop running ones."""
        write_cancel_request(submission, run_ids)


class LocalQueue:
    """One submission, executed by the process that calls `follow`."""

    def __init__(self, order: Order, slots: Slots, lock: Lock, submission: Submission) -> None:
        self._order = order
        self._slots = slots
        self._lock = lock
        self._submission = submission
        self._waiting = deque(order.runs)
        self._started: list[StartedRun] = []
        self._ended: dict[str, RunOutcome] = {}
        self._progress: dict[str, RunProgress] = {}
        self._free_gpus = list(slots.gpus)
        self._obeyed: set[str] = set()
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._stops_obeyed = 0

    @property
    def submission(self) -> SubmissionPaths:
        return self._submission.paths

    def follow(self, show: Show) -> Result:
        """Run the queue to its end, whatever happens to single runs.

        Call it from the main thread: SIGINT, SIGTERM and SIGHUP then stop all runs with grace (a
        second one without) and leave `cancelled` exit records.

        Returns:
            An outcome for every run, in the given order.
        """
        adopt_orphans()
        try:
            with received_signals() as received:
                try:
                    self._loop(show, received)
                except BaseException:
                    self._stop()
                    self._drain()
                    raise
        finally:
            adopt_orphans(False)
            outcomes = {run_id: str(o.state) for run_id, o in self._ended.items()}
            try:
                write_receipt(self._submission, {}, outcomes)
            finally:
                self._lock.release()
        return Result(
            submission=self.submission.id,
            outcomes=tuple(self._ended[run.run_id] for run in self._order.runs),
            interrupted_by=received[0] if received else None,
        )

    def _loop(self, show: Show, received: list[int]) -> None:
        while self._waiting or self._started:
            while self._stops_obeyed < len(received):
                self._stop(without_grace=self._stops_obeyed > 0)
                self._stops_obeyed += 1
            self._start_what_fits()
            self._obey_requests()
            has_ended = self._reap()
            if has_ended or time.monotonic() - self._shown_at >= SHOW_EVERY_S:
                show(self._snapshot())
                self._shown_at = time.monotonic()
            if not has_ended:
                _wait_for_any([started.pid for started in self._started], POLL_S)
        show(self._snapshot())

    def _start_what_fits(self) -> None:
        while self._waiting and len(self._started) < self._slots.num_slots:
            run = self._waiting.popleft()
            gpus = self._lease()
            paths = self._order.sweep.run(run.arm, run.seed)
            try:
                self._started.append(StartedRun(run, paths, self._submission.intent, gpus))
            except OSError as error:
                self._free_gpus += gpus or ()
                self._finish(RunOutcome(run, RunState.FAILED, f"can't start its runner: {error}"))

    def _lease(self) -> tuple[str, ...] | None:
        wanted = self._slots.gpus_per_run
        if wanted is None:
            return None
        leased, self._free_gpus = self._free_gpus[:wanted], self._free_gpus[wanted:]
        return tuple(leased)

    def _reap(self) -> bool:
        ended = [started for started in self._started if started.has_ended]
        for started in ended:
            self._started.remove(started)
            self._progress[started.run.run_id] = started.progress()
            self._free_gpus += started.gpus
            self._finish(started.end())
        for started in self._started:
            started.kill_if_overdue()
        return bool(ended)

    def _obey_requests(self) -> None:
        open_ids = {r.run_id for r in self._waiting} | {s.run.run_id for s in self._started}
        try:
            asked = cancelled_runs(self.submission, open_ids) - self._obeyed
        except HarnessError:
            return  # a damaged request asks for nothing
        self._obeyed |= asked
        self._drop(asked)
        for started in self._started:
            if started.run.run_id in asked:
                started.stop()

    def _drop(self, run_ids: Collection[str]) -> None:
        dropped = [run for run in self._waiting if run.run_id in run_ids]
        self._waiting = deque(run for run in self._waiting if run.run_id not in run_ids)
        for run in dropped:
            self._finish(RunOutcome(run, RunState.CANCELLED))

    def _stop(self, *, without_grace: bool = False) -> None:
        self._drop([run.run_id for run in self._waiting])
        for started in self._started:
            started.stop(without_grace=without_grace)

    def _drain(self) -> None:
        while self._started:
            if not self._reap():
                _wait_for_any([started.pid for started in self._started], POLL_S)

    def _finish(self, outcome: RunOutcome) -> None:
        self._ended[outcome.run.run_id] = outcome

    def _snapshot(self) -> Snapshot:
        running = {started.run.run_id: started.progress() for started in self._started}
        return Snapshot(
            sweep=self._order.sweep.name,
            runs=tuple(self._progress_of(run, running) for run in self._order.runs),
            slots=self._slots.num_slots,
            elapsed_s=time.monotonic() - self._began,
            is_stopping=self._stops_obeyed > 0,
        )

    def _progress_of(self, run: PlannedRun, running: dict[str, RunProgress]) -> RunProgress:
        if run.run_id in running:
            return running[run.run_id]
        outcome = self._ended.get(run.run_id)
        if outcome is None:
            return RunProgress(run, RunState.QUEUED)
        last = self._progress.get(run.run_id, RunProgress(run, outcome.state))
        return RunProgress(
            run,
            outcome.state,
            step=last.step,
            mismatch_kl=last.mismatch_kl,
            solve_rate=last.solve_rate,
            elapsed_s=last.elapsed_s,
            error=outcome.error,
        )


def _check(order: Order) -> Slots:
    check_order(order)
    return plan_slots(order.profile.settings, order.profile.name)


def _wait_for_any(pids: list[int], timeout_s: float) -> None:
    """Return when one of the child processes ends, or after `timeout_s`."""
    descriptors: list[int] = []
    poll = select.poll()
    try:
        for pid in pids:
            descriptors.append(os.pidfd_open(pid))
            poll.register(descriptors[-1], select.POLLIN)
    except OSError:
        timeout_s = min(timeout_s, 0.02)  # no pidfds here: look often instead
    try:
        poll.poll(timeout_s * 1000)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


DISPATCHER = LocalDispatcher()
