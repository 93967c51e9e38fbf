"""Runners in real jobs: signals, requeues, nodes that die. Nothing here uses the dispatcher.

The scenarios run side by side on one cluster: all are submitted and brought to their turn by the
fixture `scene`, and each test waits for the end of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.dispatch.requests import write_cancel_request
from harness.records.usage import read_attempts
from harness.runner.process import process_start, send_signal
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.conftest import cluster_name, need_slurm
from tests.slurm.scene import HEARTBEAT_LIMIT_S, MAX_STEPS, Scenario, Scene, mount

RUNS = [
    Scenario("limit", minutes=1),
    Scenario("limit_child", minutes=1, is_step=False),
    Scenario("preempted", partition="low", node="gpu03"),
    Scenario("preempted_child", partition="low", node="gpu03", is_step=False),
    Scenario("grace", partition="low_grace", node="gpu04"),
    Scenario("cancelled", ("leaves_grandchild", "METRICS", "PID_FILE", "stay"), gpus=2),
    Scenario(
        "cancelled_child", ("leaves_grandchild", "METRICS", "PID_FILE", "stay"), is_step=False
    ),
    Scenario("deaf", ("ignores_sigterm", "METRICS"), settings={"grace_s": 600.0}),
    Scenario("asked"),
    Scenario("killed", ("leaves_grandchild", "METRICS", "PID_FILE", "stay")),
    Scenario("crashes", ("raises", "METRICS")),
    Scenario("refused", ("raises", "METRICS"), options=("--no-requeue",)),
    Scenario("early", ("stops_early", "METRICS"), settings={"retry_failures": False}),
    Scenario(
        "stalled",
        ("stands_still", "METRICS"),
        settings={
            "stall_limit_s": 4.0,
            "stall_action": "requeue",
            "quick_failure_s": 0.0,
            "max_requeues": 1,
        },
    ),
    Scenario("waits", settings={"heartbeat_limit_s": 3600.0}),
    Scenario("waits_long", minutes=1, settings={"heartbeat_limit_s": 3600.0}),
    Scenario("full", ("paces", "METRICS", "GATE", "0.02")),
    Scenario("read_only"),
    Scenario("retries", ("fails_once", "METRICS", "GATE")),
    Scenario("old_goes_on", node=None, gpus=5),
    Scenario("old_dies", node=None, gpus=3),
    Scenario("machine_dies", node=None, gpus=5),
]

NODE_DEATHS = ("old_goes_on", "old_dies", "machine_dies")


@pytest.fixture(scope="module")
def scene(worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    need_slurm()
    cluster = Cluster.start(cluster_name("runner", worker_id), "--nodes", "7")
    scene = Scene(cluster, tmp_path_factory.mktemp("scene"), RUNS, mounted=("full", "read_only"))
    try:
        begin(scene)
        yield scene
    finally:
        cluster.stop()
        scene.close()


def begin(scene: Scene) -> None:
    """Submit every scenario and bring it to its turn; those whose node dies first and alone."""
    for arm in NODE_DEATHS:
        scene.submit(scene.scenarios[arm])
    for arm in NODE_DEATHS:
        scene.wait_for_trainer(arm)
    nodes = {arm: scene.sweep.claim(arm).node for arm in NODE_DEATHS}
    assert nodes == {"old_goes_on": "gpu01", "old_dies": "gpu01", "machine_dies": "gpu02"}
    scene.cluster.kill_node("gpu01")
    scene.cluster.kill_node("gpu02", with_jobs=True)
    mount(scene.run("read_only").root, "remount,ro")
    for arm in scene.scenarios:
        if arm not in NODE_DEATHS:
            scene.submit(scene.scenarios[arm])
    for arm in ("preempted", "preempted_child", "grace"):
        scene.wait_for_trainer(arm)
    for node in ("gpu03", "gpu04"):
        options = ("--partition=high", f"--nodelist={node}", "--exclusive", "--time=1")
        scene.cluster.sbatch(*options, script="sleep 1")
    for arm in ("cancelled", "cancelled_child", "killed", "deaf", "asked"):
        scene.wait_for_trainer(arm)
    scene.cluster.run(
        "scancel",
        *(scene.scenarios[arm].job_id for arm in ("cancelled", "cancelled_child", "deaf")),
    )
    write_cancel_request(scene.submissions["asked"].paths, ["asked/seed_0"])
    os.kill(scene.sweep.claim("killed").pid, signal.SIGKILL)
    scene.wait_for_trainer("full")
    _fill(scene.run("full").root)


def _fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_element_is_named_after_its_run_and_records_where_it_runs(scene: Scene) -> None:
    nonce = scene.submissions["cancelled"].intent.nonce
    job_id = scene.scenarios["cancelled"].job_id
    shown = scene.cluster.run("squeue", "-h", "-t", "all", "-o", "%j", "-j", job_id).stdout
    assert shown == f"toy sweep/cancelled/0@{nonce}.0\n"
    claim = scene.sweep.claim("cancelled")
    assert (claim.job_id, claim.node, claim.host) == (job_id, "gpu05", "gpu05")
    assert (len(claim.gpus), claim.num_nodes) == (2, 1)
    assert scene.sweep.claim("deaf").gpus == ()


@pytest.mark.parametrize("arm", ["cancelled", "cancelled_child"])
def test_scancel_ends_the_run_for_good_and_no_process_is_left(scene: Scene, arm: str) -> None:
    ended = scene.exit(arm)
    assert (ended.reason, ended.error, ended.requeue) == ("cancelled", "", False)
    scene.wait_for_job(arm, "CANCELLED")
    wait_until(lambda: scene.processes_of(arm) == [], f"the end of {arm}")
    assert process_start(int((scene.folder / f"{arm}.pid").read_text())) == ""
    assert len(scene.run(arm).attempts()) == 1


def test_trainer_that_ignores_sigterm_is_killed_before_slurm_kills_the_runner(scene: Scene) -> None:
    ended = scene.exit("deaf")
    assert (ended.reason, ended.signal) == ("cancelled", signal.SIGKILL)
    scene.wait_for_job("deaf", "CANCELLED")
    wait_until(lambda: scene.processes_of("deaf") == [], "the end of deaf")


def test_request_on_disk_cancels_without_slurm(scene: Scene) -> None:
    ended = scene.exit("asked")
    assert (ended.reason, ended.requeue) == ("cancelled", False)
    scene.wait_for_job("asked", "FAILED")  # exit code 143: nobody told SLURM


def test_killed_runner_leaves_no_grandchild_and_no_guardian(scene: Scene) -> None:
    scene.wait_for_job("killed", "FAILED")
    assert not scene.run("killed").attempt(1).exit.exists()
    grandchild = int((scene.folder / "killed.pid").read_text())
    wait_until(lambda: process_start(grandchild) == "", "the grandchild's end")
    wait_until(lambda: scene.processes_of("killed") == [], "the end of what it had started")


def test_crash_loop_ends_after_two_attempts_with_the_reason(scene: Scene) -> None:
    first, second = scene.exit("crashes", 1), scene.exit("crashes", 2)
    assert (first.reason, first.requeue) == ("failed", True)
    assert first.error == "ValueError: the batch is empty"
    assert (second.reason, second.requeue) == ("failed", False)
    assert second.error == "failed twice in a row within 60 s: ValueError: the batch is empty"
    scene.wait_for_job("crashes", "FAILED")
    assert len(scene.run("crashes").attempts()) == 2


def test_refused_restart_stands_in_the_record(scene: Scene) -> None:
    scene.wait_for_job("refused", "FAILED")
    ended = scene.exit("refused")
    assert (ended.reason, ended.requeue) == ("failed", False)
    assert ended.error.startswith(
        "ValueError: the batch is empty; the job can't be started again: `scontrol` failed: "
    )
    assert len(scene.run("refused").attempts()) == 1


def test_exit_0_before_max_steps_fails_the_job_too(scene: Scene) -> None:
    ended = scene.exit("early")
    assert (ended.reason, ended.code, ended.requeue) == ("failed", 0, False)
    assert ended.error == f"exited 0 at step 12 of {MAX_STEPS}"
    scene.wait_for_job("early", "FAILED")


def test_stalled_run_is_started_again_within_its_budget(scene: Scene) -> None:
    first, second = scene.exit("stalled", 1), scene.exit("stalled", 2)
    assert (first.reason, first.requeue, first.error) == (
        "failed",
        True,
        "stalled: no new step for 4 s",
    )
    assert second.error == (
        "stalled: no new step for 4 s; all 1 restarts are used up: raise `max_requeues`, or"
        " `harness retry`"
    )
    beat = scene.sweep.heartbeat("stalled", 2)
    assert beat is not None
    assert (beat.first_step, beat.step) == (2, 2)
    assert beat.stalled_since is not None
    assert scene.sweep.claim("stalled", 2).time < beat.stalled_since < beat.time
    assert "stalled: the trainer hasn't logged a step after 1 for" in scene.log("stalled")


def test_runner_that_waits_for_another_attempt_obeys_scancel(scene: Scene) -> None:
    scene.cluster.run("scancel", scene.scenarios["waits"].job_id)
    scene.wait_for_job("waits", "CANCELLED")
    assert [a.number for a in scene.run("waits").attempts()] == [1]
    wait_until(lambda: "cancelled before it began" in scene.log("waits"), "the runner's word")


def test_runner_that_waits_at_its_time_limit_is_started_again(scene: Scene) -> None:
    scene.wait_for_restart("waits_long")
    assert [a.number for a in scene.run("waits_long").attempts()] == [1]
    assert "stopped before it began, and SLURM starts the job again" in scene.log("waits_long")
    scene.cluster.run("scancel", scene.scenarios["waits_long"].job_id)


def test_full_disk_ends_the_job_with_one_error_and_no_restart(scene: Scene) -> None:
    job = scene.wait_for_job("full", "FAILED")
    assert (job["Restarts"], len(scene.run("full").attempts())) == ("0", 1)
    [line] = [line for line in scene.log("full").splitlines() if "error: `" in line]
    assert "exit.json` can't be written: No space left on device; the attempt ended: failed" in line
    assert "Traceback" not in scene.log("full")


def test_read_only_folder_ends_the_job_with_one_error_and_no_restart(scene: Scene) -> None:
    job = scene.wait_for_job("read_only", "FAILED")
    assert (job["Restarts"], scene.run("read_only").attempts()) == ("0", [])
    [line] = [line for line in scene.log("read_only").splitlines() if "error: `" in line]
    # srun writes into the same log and may end the line with words of its own.
    assert "/runs/read_only/seed_0/attempts`: Read-only file system" in line
    assert "Traceback" not in scene.log("read_only")


@pytest.mark.parametrize("arm", ["preempted", "preempted_child", "grace"])
def test_preempted_run_goes_on_from_where_it_was(scene: Scene, arm: str) -> None:
    ended = scene.exit(arm)
    # Without grace SLURM has decided already; with grace the runner asks for the restart.
    assert (ended.reason, ended.error, ended.requeue) == ("preempted", "", arm == "grace")
    assert ended.code == 143 or ended.signal == signal.SIGTERM  # SLURM repeats the signal
    scene.open_gate(arm)
    assert scene.exit(arm, 2).reason == "done"
    scene.check_whole(arm, [1, 2])
    scene.wait_for_job(arm, "COMPLETED")


@pytest.mark.parametrize("arm", ["limit", "limit_child"])
def test_run_at_its_time_limit_is_started_again_and_goes_on(scene: Scene, arm: str) -> None:
    ends = [scene.exit(arm)]
    scene.open_gate(arm)
    while ends[-1].reason == "timeout":  # once more where the test came late
        assert (ends[-1].error, ends[-1].requeue) == ("", True)
        ends.append(scene.exit(arm, len(ends) + 1))
        assert ends[-1].first_step == (ends[-2].last_step or 0) + 1
    assert len(ends) > 1
    assert (ends[-1].reason, ends[-1].requeue) == ("done", False)
    scene.check_whole(arm, range(1, len(ends) + 1))
    scene.wait_for_job(arm, "COMPLETED")


def test_attempt_on_a_dead_machine_is_followed_once_its_heartbeat_has_aged_out(
    scene: Scene,
) -> None:
    scene.open_gate("machine_dies")
    assert scene.exit("machine_dies", 2).reason == "done"
    scene.check_whole("machine_dies", [1, 2])
    assert not scene.run("machine_dies").attempt(1).exit.exists()


def test_attempt_that_a_dead_slurmd_left_behind_keeps_the_new_one_waiting(scene: Scene) -> None:
    arm = "old_goes_on"
    scene.wait_for_restart(arm)
    before = len(scene.rows(arm))
    wait_until(lambda: len(scene.rows(arm)) > before + 10, "steps of the old attempt")
    scene.open_gate(arm)
    assert scene.exit(arm).reason == "done"
    scene.wait_for_job(arm, "COMPLETED")
    scene.check_whole(arm, [1])
    assert "nothing to do: attempt 1 has done" in scene.log(arm)


def test_attempt_that_a_dead_slurmd_left_behind_is_followed_when_it_ends(scene: Scene) -> None:
    arm = "old_dies"
    scene.wait_for_restart(arm)
    claim = scene.sweep.claim(arm)
    send_signal(claim.pid, signal.SIGKILL)
    scene.open_gate(arm)
    assert scene.exit(arm, 2).reason == "done"
    first, second = read_attempts(scene.run(arm))
    assert first.heartbeat is not None
    assert second.claim.node != claim.node
    assert second.claim.time - first.heartbeat.time > HEARTBEAT_LIMIT_S
    scene.check_whole(arm, [1, 2])


def test_restart_is_asked_for_until_the_controller_is_back(scene: Scene) -> None:
    """The last test: nothing else goes on without a controller."""
    scene.cluster.stop_controller()
    scene.open_gate("retries")
    ended = scene.exit("retries")
    scene.cluster.start_controller()
    assert (ended.reason, ended.requeue) == ("failed", True)
    assert scene.exit("retries", 2).reason == "done"


def test_run_out_of_memory_says_so_and_is_not_started_again(
    memory_cluster: Cluster, tmp_path: Path
) -> None:
    allocates = Scenario("allocates", ("allocates", "METRICS"), node=None, mem="200M")
    scene = Scene(memory_cluster, tmp_path, [allocates])
    scene.submit(allocates)
    ended = scene.exit("allocates")
    assert (ended.reason, ended.signal, ended.requeue) == ("out_of_memory", signal.SIGKILL, False)
    assert ended.error.endswith("the kernel's out-of-memory killer struck: raise `mem`")
    memory_cluster.wait_for_job_state(allocates.job_id, "FAILED", "OUT_OF_MEMORY")
    assert len(scene.run("allocates").attempts()) == 1
