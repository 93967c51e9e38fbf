"""What the runner writes while an attempt goes on and when it ends."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError
from harness.records.files import write_json
from harness.records.layout import RunPaths
from harness.records.model import SCHEMA_VERSION, Claim, Exit, Heartbeat, RunRecord, to_record
from harness.runner.claim import has_newer_claim
from harness.runner.failure import explain_exit
from harness.runner.machine import VISIBLE_GPUS_ENV, visible_gpu_ids
from harness.runner.metrics_tail import MetricsTail
from harness.runner.supervise import Ending

DONE, FAILED, SUPERSEDED = "done", "failed", "superseded"

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
    """

    paths: RunPaths
    claim: Claim
    record: RunRecord
    trainer_pid: int | None = None

    def __post_init__(self) -> None:
        self.tail = MetricsTail(
            self.paths.root / self.record.metrics,
            self.record.metrics_format,
            self.record.metrics_keys,
            self.claim.attempt,
        )
        self._attempt = self.paths.attempt(self.claim.attempt)
        self._speed = Speed()
        self._has_warned = False

    def beat(self) -> str | None:
        """Write a heartbeat. Returns a reason to stop where a newer attempt has been claimed."""
        latest = self.tail.poll()
        heartbeat = Heartbeat(
            schema_version=SCHEMA_VERSION,
            attempt=self.claim.attempt,
            time=time.time(),
            step=latest.step,
            max_steps=self.claim.max_steps,
            tokens=latest.tokens,
            mismatch_kl=latest.mismatch_kl,
            solve_rate=latest.solve_rate,
            steps_per_s=self._speed.update(time.monotonic(), latest.step),
            trainer_pid=self.trainer_pid,
        )
        try:
            write_json(self._attempt.heartbeat, to_record(heartbeat))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                say(f"warning: {_os_error(self._attempt.heartbeat, error)}; the run goes on")
        return SUPERSEDED if has_newer_claim(self.paths, self.claim.attempt) else None

    def end(self, ending: Ending) -> str:
        """Write exit.json for a trainer that has ended and return the reason in it."""
        last_step = self.tail.poll().step
        reached = last_step is not None and last_step >= self.claim.max_steps
        error = ""
        if ending.code == 0 and reached:
            reason = DONE
        elif ending.stop_reason is not None:
            reason = ending.stop_reason
        else:
            reason = FAILED
            error = explain_exit(
                ending.code, ending.signal, last_step, self.claim.max_steps, self._attempt.log
            )
        if ending.survivors:
            say(f"warning: SIGKILL did not end {', '.join(map(str, ending.survivors))}")
        self.write_exit(reason, error, code=ending.code, signal_number=ending.signal)
        return reason

    def write_exit(
        self,
        reason: str,
        error: str,
        *,
        code: int | None = None,
        signal_number: int | None = None,
    ) -> None:
        """Write exit.json. Raises HarnessError where that fails: nobody else can tell the end."""
        record = Exit(
            schema_version=SCHEMA_VERSION,
            attempt=self.claim.attempt,
            reason=reason,
            code=code,
            signal=signal_number,
            error=error,
            last_step=self.tail.latest.step,
            max_steps=self.claim.max_steps,
            nodes=(self.claim.host,),
            gpus=visible_gpu_ids() if os.environ.get(VISIBLE_GPUS_ENV) else (),
            start=self.claim.time,
            end=time.time(),
        )
        try:
            write_json(self._attempt.exit, to_record(record), durable=True)
        except OSError as failure:
            outcome = f"the attempt ended: {reason}" + (f" ({error})" if error else "")
            raise HarnessError(f"{_os_error(self._attempt.exit, failure)}; {outcome}") from failure


def say(text: str) -> None:
    """Write one line to stderr, which the dispatcher shows."""
    print(f"harness.runner: {text}", file=sys.stderr, flush=True)


def _os_error(path: Any, error: OSError) -> str:
    return f"`{path}` can't be written: {error.strerror or error}"
