"""One attempt from its claim to its exit record."""

from __future__ import annotations

import os
import signal
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
from harness.records.model import Claim, RunRecord, read_record
from harness.runner.claim import (
    HEARTBEAT_EVERY_S,
    Assignment,
    NoWork,
    create_claim,
    find_assignment,
    wait_for_previous,
)
from harness.runner.process import (
    PARENT_PID_ENV,
    adopt_orphans,
    end_with_parent,
    kill_descendants,
)
from harness.runner.record import FAILED, AttemptRecorder, say
from harness.runner.supervise import (
    CANCELLED,
    block_signals,
    next_signal,
    start_trainer,
    supervise,
)
from harness.trainers.interface import Command, Launch
from harness.trainers.registry import load_trainer

EXIT_OK, EXIT_FAILED, EXIT_CANCELLED = 0, 1, 128 + signal.SIGTERM


class _Cancelled(Exception):
    """Asked to stop before the attempt began."""


def main() -> int:
    """Run one attempt of the run that the environment names and return the exit code.

    0: done, superseded, or nothing to do; 1: failed; 143: cancelled.
    """
    mask = block_signals()
    try:
        if not _follow_parent():
            raise _Cancelled("its dispatcher is gone")
        run_dir, submission_id = _required(RUN_DIR_ENV), _required(SUBMISSION_ENV)
        paths = RunPaths(Path(run_dir).absolute())
        assignment = find_assignment(paths, submission_id)
        record = read_record(RunRecord, paths.record)
        number = wait_for_previous(paths, assignment, _pause)
        assignment = find_assignment(paths, submission_id)  # the other may have done it
        claim = create_claim(paths, assignment, number)
        return _work(AttemptRecorder(paths, claim, record), assignment, mask)
    except NoWork as reason:
        say(f"nothing to do: {reason}")
        return EXIT_OK
    except _Cancelled as reason:
        say(f"cancelled before it began: {reason}")
        return EXIT_CANCELLED
    except HarnessError as error:
        say(f"error: {error.message}")
        return EXIT_FAILED
    except OSError as error:
        say(f"error: {error}")
        return EXIT_FAILED


def _work(recorder: AttemptRecorder, assignment: Assignment, mask: set[signal.Signals]) -> int:
    """Run the claimed attempt. Whatever happens, no process and no attempt without end is left."""
    paths, claim = recorder.paths, recorder.claim
    log = paths.attempt(claim.attempt).log
    try:
        adopt_orphans()
        command = _trainer_command(paths, recorder.record, claim)
        trainer = start_trainer(command, _trainer_env(paths, claim, command), log, mask)
        recorder.trainer_pid = trainer.pid
        ending = supervise(
            trainer, grace_s=assignment.grace_s, every_s=HEARTBEAT_EVERY_S, beat=recorder.beat
        )
    except Exception as error:
        kill_descendants()
        recorder.write_exit(FAILED, _explain_error(error, log))
        return EXIT_FAILED
    recorder.beat()
    reason = recorder.end(ending)
    return {FAILED: EXIT_FAILED, CANCELLED: EXIT_CANCELLED}.get(reason, EXIT_OK)


def _explain_error(error: Exception, log: Path) -> str:
    if isinstance(error, HarnessError):
        return error.message
    if isinstance(error, OSError):
        return f"the trainer can't be started: {error}"
    with log.open("a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    return f"the runner failed: {type(error).__name__}: {error}"


def _trainer_command(paths: RunPaths, record: RunRecord, claim: Claim) -> Command:
    paths.trainer_dir.mkdir(exist_ok=True)
    paths.sweep.shared_dir.mkdir(exist_ok=True)
    program_dir = paths.sweep.code(claim.code_hash).program_dir
    launch = Launch(
        paths=paths,
        config=read_json(paths.config),
        sweep=record.sweep,
        arm=record.arm,
        seed=record.seed,
        attempt=claim.attempt,
        max_steps=claim.max_steps,
        program_dir=program_dir if program_dir.is_dir() else None,
    )
    return load_trainer(record.trainer).command(launch)


def _trainer_env(paths: RunPaths, claim: Claim, command: Command) -> Mapping[str, str]:
    env = {name: value for name, value in os.environ.items() if name != PARENT_PID_ENV}
    env.setdefault("PYTHONUNBUFFERED", "1")  # a killed trainer's last words reach the log
    env |= {
        RUN_DIR_ENV: str(paths.root),
        SUBMISSION_ENV: claim.submission,
        ATTEMPT_ENV: str(claim.attempt),
        MAX_STEPS_ENV: str(claim.max_steps),
        SHARED_DIR_ENV: str(paths.sweep.shared_dir),
    }
    return env | dict(command.env)


def _follow_parent() -> bool:
    """Make the death of the dispatcher (where it asked for that) a SIGTERM to this process."""
    parent_pid = os.environ.get(PARENT_PID_ENV, "")
    return not parent_pid.isdecimal() or end_with_parent(int(parent_pid), signal.SIGTERM)


def _pause(seconds: float) -> None:
    if next_signal(seconds) in (signal.SIGTERM, signal.SIGINT):
        raise _Cancelled("while an earlier attempt was still ending")


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise HarnessError(f"`{name}` is not set: runners are started by a dispatcher")
    return value
