"""One attempt from its claim to its exit record."""

from __future__ import annotations

import os
import signal
import subprocess
import traceback
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError
from harness.records.files import read_json
from harness.records.layout import (
    ATTEMPT_ENV,
    MAX_STEPS_ENV,
    RUN_DIR_ENV,
    SHARED_DIR_ENV,
    SUBMISSION_ENV,
    RunPaths,
)
from harness.records.model import Claim, CodeRecord, RunRecord, read_record, read_record_if_there
from harness.runner.claim import (
    HEARTBEAT_EVERY_S,
    Assignment,
    NoWork,
    create_claim,
    find_assignment,
    wait_for_previous,
)
from harness.runner.conclude import (
    CancelRequests,
    JobWatch,
    conclude,
    exit_code,
    past_exits,
    requeue_unclaimed,
)
from harness.runner.guardian import Guardian, start_guardian
from harness.runner.process import (
    PARENT_PID_ENV,
    adopt_orphans,
    end_with_parent,
    kill_descendants,
)
from harness.runner.record import FAILED, AttemptRecorder, say
from harness.runner.signals import STOPS, WARNINGS, Signals, block_signals
from harness.runner.slurm_job import SlurmJob
from harness.runner.start import find_start
from harness.runner.stopping import StopWatch
from harness.runner.supervise import CANCELLED, Ending, start_trainer, supervise
from harness.trainers.interface import Command, Launch, RunName
from harness.trainers.registry import load_trainer

EXIT_OK, EXIT_FAILED, EXIT_CANCELLED = 0, 1, 128 + signal.SIGTERM

_SETTLE_S = 1.0
"""How long after a failed trainer a signal of SLURM's to the runner may still come."""


class Stopped(Exception):
    """Told to stop before the attempt began, by the signal `number` (None: by a request)."""

    def __init__(self, number: int | None, when: str) -> None:
        super().__init__(when)
        self.number = number


def main() -> int:
    """Run one attempt of the run that the environment names and return the exit code.

    0: done, stopped by a rule, superseded, or nothing to do; 1: failed; 143: cancelled.
    """
    signals = block_signals()
    try:
        if not _follow_parent():
            raise Stopped(None, "its dispatcher is gone")
        run_dir, submission_id = _required(RUN_DIR_ENV), _required(SUBMISSION_ENV)
        return run_attempt(RunPaths(Path(run_dir).absolute()), submission_id, signals)
    except Stopped as reason:
        say(f"cancelled before it began: {reason}")
        return EXIT_CANCELLED
    except (HarnessError, OSError) as error:
        return say_error(error)


def run_attempt(
    paths: RunPaths, submission_id: str, signals: Signals, job: SlurmJob | None = None
) -> int:
    """Wait for the run's earlier attempts, run the next one and return the exit code.

    Args:
        signals: blocked already.
        job: the SLURM job that was started for this run; None on a local queue.

    Raises:
        HarnessError, OSError: before an attempt began, or its end can't be recorded.
    """
    try:
        assignment = find_assignment(paths, submission_id)
        try:
            return _run(paths, assignment, signals, job)
        except Stopped as reason:
            return _end_unclaimed(paths, assignment, signals, job, reason)
    except NoWork as reason:
        say(f"nothing to do: {reason}")
        return EXIT_OK


def say_error(error: HarnessError | OSError) -> int:
    """Write what went wrong to stderr; return the exit code."""
    if isinstance(error, HarnessError):
        say(f"error: {error.message}")
    elif error.filename is None:
        say(f"error: {error}")
    else:
        say(f"error: `{error.filename}`: {error.strerror}")
    return EXIT_FAILED


def _run(paths: RunPaths, assignment: Assignment, signals: Signals, job: SlurmJob | None) -> int:
    def pause(seconds: float) -> None:
        number = signals.take(seconds)
        if number in STOPS | WARNINGS:
            raise Stopped(number, "while an earlier attempt was still ending")

    record = read_record(RunRecord, paths.record)
    if job is not None and CancelRequests(paths, assignment).is_asked():
        raise Stopped(None, "a request asks for it")
    number = wait_for_previous(paths, assignment, pause)
    assignment = find_assignment(paths, assignment.intent.id)  # the other may have done it
    if job is not None:
        pause(0.0)
    recorder = AttemptRecorder(paths, create_claim(paths, assignment, number, job), record)
    if job is None:
        return _work(recorder, assignment, signals)
    return _work_in_job(recorder, assignment, signals, job)


def _end_unclaimed(
    paths: RunPaths,
    assignment: Assignment,
    signals: Signals,
    job: SlurmJob | None,
    reason: Stopped,
) -> int:
    """End a runner that was told to stop before it claimed anything."""
    may_return = reason.number not in (None, signal.SIGINT)
    if job is not None and may_return and not CancelRequests(paths, assignment).is_asked():
        past = past_exits(paths, assignment.intent.id)
        if requeue_unclaimed(job, assignment, past, signals):
            say(f"stopped before it began, and SLURM starts the job again: {reason}")
            return EXIT_OK
    say(f"cancelled before it began: {reason}")
    return EXIT_CANCELLED


def _work(recorder: AttemptRecorder, assignment: Assignment, signals: Signals) -> int:
    """Run the claimed attempt. Whatever happens, no process and no attempt without end is left."""
    try:
        trainer = _start(recorder, assignment, signals)
        ending = supervise(
            trainer,
            signals=signals,
            grace_s=lambda _number: assignment.grace_s,
            every_s=HEARTBEAT_EVERY_S,
            beat=recorder.beat,
            gap_limit_s=assignment.heartbeat_limit_s,
            is_superseded=recorder.is_superseded,
        )
    except Exception as failure:
        kill_descendants()
        recorder.write_exit(FAILED, _explain_error(failure, _log(recorder)))
        return EXIT_FAILED
    _finish(recorder, ending)
    reason = recorder.end(ending)
    return {FAILED: EXIT_FAILED, CANCELLED: EXIT_CANCELLED}.get(reason, EXIT_OK)


def _work_in_job(
    recorder: AttemptRecorder, assignment: Assignment, signals: Signals, job: SlurmJob
) -> int:
    """Run the claimed attempt in a SLURM job; the job is started again where that is decided."""
    recorder.watch_stalls(
        assignment.stall_limit_s, is_reason=assignment.settings.get("stall_action") == "requeue"
    )
    recorder.is_cancelled = CancelRequests(recorder.paths, assignment).poll
    watch = JobWatch(job, assignment.grace_s)
    guardian: Guardian | None = None
    error = ""
    try:
        guardian = start_guardian(_marks(recorder.paths, recorder.claim))
        trainer = _start(recorder, assignment, signals)
        ending = supervise(
            trainer,
            signals=signals,
            grace_s=watch.grace,
            every_s=HEARTBEAT_EVERY_S,
            beat=recorder.beat,
            gap_limit_s=assignment.heartbeat_limit_s,
            is_superseded=recorder.is_superseded,
            settle_s=_SETTLE_S,
        )
    except Exception as failure:
        kill_descendants()
        ending, error = Ending(None, None, None, ()), _explain_error(failure, _log(recorder))
    if guardian is not None:
        guardian.dismiss()
    _finish(recorder, ending)
    return exit_code(conclude(recorder, ending, error, assignment, job, watch, signals))


def _start(
    recorder: AttemptRecorder, assignment: Assignment, signals: Signals
) -> subprocess.Popen[bytes]:
    paths, claim = recorder.paths, recorder.claim
    adopt_orphans()
    command = _trainer_command(paths, recorder.record, claim)
    env = _trainer_env(paths, claim, command)
    trainer = start_trainer(command, env, _log(recorder), signals)
    recorder.trainer_pid = trainer.pid
    recorder.stop_watch = _stop_watch(recorder, assignment)
    return trainer


def _stop_watch(recorder: AttemptRecorder, assignment: Assignment) -> StopWatch | None:
    """Return what looks for stop rules; None where none may stop the attempt."""
    intent, claim = assignment.intent, recorder.claim
    rules = [rule for rule in intent.stop_when if rule.text in claim.stop_when]
    if not rules or intent.analysis is None:
        return None
    return StopWatch(recorder.paths, recorder.record, rules, intent.analysis, claim.max_steps, say)


def _finish(recorder: AttemptRecorder, ending: Ending) -> None:
    if ending.survivors:
        say(f"warning: SIGKILL did not end {', '.join(map(str, ending.survivors))}")
    recorder.stop_watch = None
    recorder.beat()


def _log(recorder: AttemptRecorder) -> Path:
    return recorder.paths.attempt(recorder.claim.attempt).log


def _explain_error(error: Exception, log: Path) -> str:
    if isinstance(error, HarnessError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, OSError):
        return f"the trainer can't be started: {error}"
    with log.open("a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    return f"the runner failed: {type(error).__name__}: {error}"


def _trainer_command(paths: RunPaths, record: RunRecord, claim: Claim) -> Command:
    paths.trainer_dir.mkdir(exist_ok=True)
    paths.sweep.shared_dir.mkdir(exist_ok=True)
    code = paths.sweep.code(claim.code_hash)
    frozen = read_record_if_there(CodeRecord, code.record)
    launch = Launch(
        paths=paths,
        config=read_json(paths.config),
        name=RunName(record.sweep, record.arm, record.seed, record.identity, record.nonce),
        attempt=claim.attempt,
        max_steps=claim.max_steps,
        inputs_dir=paths.attempt(claim.attempt).inputs_dir,
        program_dir=code.program_dir if code.program_dir.is_dir() else None,
        program_stamp=None if frozen is None else frozen.program_stamp,
        code_hash=claim.code_hash,
        start=find_start(paths, record),
    )
    return load_trainer(record.trainer).command(launch)


def _marks(paths: RunPaths, claim: Claim) -> dict[str, str]:
    """Return what tells an attempt's processes from all others."""
    return {
        RUN_DIR_ENV: str(paths.root),
        SUBMISSION_ENV: claim.submission,
        ATTEMPT_ENV: str(claim.attempt),
    }


def _trainer_env(paths: RunPaths, claim: Claim, command: Command) -> Mapping[str, str]:
    env = {name: value for name, value in os.environ.items() if name != PARENT_PID_ENV}
    env.setdefault("PYTHONUNBUFFERED", "1")  # a killed trainer's last words reach the log
    env |= _marks(paths, claim) | {
        MAX_STEPS_ENV: str(claim.max_steps),
        SHARED_DIR_ENV: str(paths.sweep.shared_dir),
    }
    return env | dict(command.env)


def _follow_parent() -> bool:
    """Make the death of the dispatcher (where it asked for that) a SIGTERM to this process."""
    parent_pid = os.environ.get(PARENT_PID_ENV, "")
    return not parent_pid.isdecimal() or end_with_parent(int(parent_pid), signal.SIGTERM)


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise HarnessError(f"`{name}` is not set: runners are started by a dispatcher")
    return value
