"""States that a real SLURM shows, told from records that are written by hand.

Each sweep has one submission with one job array, whose elements run lines of bash in place of a
runner; the claims and ends of attempts are the test's. Shims (scripts that stand on the PATH before
SLURM's) are used only for what a cluster can't be made to show in a test's time, and say so.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.dispatch.requests import write_cancel_request
from harness.errors import UsageError
from harness.records.files import write_json
from harness.records.model import to_record
from harness.runner.process import process_start
from harness.scheduler.jobs import SACCT_FIELDS, SEPARATOR, SQUEUE_FIELDS
from harness.state.clean import clean
from harness.state.explain import explain, find_log, read_last_lines
from harness.state.jobs import JobTable
from harness.state.status import RunState, may_resubmit
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.handmade import LATER_S, SLEEP, SlurmSweep, make_slurm_sweep

Make = Callable[..., SlurmSweep]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SlurmSweep]:
    """Make a sweep of so many runs on a cluster: `make(cluster, 3)`."""
    shims_dir = tmp_path / "shims"
    monkeypatch.setenv("PATH", f"{shims_dir}{os.pathsep}{os.environ['PATH']}")

    def make_sweep(cluster: Cluster, num_runs: int, name: str = "toy") -> SlurmSweep:
        monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
        return make_slurm_sweep(tmp_path / "outputs" / name, cluster, num_runs, shims_dir)

    return make_sweep


def squeue_line(**values: str) -> str:
    """A line of squeue for a shim."""
    return "".join(values.get(name, "0") + SEPARATOR for name in SQUEUE_FIELDS)


def sacct_line(**values: str) -> str:
    return SEPARATOR.join(values.get(name, "0") for name in SACCT_FIELDS)


def test_from_the_queue_to_an_end_from_outside(cluster: Cluster, make: Make) -> None:
    sweep = make(cluster, 5)
    sweep.sbatch(SLEEP, "--array=0-4%2", "--time=7")
    wait_until(lambda: sweep.reasons()[:2] == ["starting on gpu01"] * 2)
    assert sweep.states() == ["queued"] * 5
    assert sweep.reasons()[2:] == ["JobArrayTaskLimit"] * 3
    first, *_, last = sweep.statuses()
    assert (first.job_id, first.node, first.limit_s) == (sweep.element(0), "gpu01", 420.0)
    assert (last.job_id, last.node, last.submission) == (
        sweep.element(4),
        None,
        sweep.submission.paths.id,
    )
    assert (last.profile_type, may_resubmit(last)) == ("slurm", False)

    sweep.claim(0)
    assert sweep.states()[0] == "running"
    assert sweep.states(later_s=LATER_S) == ["stalled", "stalled", "queued", "queued", "queued"]

    sweep.scancel(2)
    assert sweep.states(later_s=LATER_S)[2] == "cancelled"
    assert sweep.reasons(later_s=LATER_S)[2] == "taken out of the queue before it began"
    cluster.run("scontrol", "hold", sweep.element(3), sweep.element(4))
    wait_until(lambda: sweep.reasons()[3].startswith("JobHeld"))
    sweep.scancel(0)
    sweep.wait("cancelled", "stalled", "cancelled", "queued", "queued", later_s=LATER_S)
    cluster.run("scancel", sweep.job_id)
    sweep.wait(*["cancelled"] * 5, later_s=LATER_S)
    assert all(may_resubmit(status) for status in sweep.statuses(later_s=LATER_S))


def test_elements_that_never_started_are_cancelled_with_all_jobs_of_the_user(
    cluster: Cluster, make: Make
) -> None:
    """SLURM then keeps one job for all of them, without their indices."""
    sweep = make(cluster, 3)
    sweep.sbatch(SLEEP, "--hold")
    cluster.run("scancel", f"--user={getpass.getuser()}")
    sweep.wait(*["cancelled"] * 3)


def test_jobs_that_end_without_a_record(cluster: Cluster, make: Make) -> None:
    sweep = make(cluster, 4)
    lines = (
        "echo starting; exit 0",
        "echo 'python: command not found' >&2; exit 127",
        "kill -9 $$",
        "exit 3",
    )
    sweep.sbatch(
        "\n".join(f"[ $SLURM_ARRAY_TASK_ID = {i} ] && {{ {lines[i]}; }}" for i in range(4))
    )
    sweep.wait("lost", "failed", "failed", "failed")
    assert sweep.reasons() == [
        f"job {sweep.element(0)}: ended without an exit record",
        f"job {sweep.element(1)}: exit code 127",
        f"job {sweep.element(2)}: killed by signal 9, JobLaunchFailure",
        f"job {sweep.element(3)}: exit code 3",
    ]
    told = explain(sweep.disk.run("a1"))
    assert told.status.state is RunState.FAILED
    assert told.tail == ("python: command not found",)
    assert told.job is not None
    assert (told.job.state, told.job.exit_code) == ("FAILED", "127:0")
    log = find_log(sweep.disk.run("a0"))
    assert log is not None
    assert read_last_lines(log, 5) == ["starting"]


def test_records_come_before_slurm_s_word(cluster: Cluster, make: Make) -> None:
    sweep = make(cluster, 4)
    sweep.sbatch("exit 1")
    sweep.wait(*["failed"] * 4)
    sweep.end(0, "done", last_step=100)
    sweep.end(1, "failed", error="ValueError: no")
    sweep.end(2, "out_of_memory")
    sweep.claim(3)
    assert sweep.states() == ["done", "failed", "out_of_memory", "running"]
    assert sweep.reasons()[1] == "ValueError: no"
    assert sweep.states(later_s=LATER_S)[3] == "failed"


def test_requeued_job_waits_and_starts_again(cluster: Cluster, make: Make) -> None:
    sweep = make(cluster, 2)
    sweep.sbatch()
    sweep.claim(0)
    wait_until(lambda: sweep.reasons(later_s=LATER_S)[1].startswith("on gpu01"))
    for index in (0, 1):
        cluster.run("scontrol", "requeue", sweep.element(index))
    wait_until(lambda: sweep.reasons(later_s=LATER_S) == ["BeginTime", "BeginTime"])
    assert sweep.states(later_s=LATER_S) == ["requeued", "queued"]
    assert not any(may_resubmit(status) for status in sweep.statuses(later_s=LATER_S))
    sweep.end(0, "failed", requeue=True)
    assert sweep.states() == ["requeued", "queued"]
    sweep.scancel(0, 1)
    sweep.wait("cancelled", "cancelled")


def test_suspended_job_is_no_end(plain_cluster: Cluster, make: Make) -> None:
    sweep = make(plain_cluster, 1)
    sweep.sbatch()
    sweep.claim(0)
    plain_cluster.wait_for_job_state(sweep.element(0), "RUNNING")
    plain_cluster.run("scontrol", "suspend", sweep.element(0))
    sweep.wait("stalled", later_s=LATER_S)
    assert sweep.reasons(later_s=LATER_S) == ["suspended by SLURM"]
    plain_cluster.run("scontrol", "resume", sweep.element(0))
    wait_until(lambda: sweep.reasons(later_s=LATER_S)[0].startswith("no sign of life from gpu01"))


def test_preemption_time_limit_and_dead_nodes(plain_cluster: Cluster, make: Make) -> None:
    """All at once, as SLURM takes its time for each."""
    options = {
        "preempted": ("--partition=low", "--nodelist=gpu01", "--exclusive"),
        "on a dead node": ("--nodelist=gpu02",),
        "not to come back": ("--nodelist=gpu03", "--no-requeue"),
        "overdue": ("--nodelist=gpu04",),
    }
    sweeps = {name: make(plain_cluster, 1, name.replace(" ", "_")) for name in options}
    for name, sweep in sweeps.items():
        sweep.sbatch(SLEEP, *options[name])
    for sweep in sweeps.values():
        plain_cluster.wait_for_job_state(sweep.element(0), "RUNNING")
        sweep.claim(0)
    plain_cluster.kill_node("gpu02", with_jobs=True)
    plain_cluster.kill_node("gpu03", with_jobs=True)
    overdue = f"JobId={sweeps['overdue'].element(0)}"
    plain_cluster.run("scontrol", "update", overdue, "EndTime=now+1second")
    plain_cluster.sbatch("--partition=high", "--nodelist=gpu01", "--exclusive")
    sweeps["preempted"].wait("requeued", later_s=LATER_S)
    sweeps["overdue"].wait("timeout", later_s=LATER_S)
    sweeps["on a dead node"].wait("requeued", later_s=LATER_S)
    lost = sweeps["not to come back"]
    lost.wait("lost", later_s=LATER_S)
    assert lost.reasons(later_s=LATER_S) == [f"job {lost.element(0)}: NODE_FAIL, NodeDown"]


def test_out_of_memory(memory_cluster: Cluster, make: Make) -> None:
    sweep = make(memory_cluster, 2)
    sweep.sbatch("x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}", "--mem=60M")
    sweep.wait("out_of_memory", "out_of_memory")
    sweep.end(1, "failed", error="exited 137")
    assert sweep.states() == ["out_of_memory", "out_of_memory"]
    assert sweep.reasons()[1] == "exited 137"


def test_controller_that_does_not_answer_ends_nothing(plain_cluster: Cluster, make: Make) -> None:
    sweep = make(plain_cluster, 5)
    sweep.sbatch("--hold", "--hold")
    sweep.end(0, "done", last_step=100)
    sweep.end(1, "failed")
    sweep.claim(2)
    sweep.claim(3)
    silent = time.time() - LATER_S
    sweep.claim(3, time=silent)
    path = sweep.disk.run("a3").attempt(1).heartbeat
    path.unlink()
    plain_cluster.stop_controller()
    statuses = sweep.statuses()
    assert [status.state for status in statuses] == [
        RunState.DONE,
        RunState.FAILED,
        RunState.RUNNING,
        RunState.UNKNOWN,
        RunState.UNKNOWN,
    ]
    assert "SLURM doesn't answer: `squeue` failed: " in statuses[3].reason
    assert statuses[3].since == silent
    assert [may_resubmit(status) for status in statuses] == [False, True, False, False, False]
    plain_cluster.start_controller()
    sweep.wait("done", "requeued", "running", "requeued", "queued")


def test_accounting_tells_ends_that_squeue_has_forgotten(
    accounting_cluster: Cluster, make: Make
) -> None:
    sweep = make(accounting_cluster, 4)
    script = (
        f"[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 0; [ $SLURM_ARRAY_TASK_ID = 1 ] && exit 5; {SLEEP}"
    )
    sweep.sbatch(script)
    accounting_cluster.wait_for_job_state(sweep.element(3), "RUNNING")
    accounting_cluster.run("scontrol", "requeue", sweep.element(3))
    accounting_cluster.wait_for_job_state(sweep.element(3), "PENDING")
    sweep.scancel(2, 3)
    accounting_cluster.wait_for_job_state(sweep.element(2), "CANCELLED")
    sweep.forget()
    sweep.wait("lost", "failed", "cancelled", "cancelled")
    assert sweep.reasons()[0] == f"job {sweep.element(0)}: ended without an exit record"
    assert sweep.reasons()[1] == f"job {sweep.element(1)}: exit code 5"

    accounting_cluster.kill_dbd()
    assert sweep.states() == ["lost"] * 4
    assert sweep.reasons()[3] == f"SLURM no longer knows job {sweep.element(3)}"
    accounting_cluster.start_dbd()
    sweep.wait("lost", "failed", "cancelled", "cancelled")


def test_without_accounting_what_squeue_has_forgotten_is_lost(
    plain_cluster: Cluster, make: Make
) -> None:
    sweep = make(plain_cluster, 3)
    sweep.sbatch("exit 5")
    sweep.wait(*["failed"] * 3)
    sweep.end(1, "failed")
    write_cancel_request(sweep.submission.paths, ["a2/seed_0"])
    sweep.forget()
    assert sweep.states() == ["lost", "failed", "cancelled"]
    assert sweep.reasons()[0] == f"SLURM no longer knows job {sweep.element(0)}"


def test_job_that_a_killed_controller_lost_is_lost(accounting_cluster: Cluster, make: Make) -> None:
    """Its id may be given to another job, and accounting says for ever that it runs."""
    for name in "abcdef":
        sweep = make(accounting_cluster, 1, name)
        sweep.sbatch()
        accounting_cluster.wait_for_job_state(sweep.element(0), "RUNNING")
        accounting_cluster.kill_controller()
        accounting_cluster.start_controller()
        # The controller saves its jobs every few seconds: killed just after that it loses none.
        if _becomes_lost(sweep):
            break
        accounting_cluster.reset()
    assert sweep.states(later_s=LATER_S) == ["lost"]
    stranger = accounting_cluster.sbatch("--array=0", "--job-name=other@0a1b2c.0")
    if stranger == sweep.job_id:
        assert sweep.states(later_s=LATER_S) == ["lost"]


def _becomes_lost(sweep: SlurmSweep, deadline_s: float = 15.0) -> bool:
    try:
        wait_until(lambda: sweep.states(later_s=LATER_S) == ["lost"], deadline_s=deadline_s)
    except AssertionError:
        return False
    return True


def test_row_of_accounting_that_is_not_ours_is_no_end(plain_cluster: Cluster, make: Make) -> None:
    """Shims: an id that SLURM has given a second time."""
    sweep = make(plain_cluster, 1)
    sweep.write_receipt("accepted", "77")
    sweep.forget()
    ours = {
        "JobID": "77_0",
        "State": "COMPLETED",
        "User": getpass.getuser(),
        "Submit": str(int(time.time())),
        "JobName": "x",
        "Reason": "None",
    }
    for others in ({"Submit": "1500000000"}, {"User": "ada"}, {"JobName": "toy@ffffff.0"}):
        sweep.shim("sacct", f"echo '{sacct_line(**{**ours, **others})}'")
        assert sweep.reasons() == ["SLURM no longer knows job 77_0"]
    sweep.shim("sacct", f"echo '{sacct_line(**ours)}'")
    assert sweep.reasons() == ["job 77_0: ended without an exit record"]


@pytest.mark.parametrize("word", ["HIBERNATING", "SPECIAL_EXIT", "RESV_DEL_HOLD", "SIGNALING"])
def test_word_that_is_rare_or_new_is_no_end(plain_cluster: Cluster, make: Make, word: str) -> None:
    """Shim: a word that this cluster can't be made to say."""
    sweep = make(plain_cluster, 1)
    sweep.write_receipt("accepted", "77")
    line = squeue_line(
        ArrayJobID="77",
        ArrayTaskID="0",
        State=word,
        UserName=getpass.getuser(),
        SubmitTime=str(int(time.time())),
        StartTime=str(int(time.time())),
        Name=sweep.array.job_name,
    )
    sweep.shim("squeue", f"echo '{line}'")
    [status] = sweep.statuses()
    assert status.state is (RunState.UNKNOWN if word == "HIBERNATING" else RunState.QUEUED)
    assert not may_resubmit(status)


def test_slurm_is_asked_once_whatever_the_number_of_runs(
    accounting_cluster: Cluster, make: Make
) -> None:
    sweep = make(accounting_cluster, 8)
    sweep.sbatch("exit 1")
    sweep.wait(*["failed"] * 8)
    calls = sweep.count_calls()

    def count() -> list[str]:
        made: list[str] = calls.read_text().split()
        calls.write_text("")
        return made

    sweep.states()
    assert count() == ["squeue"]

    jobs = JobTable()
    sweep.shim("squeue", f'echo squeue >> "{calls}"')  # it has forgotten them
    for asked in (["squeue", "sacct"], ["squeue"]):
        wait_until(lambda: all(s.state == "failed" for s in sweep.statuses(jobs=jobs)))
        assert count()[-len(asked) :] == asked

    for index in range(8):
        sweep.end(index, "done", last_step=100)
    sweep.states()
    assert count() == []


def test_filters_of_the_user_s_shell_hide_no_job(
    plain_cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make(plain_cluster, 1)
    sweep.sbatch(SLEEP, "--hold")
    for name, value in {
        "SQUEUE_STATES": "COMPLETED",
        "SQUEUE_PARTITION": "high",
        "SQUEUE_FORMAT": "%i",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_BITSTR_LEN": "8",
    }.items():
        monkeypatch.setenv(name, value)
    assert (sweep.states(), sweep.reasons()) == (["queued"], ["JobHeldUser"])


def test_interrupted_submission(cluster: Cluster, make: Make) -> None:
    sweep = make(cluster, 1)
    intent = sweep.submission.intent
    [status] = sweep.statuses()
    assert (status.state, status.since) == (RunState.UNKNOWN, intent.time)
    assert status.reason == "interrupted submission"
    assert "`harness run toy`" in status.hint
    with pytest.raises(UsageError, match="run `a0/seed_0` is unknown"):
        clean(sweep.disk.paths)

    alive = replace(intent, pid=os.getpid(), pid_started=process_start(os.getpid()))
    write_json(sweep.submission.paths.intent, to_record(alive))
    assert sweep.states() == ["submitting"]

    sweep.sbatch(SLEEP, "--hold", receipt=False)
    [status] = sweep.statuses()
    assert (status.state, status.job_id) == (RunState.QUEUED, sweep.element(0))

    sweep.write_receipt("refused", error="Invalid account or account/partition combination")
    [status] = sweep.statuses()
    assert status.state is RunState.PLANNED
    assert status.reason == "Invalid account or account/partition combination"
    assert may_resubmit(status)
