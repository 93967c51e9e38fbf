"""One run that the local queue has started: its runner process, its progress, its outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO

from harness.dispatch.environment import without_run_variables
from harness.dispatch.interface import RunOutcome, RunProgress
from harness.errors import HarnessError
from harness.records.layout import RUN_DIR_ENV, SUBMISSION_ENV, AttemptPaths, RunPaths
from harness.records.model import (
    Claim,
    Exit,
    Heartbeat,
    Intent,
    PlannedRun,
    read_record,
    read_record_if_there,
)
from harness.runner.failure import signal_name
from harness.runner.machine import THREAD_VARIABLES, VISIBLE_GPUS_ENV
from harness.runner.process import (
    PARENT_PID_ENV,
    children_of,
    environment_of,
    send_signal,
    session_of,
)
from harness.state.status import FINISHED_STATES, RunState

_KILL_AFTER_GRACE_S = 20.0


def runner_env(intent: Intent, paths: RunPaths, gpus: tuple[str, ...] | None) -> dict[str, str]:
    """Return the environment of a runner: the shell's, without what belongs to one run.

    Args:
        gpus: ids that the run may use; None leaves the shell's choice.
    """
    env = without_run_variables(os.environ)
    env |= dict.fromkeys(THREAD_VARIABLES, str(intent.settings["threads"]))
    if gpus is not None:
        env[VISIBLE_GPUS_ENV] = ",".join(gpus)
    if intent.code_dir is not None:
        earlier = env.get("PYTHONPATH")
        env["PYTHONPATH"] = intent.code_dir + (f"{os.pathsep}{earlier}" if earlier else "")
    return env | {
        RUN_DIR_ENV: str(paths.root.absolute()),
        SUBMISSION_ENV: intent.id,
        PARENT_PID_ENV: str(os.getpid()),
    }


class StartedRun:
    """A runner process of this queue, from its start to its outcome."""

    def __init__(
        self, run: PlannedRun, paths: RunPaths, intent: Intent, gpus: tuple[str, ...] | None
    ) -> None:
        self.run = run
        self.gpus = gpus or ()
        self._paths = paths
        self._submission_id = intent.id
        self._grace_s = float(intent.settings["grace_s"])
        self._kill_at: float | None = None
        self._started = time.monotonic()
        self._attempt: AttemptPaths | None = None
        self._notes: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.runner"],
            stdin=subprocess.DEVNULL,
            stdout=self._notes,
            stderr=self._notes,
            env=runner_env(intent, paths, gpus),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self, *, without_grace: bool = False) -> None:
        """Ask the runner to stop its trainer, with grace or without. Asking again changes
        nothing."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s + _KILL_AFTER_GRACE_S
            self._process.send_signal(signal.SIGTERM)
        if without_grace:
            self._process.send_signal(signal.SIGINT)

    def kill_if_overdue(self) -> None:
        """Kill a runner that hasn't ended long after the grace of its trainer."""
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._process.kill()

    def progress(self) -> RunProgress:
        """Return how far the run is, from its heartbeat."""
        elapsed_s = time.monotonic() - self._started
        beat: Heartbeat | None = None
        with contextlib.suppress(HarnessError):
            attempt = self._own_attempt()
            if attempt is not None:
                beat = read_record_if_there(Heartbeat, attempt.heartbeat)
        if beat is None:
            return RunProgress(self.run, RunState.RUNNING, elapsed_s=elapsed_s)
        return RunProgress(
            self.run,
            RunState.RUNNING,
            step=beat.step,
            steps_per_s=beat.steps_per_s,
            mismatch_kl=beat.mismatch_kl,
            solve_rate=beat.solve_rate,
            elapsed_s=elapsed_s,
        )

    def end(self) -> RunOutcome:
        """Return the outcome of a runner that has ended, and end what it may have left behind."""
        if self._process.returncode < 0:
            self._kill_left_behind()
        self._notes.seek(0)
        notes = tuple(self._notes.read().decode("utf-8", errors="replace").splitlines())
        self._notes.close()
        try:
            state, error = self._judge(notes)
        except HarnessError as failure:
            state, error = RunState.UNKNOWN, failure.message
        return RunOutcome(self.run, state, error, notes)

    def _judge(self, notes: tuple[str, ...]) -> tuple[RunState, str]:
        code = self._process.returncode
        attempt = self._own_attempt()
        if attempt is None and code == 0:
            return self._judge_idle(notes)
        ended = None if attempt is None else read_record_if_there(Exit, attempt.exit)
        if ended is not None:
            if ended.reason == "superseded":
                return RunState.UNKNOWN, "another runner has taken over the run"
            return RunState(ended.reason), ended.error
        was_stopped = attempt is None and self._kill_at is not None
        if was_stopped or code == 128 + signal.SIGTERM:
            return RunState.CANCELLED, ""
        if code < 0:
            return RunState.LOST, f"its runner was killed by {signal_name(-code)}"
        return RunState.FAILED, notes[-1] if notes else f"its runner exited {code}"

    def _judge_idle(self, notes: tuple[str, ...]) -> tuple[RunState, str]:
        """Judge a run whose runner found nothing to do."""
        attempts = self._paths.attempts()
        ended = read_record_if_there(Exit, attempts[-1].exit) if attempts else None
        if ended is not None and ended.reason in FINISHED_STATES:
            return RunState(ended.reason), ""
        return RunState.UNKNOWN, notes[-1] if notes else "its runner did nothing"

    def _own_attempt(self) -> AttemptPaths | None:
        """Return the attempt that this queue's runner has claimed, once it has."""
        if self._attempt is None:
            for attempt in reversed(self._paths.attempts()):
                if read_record(Claim, attempt.claim).submission == self._submission_id:
                    self._attempt = attempt
                    break
        return self._attempt

    def _kill_left_behind(self) -> None:
        """End the processes of a killed runner, which this process has adopted.

        They are known by their session (the trainer's) or by the environment they began with.
        """
        trainer_pid = None
        with contextlib.suppress(HarnessError):
            attempt = self._own_attempt()
            beat = None if attempt is None else read_record_if_there(Heartbeat, attempt.heartbeat)
            trainer_pid = None if beat is None else beat.trainer_pid
        marks = {SUBMISSION_ENV: self._submission_id, RUN_DIR_ENV: str(self._paths.root.absolute())}
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            left = [
                pid
                for pid in children_of(os.getpid())
                if (trainer_pid is not None and session_of(pid) == trainer_pid)
                or _has_marks(environment_of(pid), marks)
            ]
            if not left:
                return
            for pid in left:
                send_signal(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)


def _has_marks(env: Mapping[str, str], marks: Mapping[str, str]) -> bool:
    return all(env.get(name) == value for name, value in marks.items())
