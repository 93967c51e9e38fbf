"""What the runner writes while an attempt goes on and when it ends."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.records.files import write_json
from harness.records.layout import RunPaths
from harness.records.model import SCHEMA_VERSION, Claim, Exit, Heartbeat, RunRecord, to_record
from harness.runner.claim import has_newer_claim
from harness.runner.failure import explain_exit
from harness.runner.foreign_tail import open_tail
from harness.runner.stall import StallWatch
from harness.runner.stopping import STOPPED, StopWatch
from harness.runner.supervise import CANCELLED, SUPERSEDED, Ending

if TYPE_CHECKING:
    from analysis.stopping import Firing

DONE, FAILED = "done", "failed"
STALLED = "stalled"
"""Why a trainer was stopped; the attempt has failed then."""

_SPEED_WINDOW_S = 30.0
_SPEED_MIN_CHANGES = 5


class Speed:
    """Steps per second over the recent past."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def update(self, now: float, step: int | None) -> float | None:
        """Return the speed after seeing `step` at `now`; None until it has moved once.

        The window holds the changes of the last 30 s, and the last five of a slower run. Time
        since the last change counts once it is longer than the steps before took.
        """
        changes = self._changes
        if step is not None and (not changes or step != changes[-1][1]):
            if changes and step < changes[-1][1]:
                changes.clear()
            changes.append((now, step))
            while len(changes) > _SPEED_MIN_CHANGES and changes[1][0] <= now - _SPEED_WINDOW_S:
                changes.popleft()
        if len(changes) < 2:
            return None
        (first_time, first_step), (last_time, last_step) = changes[0], changes[-1]
        took_s, num_steps = last_time - first_time, last_step - first_step
        is_overdue = now - last_time > took_s / (len(changes) - 1)
        elapsed_s = now - first_time if is_overdue else took_s
        return num_steps / elapsed_s if elapsed_s > 0 else None


@dataclass
class AttemptRecorder:
    """Writes heartbeat.json and exit.json of one attempt.

    A heartbeat that can't be written (full disk) is reported once and the run goes on.

    Attributes:
        is_cancelled: whether someone has asked for this run's end on disk.
        stop_watch: that looks for a stop rule which fires; None where there are no rules, or the
            trainer has ended.
    """

    paths: RunPaths
    claim: Claim
    record: RunRecord
    trainer_pid: int | None = None
    is_cancelled: Callable[[], bool] = lambda: False
    stop_watch: StopWatch | None = None

    def __post_init__(self) -> None:
        self.tail = open_tail(
            self.paths.root / self.record.metrics,
            self.record.metrics_format,
            self.record.metrics_keys,
            self.claim.attempt,
        )
        self._attempt = self.paths.attempt(self.claim.attempt)
        self._speed = Speed()
        self._is_stalled = False
        self._has_warned = False
        self._steps_per_s: float | None = None
        self._firing: Firing | None = None
        self._unspent_gpu_hours: float | None = None
        self.watch_stalls(None)

    def watch_stalls(self, limit_s: float | None, *, is_reason: bool = False) -> None:
        """Take `limit_s` seconds without a new step for a stall (None: never), from now on.

        Args:
            is_reason: whether `beat` names a stall as a reason to stop.
        """
        self.stall_limit_s = limit_s
        self._stall = StallWatch(limit_s, time.monotonic())
        self._ends_stalls = is_reason

    def beat(self) -> str | None:
        """Write a heartbeat. Returns a reason to stop: SUPERSEDED where a newer attempt has been
        claimed, CANCELLED, STOPPED or STALLED."""
        latest = self.tail.poll()
        silence_s = self._stall.update(time.monotonic(), latest.step)
        self._tell_stall(silence_s)
        self._steps_per_s = self._speed.update(time.monotonic(), latest.step)
        heartbeat = Heartbeat(
            schema_version=SCHEMA_VERSION,
            attempt=self.claim.attempt,
            time=time.time(),
            step=latest.step,
            max_steps=self.claim.max_steps,
            tokens=latest.tokens,
            mismatch_kl=latest.mismatch_kl,
            solve_rate=latest.solve_rate,
            steps_per_s=self._steps_per_s,
            trainer_pid=self.trainer_pid,
            first_step=self.tail.first_step,
            stalled_since=None if silence_s is None else time.time() - silence_s,
        )
        try:
            write_json(self._attempt.heartbeat, to_record(heartbeat))
        except OSError as error:
            self._warn(f"{_os_error(self._attempt.heartbeat, error)}; the run goes on")
        if self.is_superseded():
            return SUPERSEDED
        if self.is_cancelled():
            return CANCELLED
        if self._is_stopped():
            return STOPPED
        return STALLED if self._is_stalled and self._ends_stalls else None

    def _is_stopped(self) -> bool:
        """Whether a stop rule has fired. What is not spent is reckoned from here on."""
        if self._firing is not None:
            return True
        if self.stop_watch is None or self.tail.first_step is None:
            return False
        self._firing = self.stop_watch.poll(self.tail.latest.step)
        if self._firing is None:
            return False
        say(f"stopping: `{self._firing.rule.text}` holds at step {self._firing.step}")
        self._unspent_gpu_hours = self._reckon_unspent()
        return True

    def _reckon_unspent(self) -> float | None:
        step, num_gpus = self.tail.latest.step, len(self.claim.gpus) * self.claim.num_nodes
        if num_gpus == 0:
            return 0.0
        if step is None or not self._steps_per_s:
            return None
        left_s = max(0, self.claim.max_steps - step) / self._steps_per_s
        return left_s * num_gpus / 3600

    def is_superseded(self) -> bool:
        """Whether a newer attempt has been claimed; False where that can't be seen."""
        try:
            return has_newer_claim(self.paths, self.claim.attempt)
        except OSError as error:
            self._warn(f"`{self.paths.attempts_dir}` can't be read: {error.strerror or error}")
            return False

    def end(self, ending: Ending) -> str:
        """Write exit.json for a trainer that has ended and return the reason in it."""
        error = ""
        if self.is_done(ending):
            reason = DONE
        elif ending.stop_reason is not None:
            reason = ending.stop_reason
        else:
            reason, error = FAILED, self.explain(ending)
        self.write_exit(reason, error, code=ending.code, signal_number=ending.signal)
        return reason

    def is_done(self, ending: Ending) -> bool:
        """Whether the trainer exited 0 and `max_steps` is reached."""
        last_step = self.tail.poll().step
        return ending.code == 0 and last_step is not None and last_step >= self.claim.max_steps

    def explain(self, ending: Ending) -> str:
        """Return the one line that says why the trainer ended early."""
        return explain_exit(
            ending.code,
            ending.signal,
            self.tail.latest.step,
            self.claim.max_steps,
            self._attempt.log,
            self._own_parts(),
        )

    def _own_parts(self) -> dict[str, Path]:
        """Return the logs of the trainer's parts that this attempt wrote to."""
        paths = {name: self.paths.root / path for name, path in self.record.logs.items()}
        return {n: p for n, p in paths.items() if _written_since(p, self.claim.time)}

    def write_exit(
        self,
        reason: str,
        error: str,
        *,
        code: int | None = None,
        signal_number: int | None = None,
        requeue: bool = False,
    ) -> None:
        """Write exit.json. Raises HarnessError where that fails: nobody else can tell the end."""
        firing = self._firing if reason == STOPPED else None
        record = Exit(
            schema_version=SCHEMA_VERSION,
            attempt=self.claim.attempt,
            reason=reason,
            code=code,
            signal=signal_number,
            error=error,
            last_step=self.tail.latest.step,
            max_steps=self.claim.max_steps,
            nodes=(self.claim.node or self.claim.host,),
            gpus=self.claim.gpus,
            start=self.claim.time,
            end=time.time(),
            first_step=self.tail.first_step,
            requeue=requeue,
            rule="" if firing is None else firing.rule.text,
            rule_step=None if firing is None else firing.step,
            unspent_gpu_hours=None if firing is None else self._unspent_gpu_hours,
        )
        try:
            write_json(self._attempt.exit, to_record(record), durable=True)
        except OSError as failure:
            outcome = f"the attempt ended: {reason}" + (f" ({error})" if error else "")
            raise HarnessError(f"{_os_error(self._attempt.exit, failure)}; {outcome}") from failure

    def _tell_stall(self, silence_s: float | None) -> None:
        if silence_s is not None and not self._is_stalled:
            step = self.tail.latest.step
            where = "any step" if step is None else f"a step after {step}"
            say(f"stalled: the trainer hasn't logged {where} for {silence_s:.0f} s")
        self._is_stalled = silence_s is not None

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            say(f"warning: {text}")


def _written_since(path: Path, time_s: float) -> bool:
    try:
        return path.stat().st_mtime >= time_s
    except OSError:
        return False


def say(text: str) -> None:
    """Write one line to stderr, which the dispatcher shows."""
    print(f"harness.runner: {text}", file=sys.stderr, flush=True)


def _os_error(path: Any, error: OSError) -> str:
    return f"`{path}` can't be written: {error.strerror or error}"
