"""Whole attempts: a real runner process over small real programs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.records.files import create_exclusive, read_json, to_json, write_json
from harness.records.model import to_record
from harness.runner.process import host_name, process_start

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep, RunnerProcess

    MakeSweep = Callable[..., DiskSweep]
    WaitUntil = Callable[..., None]

TRAINS = ("trains", "METRICS", "0")
TRAINS_SLOWLY = ("trains", "METRICS", "0.05")


def is_gone(pid: int) -> bool:
    return process_start(pid) == ""


def trainer_pid(sweep: DiskSweep, arm: str, attempt: int = 1) -> int | None:
    beat = sweep.heartbeat(arm, attempt)
    return None if beat is None else beat.trainer_pid


def test_run_that_reaches_max_steps_is_done(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, max_steps=5)
    submission = sweep.submit()
    code, _, err = sweep.start_runner("ok", submission).wait()
    assert (code, err) == (0, "")
    claim, ended, beat = sweep.claim("ok"), sweep.exit("ok"), sweep.heartbeat("ok")
    assert (claim.attempt, claim.submission, claim.nonce) == (
        1,
        submission.intent.id,
        submission.intent.nonce,
    )
    assert claim.host == host_name()
    assert set(claim.machine) == {
        "hostname",
        "platform",
        "python",
        "cpu_model",
        "cores",
        "gpus",
        "versions",
    }
    assert (ended.reason, ended.code, ended.signal, ended.error) == ("done", 0, None, "")
    assert (ended.last_step, ended.max_steps, ended.nodes) == (5, 5, (host_name(),))
    assert beat is not None
    assert (beat.step, beat.tokens, beat.mismatch_kl, beat.solve_rate) == (5, 50, 0.005, 0.5)
    log = sweep.run("ok").attempt(1).log.read_text()
    assert log == "step 1\nstep 2\nstep 3\nstep 4\nstep 5\n"


def test_failed_run_names_its_exception_not_the_last_line(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"bad": ("raises", "METRICS")})
    code, _, _ = sweep.start_runner("bad", sweep.submit()).wait()
    ended = sweep.exit("bad")
    assert code == 1
    assert (ended.reason, ended.code, ended.signal, ended.last_step) == ("failed", 3, None, 2)
    assert ended.error == "ValueError: the batch is empty"


def test_exit_0_before_max_steps_is_a_failure(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"early": ("stops_early", "METRICS")}, max_steps=100)
    code, _, _ = sweep.start_runner("early", sweep.submit()).wait()
    ended = sweep.exit("early")
    assert (code, ended.reason, ended.code) == (1, "failed", 0)
    assert ended.error == "exited 0 at step 12 of 100"


def test_exit_0_without_metrics_is_a_failure(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"silent": TRAINS}, trainer={"metrics": "elsewhere.jsonl"})
    sweep.start_runner("silent", sweep.submit()).wait()
    ended = sweep.exit("silent")
    assert (ended.reason, ended.last_step) == ("failed", None)
    assert ended.error == "exited 0 without a logged step, of 3"


def test_trainer_killed_by_a_signal_is_a_failure_that_names_it(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"oom": ("kills_itself",)})
    sweep.start_runner("oom", sweep.submit()).wait()
    ended = sweep.exit("oom")
    assert (ended.reason, ended.code, ended.signal) == ("failed", None, signal.SIGKILL)
    assert ended.error == "killed by SIGKILL"


def test_program_that_does_not_exist_is_a_failure_with_its_name(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"typo": TRAINS})
    config = read_json(sweep.run("typo").config)
    config["trainer"]["argv"] = ["no-such-program"]
    write_json(sweep.run("typo").config, config)
    code, _, _ = sweep.start_runner("typo", sweep.submit()).wait()
    ended = sweep.exit("typo")
    assert (code, ended.reason, ended.code, ended.signal) == (1, "failed", None, None)
    assert ended.error.startswith("the trainer can't be started: ")
    assert "'no-such-program'" in ended.error


def test_rubbish_in_the_metrics_hides_no_step(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"rubbish": ("writes_rubbish", "METRICS")}, max_steps=8)
    sweep.start_runner("rubbish", sweep.submit()).wait()
    beat = sweep.heartbeat("rubbish")
    assert sweep.exit("rubbish").reason == "done"
    assert beat is not None
    assert (beat.step, beat.mismatch_kl) == (8, 0.25)


def test_sigterm_stops_the_trainer_and_is_recorded_as_cancelled(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=10_000)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(lambda: trainer_pid(sweep, "ok"))
    wait_until(sweep.run("ok").metrics.exists)
    runner.process.send_signal(signal.SIGTERM)
    code, _, _ = runner.wait()
    ended = sweep.exit("ok")
    assert (code, ended.reason, ended.code, ended.signal) == (143, "cancelled", 143, None)


def test_trainer_that_ignores_sigterm_is_killed_after_the_grace(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"deaf": ("ignores_sigterm", "METRICS")})
    runner = sweep.start_runner("deaf", sweep.submit(grace_s=0.5))
    wait_until(sweep.run("deaf").metrics.exists)
    runner.process.send_signal(signal.SIGTERM)
    code, _, _ = runner.wait()
    ended = sweep.exit("deaf")
    assert (code, ended.reason, ended.signal) == (143, "cancelled", signal.SIGKILL)


def test_sigint_while_stopping_ends_the_grace(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"deaf": ("ignores_sigterm", "METRICS")})
    runner = sweep.start_runner("deaf", sweep.submit(grace_s=3600.0))
    wait_until(sweep.run("deaf").metrics.exists)
    runner.process.send_signal(signal.SIGTERM)
    runner.process.send_signal(signal.SIGINT)
    runner.wait()
    assert sweep.exit("deaf").signal == signal.SIGKILL


@pytest.mark.parametrize("ending", ["exit", "stay"])
def test_grandchild_in_its_own_session_does_not_outlive_the_attempt(
    make_sweep: MakeSweep, wait_until: WaitUntil, tmp_path: Path, ending: str
) -> None:
    pid_file = tmp_path / "grandchild.pid"
    sweep = make_sweep({"leaves": ("leaves_grandchild", "METRICS", str(pid_file), ending)})
    runner = sweep.start_runner("leaves", sweep.submit())
    wait_until(sweep.run("leaves").metrics.exists)
    if ending == "stay":
        runner.process.send_signal(signal.SIGTERM)
    runner.wait()
    assert sweep.exit("leaves").reason == ("done" if ending == "exit" else "cancelled")
    assert is_gone(int(pid_file.read_text()))


def test_trainer_dies_with_a_killed_runner(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=10_000)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(lambda: trainer_pid(sweep, "ok"))
    pid = trainer_pid(sweep, "ok")
    assert pid is not None
    assert not is_gone(pid)
    runner.process.kill()
    runner.wait()
    wait_until(lambda: is_gone(pid), "the trainer's end")
    assert not sweep.run("ok").attempt(1).exit.exists()


def test_next_attempt_resumes_at_once_after_a_runner_of_this_machine_was_killed(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0.01")}, max_steps=60)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(lambda: sweep.run("ok").metrics.exists() and trainer_pid(sweep, "ok"))
    runner.process.kill()
    runner.wait()
    code, _, _ = sweep.start_runner("ok", sweep.submit()).wait()
    assert code == 0
    assert [a.number for a in sweep.run("ok").attempts()] == [1, 2]
    assert (sweep.exit("ok", 2).reason, sweep.exit("ok", 2).last_step) == ("done", 60)


def test_two_runners_of_one_run_race_and_exactly_one_works(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=20)
    submission = sweep.submit()
    runners = [sweep.start_runner("ok", submission) for _ in range(2)]
    ends = [runner.wait() for runner in runners]
    assert [code for code, _, _ in ends] == [0, 0]
    assert sorted("nothing to do" in err for _, _, err in ends) == [False, True]
    assert [a.number for a in sweep.run("ok").attempts()] == [1]
    assert len(sweep.run("ok").metrics.read_text().splitlines()) == 20


def test_runner_that_waited_for_another_which_finished_does_nothing(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=30)
    submission = sweep.submit()
    first = sweep.start_runner("ok", submission)
    wait_until(lambda: trainer_pid(sweep, "ok"))
    second = sweep.start_runner("ok", submission)
    assert first.wait()[0] == 0
    code, _, err = second.wait()
    assert (code, len(sweep.run("ok").attempts())) == (0, 1)
    assert "attempt 1 has done 30 steps already" in err


def test_runner_of_an_older_submission_does_nothing(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    older = sweep.submit()
    newer = sweep.submit()
    code, _, err = sweep.start_runner("ok", older).wait()
    assert code == 0
    assert f"submission {newer.paths.id} is newer than {older.paths.id}" in err
    assert sweep.run("ok").attempts() == []


def test_newer_submission_of_other_runs_changes_nothing(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS, "other": TRAINS})
    older = sweep.submit(["ok"])
    sweep.submit(["other"])
    sweep.start_runner("ok", older).wait()
    assert sweep.exit("ok").reason == "done"


def test_done_run_is_left_alone_until_max_steps_is_raised(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, max_steps=3)
    submission = sweep.submit()
    sweep.start_runner("ok", submission).wait()
    code, _, err = sweep.start_runner("ok", submission).wait()
    assert (code, len(sweep.run("ok").attempts())) == (0, 1)
    assert "attempt 1 has done 3 steps already" in err
    sweep.replan({"ok": TRAINS}, max_steps=6)
    sweep.start_runner("ok", sweep.submit()).wait()
    assert (sweep.exit("ok", 2).reason, sweep.exit("ok", 2).max_steps) == ("done", 6)
    rows = sweep.run("ok").metrics.read_text().splitlines()
    assert [f'"step": {step},' in row for step, row in enumerate(rows, 1)] == [True] * 6


def test_runner_that_sees_a_newer_claim_stops_its_trainer(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=10_000)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(lambda: trainer_pid(sweep, "ok"))
    pid = trainer_pid(sweep, "ok")
    assert pid is not None
    claim_next(sweep, "ok")
    code, _, _ = runner.wait()
    assert (code, sweep.exit("ok").reason) == (0, "superseded")
    assert is_gone(pid)


def test_superseded_trainer_gets_no_grace(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"deaf": ("ignores_sigterm", "METRICS")})
    runner = sweep.start_runner("deaf", sweep.submit(grace_s=3600.0))
    wait_until(lambda: trainer_pid(sweep, "deaf"))
    claim_next(sweep, "deaf")
    runner.wait()
    ended = sweep.exit("deaf")
    assert (ended.reason, ended.signal) == ("superseded", signal.SIGKILL)


def freeze(sweep: DiskSweep, runner: RunnerProcess, wait_until: WaitUntil) -> int:
    """Stop runner and trainer for longer than the limit of silence; returns the trainer's pid."""
    wait_until(lambda: trainer_pid(sweep, "ok") and sweep.run("ok").metrics.exists())
    pid = trainer_pid(sweep, "ok")
    assert pid is not None
    for process in (runner.pid, pid):
        os.kill(process, signal.SIGSTOP)
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() - frozen > 0.6, "more than the limit of silence")
    return pid


def test_job_that_was_frozen_writes_nothing_more_once_it_is_superseded(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0.01")}, max_steps=1_000_000)
    runner = sweep.start_runner("ok", sweep.submit(heartbeat_limit_s=0.5))
    freeze(sweep, runner, wait_until)
    claim_next(sweep, "ok")
    before = sweep.run("ok").metrics.read_text()
    os.kill(runner.pid, signal.SIGCONT)
    runner.wait()
    assert (sweep.exit("ok").reason, sweep.exit("ok").signal) == ("superseded", signal.SIGKILL)
    assert sweep.run("ok").metrics.read_text() == before


def test_job_that_was_frozen_goes_on_where_nobody_took_over(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0.01")}, max_steps=200)
    runner = sweep.start_runner("ok", sweep.submit(heartbeat_limit_s=0.5))
    pid = freeze(sweep, runner, wait_until)
    for process in (runner.pid, pid):
        os.kill(process, signal.SIGCONT)
    assert runner.wait()[0] == 0
    assert sweep.exit("ok").reason == "done"


def claim_next(sweep: DiskSweep, arm: str) -> None:
    other = to_record(sweep.claim(arm)) | {"attempt": 2, "host": "another-node"}
    assert create_exclusive(sweep.run(arm).attempt(2).claim, to_json(other))


def test_resumed_attempt_records_where_it_went_on(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, max_steps=3)
    sweep.start_runner("ok", sweep.submit()).wait()
    assert sweep.exit("ok").first_step == 1
    sweep.replan({"ok": TRAINS}, max_steps=5)
    sweep.start_runner("ok", sweep.submit()).wait()
    beat = sweep.heartbeat("ok", 2)
    assert beat is not None
    assert (beat.first_step, beat.step, beat.stalled_since) == (4, 5, None)
    assert (sweep.exit("ok", 2).first_step, sweep.exit("ok", 2).requeue) == (4, False)


def test_runner_waits_for_the_heartbeat_of_another_machine_to_age_out(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": TRAINS})
    sweep.start_runner("ok", sweep.submit()).wait()
    attempt = sweep.run("ok").attempt(1)
    attempt.exit.unlink()
    claim = to_record(sweep.claim("ok")) | {"host": "another-node"}
    write_json(attempt.claim, claim)
    write_json(attempt.heartbeat, read_json(attempt.heartbeat) | {"time": time.time()})
    runner = sweep.start_runner("ok", sweep.submit(heartbeat_limit_s=5.0))
    wait_until(lambda: "HARNESS_RUN_DIR" in _environment(runner.pid))
    runner.process.send_signal(signal.SIGTERM)
    code, _, err = runner.wait()
    assert code in (143, -signal.SIGTERM)
    assert [a.number for a in sweep.run("ok").attempts()] == [1]
    code, _, err = sweep.start_runner("ok", sweep.submit(heartbeat_limit_s=0.5)).wait()
    assert code == 0, err
    assert [a.number for a in sweep.run("ok").attempts()] == [1, 2]


def test_heartbeat_that_cannot_be_written_is_survived_with_a_warning(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"full": ("blocks_record", "METRICS", "heartbeat.json")})
    code, _, err = sweep.start_runner("full", sweep.submit()).wait()
    assert (code, sweep.exit("full").reason) == (0, "done")
    assert err.count("heartbeat.json") == 1
    assert "warning: " in err


def test_exit_record_that_cannot_be_written_is_told_loudly(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"full": ("blocks_record", "METRICS", "exit.json")})
    code, _, err = sweep.start_runner("full", sweep.submit()).wait()
    assert code == 1
    [line] = err.splitlines()
    assert "exit.json` can't be written" in line
    assert line.endswith("the attempt ended: done")


def test_runner_without_a_run_names_the_variable(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    submission = sweep.submit()
    (submission.paths.intent).unlink()
    code, _, err = sweep.start_runner("ok", submission).wait()
    assert code == 1
    assert err.startswith(f"harness.runner: error: submission `{submission.paths.id}` doesn't list")
    assert "Traceback" not in err


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_trainer_gets_the_contract_in_its_environment(
    make_sweep: MakeSweep, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_CACHE_DIR")  # set for all tests, no part of the contract
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=10_000, trainer={"env": {"A": "s{seed}"}})
    submission = sweep.submit()
    runner = sweep.start_runner("ok", submission)
    wait_until(sweep.run("ok").metrics.exists)
    wait_until(lambda: trainer_pid(sweep, "ok"))
    pid = trainer_pid(sweep, "ok")
    assert pid is not None
    env = dict(item.partition("=")[::2] for item in _environment(pid).split("\0") if item)
    assert {name: value for name, value in env.items() if name.startswith("HARNESS_")} == {
        "HARNESS_RUN_DIR": str(sweep.run("ok").root),
        "HARNESS_SUBMISSION": submission.paths.id,
        "HARNESS_ATTEMPT": "1",
        "HARNESS_MAX_STEPS": "10000",
        "HARNESS_SHARED_DIR": str(sweep.paths.shared_dir),
    }
    assert env["A"] == "s0"
    assert os.getsid(pid) == pid != os.getsid(runner.pid)
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    runner.process.send_signal(signal.SIGTERM)
    runner.wait()
