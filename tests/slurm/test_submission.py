"""Submissions from the order to the report: arrays, names, environment, following, cancelling."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.cluster import DISPATCHER, SlurmDispatcher
from harness.dispatch.follow import SlurmHandle
from harness.dispatch.interface import Order, Snapshot
from harness.profile import load_profile
from harness.records.layout import FINISH_JOB
from harness.records.model import Claim, PlanRecord, Receipt, read_record
from harness.resources import PACKAGE_DIR
from harness.scheduler.commands import show_job
from harness.state.status import RunState
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.conftest import cluster_name, need_slurm
from tests.slurm.submitting import (
    HELD,
    OTHER_SHAPE,
    PROFILE,
    TRAINS,
    Submitting,
    make_submitting,
)

FOLLOW = Path(__file__).parent / "programs" / "follow.py"
WAITS = ("waits", "METRICS", "GATE")
RUNS = ["a/seed_0", "a/seed_1", "b/seed_0", "b/seed_1"]
Make = Callable[..., Submitting]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a sweep of two arms and two seeds for a cluster. GATE is a file that arms wait for."""
    made: list[Submitting] = []

    def make(cluster: Cluster, arms: Any = None, folder: str = "", **options: Any) -> Submitting:
        monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
        arms = {"a": TRAINS, "b": TRAINS} if arms is None else arms
        arms = {
            name: [str(tmp_path / "gate") if word == "GATE" else word for word in words]
            for name, words in arms.items()
        }
        made.append(make_submitting(cluster, tmp_path / folder, arms, **options))
        return made[-1]

    yield make
    for submitting in made:
        submitting.end()


def order_of(submitting: Submitting, code_dir: Path | None = None) -> Order:
    plan = read_record(PlanRecord, submitting.paths.plan)
    return Order(
        submitting.paths,
        plan.runs,
        load_profile(str(submitting.profile)),
        plan.code.hash,
        code_dir,
        plan.resources,
    )


def submit(submitting: Submitting, code_dir: Path | None = None) -> SlurmHandle:
    return DISPATCHER.submit(order_of(submitting, code_dir))


def log_of(handle: SlurmHandle, submitting: Submitting, index: int = 0) -> str:
    """Return what the job of one element of the first array printed."""
    receipt = submitting.receipt("0")
    assert receipt is not None
    assert receipt.job_id is not None
    return handle.submission.element_log(receipt.job_id, index).read_text()


def wait_for_finish(submitting: Submitting) -> str:
    """Wait for the end of the newest submission's finishing job; return what it printed."""
    receipt = submitting.receipt(FINISH_JOB)
    assert receipt is not None
    assert receipt.job_id is not None
    submitting.cluster.wait_for_job_state(receipt.job_id, "COMPLETED", "FAILED")
    return next(submitting.submissions()[-1].slurm_dir.glob("*_finish_log.out")).read_text()


def test_sweep_from_order_to_report(cluster: Cluster, make: Make, tmp_path: Path) -> None:
    submitting = make(
        cluster,
        resources=OTHER_SHAPE,
        notify={"command": f"cat >> {tmp_path}/notice; echo $HARNESS_SUMMARY >> {tmp_path}/notice"},
    )
    handle = submit(submitting)
    intent = submitting.intent()
    assert [array.run_ids for array in intent.arrays] == [tuple(RUNS[:2]), tuple(RUNS[2:])]
    assert [a.job_name for a in intent.arrays] == [f"toy@{intent.nonce}.{k}" for k in (0, 1)]
    assert (intent.user, intent.settings["type"]) == ("root", "slurm")
    assert submitting.receipts() == dict.fromkeys(("0", "1", "finish"), ("accepted", False))
    receipt = read_record(Receipt, handle.submission.receipt)
    ids = {name: getattr(submitting.receipt(name), "job_id", None) for name in ("0", "1", "finish")}
    assert receipt.jobs == ids
    assert not submitting.paths.lock.exists()

    snapshots: list[Snapshot] = []
    result = handle.follow(snapshots.append)
    assert {o.run.run_id: o.state for o in result.outcomes} == dict.fromkeys(RUNS, RunState.DONE)
    assert [o.run for o in result.outcomes] == list(order_of(submitting).runs)
    assert (result.is_all_done, result.is_detached, result.interrupted_by) == (True, False, None)
    assert {run.state for run in snapshots[-1].runs} == {RunState.DONE}
    assert (snapshots[-1].runs[0].step, snapshots[-1].slots) == (3, 4)

    said = wait_for_finish(submitting)
    assert said.startswith("toy: 4 done; 0.00 GPU-hours used; report: ")
    assert submitting.paths.report_html.is_file()
    totals = json.loads(handle.submission.totals.read_text())
    assert totals["runs"] == dict.fromkeys(RUNS, "done")
    assert (totals["states"], totals["notified"], totals["error"]) == ({"done": 4}, "sent", "")
    assert totals["planned_gpu_hours"] == pytest.approx(2 * 10 / 60 + 2 * 2 * 10 / 60)
    notice = (tmp_path / "notice").read_text()
    assert json.loads(notice[: notice.rindex("}") + 1])["states"] == {"done": 4}
    assert notice.endswith(said)


def test_queue_shows_sweep_arm_and_seed_and_waits_elsewhere(
    plain_cluster: Cluster, make: Make, tmp_path: Path
) -> None:
    submitting = make(plain_cluster, {"a": WAITS, "b": WAITS}, parallelism=2)
    handle = submit(submitting)
    nonce = submitting.intent().nonce
    [array_id] = {j.array_job_id for j in submitting.live_jobs() if j.index is not None}
    names = {f"toy/a/0@{nonce}.0", f"toy/b/0@{nonce}.0"}
    wait_until(lambda: names <= {j.name for j in submitting.live_jobs()}, "the names of the runs")
    states = Counter((j.name, j.state) for j in submitting.live_jobs())
    assert states == {
        (f"toy/a/0@{nonce}.0", "RUNNING"): 1,
        (f"toy/b/0@{nonce}.0", "RUNNING"): 1,
        (f"toy@{nonce}.0", "PENDING"): 2,
        (f"toy@{nonce}.finish", "PENDING"): 1,
    }
    assert show_job(f"{array_id}_3")["ArrayTaskThrottle"] == "2"
    assert (
        read_record(Claim, submitting.paths.run("a", 0).attempt(1).claim).job_id == f"{array_id}_0"
    )

    # Another submission's job that ends it waits for these runs, too.
    submitting.replan(resources={}, seeds=(0, 1, 2), arms={"a": TRAINS, "b": TRAINS})
    assert submitting.submit()[:2] == (0, "2 missing\n")
    wait_until(lambda: submitting.live_runs().total() == 4, "the end of the new runs")
    [first, second] = sorted(submitting.finishing_jobs(), key=lambda job: int(job.array_job_id))
    assert f"afterany:{array_id}_*" in show_job(second.array_job_id)["Dependency"]
    (tmp_path / "gate").touch()
    assert handle.follow(lambda snapshot: None).is_all_done
    plain_cluster.wait_for_job_state(first.array_job_id, "COMPLETED")
    assert wait_for_finish(submitting).startswith("toy: 6 done")


@pytest.mark.parametrize("use_srun", [True, False])
def test_nothing_of_an_allocation_or_a_shell_reaches_the_runs(
    plain_cluster: Cluster, make: Make, use_srun: bool
) -> None:
    submitting = make(
        plain_cluster, {"a": ("prints_environment", "METRICS")}, seeds=(0,), use_srun=use_srun
    )
    alien = {
        "SLURM_JOB_ID": "999",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_MEM_PER_CPU": "1",
        "SLURM_TRES_PER_TASK": "cpu:9",
        "SBATCH_PARTITION": "nowhere",
        "SBATCH_EXPORT": "NONE",
        "SRUN_CPUS_PER_TASK": "64",
        "PRL_RUN_ID": "alien",
        "WANDB_RUN_ID": "alien",
        "HARNESS_RUN_DIR": "/alien",
        "HARNESS_ATTEMPT": "77",
    }
    code, _, err = submitting.submit(env={**alien, "MY_OWN": "kept"})
    assert (code, err) == (0, "")
    run = submitting.paths.run("a", 0)
    wait_until(run.attempt(1).exit.is_file, "the end of the run")
    seen = json.loads(run.attempt(1).log.read_text().splitlines()[0])
    assert seen["MY_OWN"] == "kept"
    assert "alien" not in " ".join(seen.values())
    assert seen["SLURM_JOB_ID"] != "999"
    assert seen.get("SRUN_CPUS_PER_TASK", "1") == "1"
    assert seen["HARNESS_ATTEMPT"] == "1"
    for path in submitting.submissions()[0].root.rglob("*"):
        assert path.is_dir() or "kept" not in path.read_text(), "environment in a file"


@pytest.mark.parametrize("name", ['it\'s a "ünï" $HOME; #1 &'])
@pytest.mark.parametrize("use_srun", [True, False])
def test_odd_folders_work_in_a_real_job(
    plain_cluster: Cluster, make: Make, name: str, use_srun: bool
) -> None:
    submitting = make(plain_cluster, {"a": TRAINS}, folder=name, seeds=(0,), use_srun=use_srun)
    code_dir = submitting.paths.code_dir("0" * 16)
    shutil.copytree(PACKAGE_DIR, code_dir / "harness", ignore=shutil.ignore_patterns("_data"))
    element = code_dir / "harness" / "runner" / "element.py"
    text = element.read_text()
    element.write_text(text.replace("import os\n", "import os\nprint('this is the frozen copy')\n"))
    handle = submit(submitting, code_dir)
    assert handle.follow(lambda snapshot: None).is_all_done
    assert log_of(handle, submitting).startswith("this is the frozen copy\n")
    assert wait_for_finish(submitting).startswith("toy: 1 done")


def test_percent_in_a_folder_is_refused_before_anything_is_written(
    plain_cluster: Cluster, make: Make
) -> None:
    submitting = make(plain_cluster, folder="100%j", **HELD)
    code, _, err = submitting.submit()
    assert code == 2
    assert "holds '%', which has a meaning of its own for SLURM" in err
    assert submitting.submissions() == []


def test_program_that_is_not_on_the_node_fails_with_127(plain_cluster: Cluster, make: Make) -> None:
    submitting = make(plain_cluster, {"a": TRAINS}, seeds=(0,), python="/no/such/python -X dev")
    handle = submit(submitting)
    result = handle.follow(lambda snapshot: None)
    [outcome] = result.outcomes
    assert (outcome.state, "exit code 127" in outcome.error) == (RunState.FAILED, True)
    log = log_of(handle, submitting)
    assert log.startswith("harness: there is no program `/no/such/python` on gpu0")


def test_setup_that_fails_ends_the_job_with_its_code(plain_cluster: Cluster, make: Make) -> None:
    submitting = make(plain_cluster, {"a": TRAINS}, seeds=(0,), setup=["false || (exit 5)"])
    handle = submit(submitting)
    [outcome] = handle.follow(lambda snapshot: None).outcomes
    assert (outcome.state, "exit code 5" in outcome.error) == (RunState.FAILED, True)
    assert log_of(handle, submitting) == "harness: exit code 5 of the setup line: ( exit 5 )\n"


def test_runs_beyond_max_array_size_are_several_arrays(
    worker_id: str, make: Make, tmp_path: Path
) -> None:
    need_slurm()
    options = ("--max-array-size", "3", "--nodes", "1")
    cluster = Cluster.start(cluster_name("small", worker_id), *options)
    try:
        submitting = make(cluster, seeds=range(4), **HELD)
        assert submitting.submit()[0] == 0
        sizes = [len(array.run_ids) for array in submitting.intent().arrays]
        assert sizes == [2, 3, 3]
        assert submitting.live_runs().total() == 8
        chained = make(cluster, folder="chained", seeds=range(4), parallelism=2, **HELD)
        assert chained.submit()[0] == 0
        ids = [getattr(chained.receipt(str(k)), "job_id", "") for k in range(3)]
        depends = [show_job(f"{job_id}_0").get("Dependency", "(null)") for job_id in ids]
        assert depends[0] == "(null)"
        assert [text.partition("_")[0] for text in depends[1:]] == [
            f"afterany:{ids[0]}",
            f"afterany:{ids[1]}",
        ]
    finally:
        cluster.stop()


def test_following_goes_on_while_slurm_does_not_answer(
    plain_cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitting = make(plain_cluster, {"a": TRAINS}, seeds=(0,), **HELD)
    handle = submit(submitting)
    submitting.shim(
        "squeue", 'echo "squeue: error: Unable to contact slurm controller" >&2; exit 1'
    )
    monkeypatch.setenv("PATH", f"{submitting.shims}{os.pathsep}{os.environ['PATH']}")
    seen: list[RunState] = []

    def show(snapshot: Snapshot) -> None:
        [run] = snapshot.runs
        if seen and run.state is seen[-1]:
            return
        seen.append(run.state)
        if run.state is RunState.UNKNOWN:
            assert "SLURM doesn't answer" in run.error
            submitting.remove_shims()
        elif run.state is RunState.QUEUED:
            job_id = getattr(submitting.receipt("0"), "job_id", "")
            plain_cluster.run("scontrol", "release", job_id)

    assert handle.follow(show).is_all_done
    assert seen[:2] == [RunState.UNKNOWN, RunState.QUEUED]
    assert seen[-1] is RunState.DONE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_following_detaches_and_cancels_nothing(
    plain_cluster: Cluster, make: Make, tmp_path: Path, number: signal.Signals
) -> None:
    submitting = make(plain_cluster, {"a": WAITS}, seeds=(0,))
    follower = subprocess.Popen(
        [sys.executable, "-P", str(FOLLOW), str(submitting.paths.root), str(submitting.profile)],
        env=plain_cluster.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run = submitting.paths.run("a", 0).attempt(1)
        wait_until(lambda: run.heartbeat.is_file() and '"step": 2' in run.heartbeat.read_text())
        follower.send_signal(number)
        out, _ = follower.communicate(timeout=30)
    finally:
        follower.kill()
    result = json.loads(out.splitlines()[-1])
    assert result == {"is_detached": True, "by": number, "states": {"a/seed_0": "running"}}
    assert submitting.live_runs() == {"a/seed_0": 1}
    assert list(submitting.submissions()[0].cancel_requests()) == []
    (tmp_path / "gate").touch()
    wait_until(run.exit.is_file, "the end of the run that nobody follows")


def test_cancel_ends_running_and_waiting_runs_and_the_finishing_job(
    plain_cluster: Cluster, make: Make
) -> None:
    submitting = make(plain_cluster, {"a": WAITS, "b": WAITS}, parallelism=2)
    handle = submit(submitting)
    running = [submitting.paths.run(arm, 0).attempt(1) for arm in ("a", "b")]
    wait_until(lambda: all(r.heartbeat.is_file() for r in running), "two running runs")
    DISPATCHER.cancel(handle.submission, ["b/seed_1"])
    assert submitting.live_runs() == {"a/seed_0": 1, "a/seed_1": 1, "b/seed_0": 1}
    assert len(submitting.finishing_jobs()) == 1
    DISPATCHER.cancel(handle.submission, ["a/seed_0", "a/seed_1", "b/seed_0"])
    assert submitting.finishing_jobs() == []
    result = handle.follow(lambda snapshot: None)
    assert {o.run.run_id: o.state for o in result.outcomes} == dict.fromkeys(
        RUNS, RunState.CANCELLED
    )
    wait_until(lambda: submitting.live_jobs() == [], "an empty queue")
    assert len(handle.submission.cancel_requests()) == 2


def test_runs_that_are_cancelled_while_they_are_submitted_leave_the_queue(
    plain_cluster: Cluster, make: Make
) -> None:
    submitting = make(plain_cluster, resources=OTHER_SHAPE, **HELD)
    request = json.dumps({"schema_version": 1, "runs": ["a/seed_1", "b/seed_0", "b/seed_1"]})
    submitting.shim(
        "sbatch",
        f'if [ $(count) = 1 ]; then folder="$(dirname "$1")/../requests"; mkdir "$folder";'
        f' echo \'{request}\' > "$folder/cancel-test.json"; fi; exec "$real" "$@"',
    )
    assert submitting.submit()[0] == 0
    assert submitting.live_runs() == {"a/seed_0": 1}
    assert submitting.receipts() == {
        "0": ("accepted", False),
        "1": ("not_submitted", False),
        "finish": ("accepted", False),
    }


def test_preview_says_what_would_be_handed_over(
    plain_cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitting = make(plain_cluster, resources=OTHER_SHAPE)
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SBATCH_QOS", "fast")
    monkeypatch.setenv("SBATCH_ARRAY_INX", "0-9")
    preview = SlurmDispatcher().preview(order_of(submitting))
    assert [a.run_ids for a in preview.arrays] == [tuple(RUNS[:2]), tuple(RUNS[2:])]
    assert [(s.name, s.job_name) for s in preview.scripts] == [
        ("0", "toy@NONCE.0"),
        ("1", "toy@NONCE.1"),
        ("finish", "toy@NONCE.finish"),
    ]
    assert "#SBATCH --gpus-per-node=2" in preview.scripts[1].text
    assert [(v.name, v.key) for v in preview.ignored_variables] == [
        ("SBATCH_ARRAY_INX", "`parallelism`"),
        ("SBATCH_QOS", "`qos`"),
    ]
    assert preview.max_array_size == 1001
    assert submitting.submissions() == []

    monkeypatch.setenv("PATH", "/nowhere")
    without = SlurmDispatcher().preview(order_of(submitting))
    assert without == dataclasses.replace(preview, max_array_size=None)


def test_cluster_that_a_profile_names_is_kept_in_the_receipt_and_asked(
    accounting_cluster: Cluster, make: Make
) -> None:
    [name] = accounting_cluster.run(
        "sacctmgr", "-nP", "list", "cluster", "format=cluster"
    ).stdout.split()
    submitting = make(accounting_cluster, {"a": TRAINS}, seeds=(0,), sbatch={"clusters": name})
    handle = submit(submitting)
    receipt = submitting.receipt("0")
    assert receipt is not None
    assert (receipt.cluster, receipt.is_adopted) == (name, False)
    assert handle.follow(lambda snapshot: None).is_all_done
    assert wait_for_finish(submitting).startswith("toy: 1 done")
    held = make(accounting_cluster, folder="held", sbatch={"clusters": name, "hold": True})
    held.shim("sbatch", '"$real" "$@" > /dev/null; exit 1')
    assert held.submit()[0] == 0
    adopted = held.receipt("0")
    assert adopted is not None
    assert (adopted.cluster, adopted.is_adopted) == (name, True)
    DISPATCHER.cancel(held.submissions()[0], None)
    assert held.live_jobs() == []


HOSTILE = [
    "a;touch owned",
    "$(touch owned)",
    "`touch owned`",
    "a b",
    "50%",
    "a\nb",
    "é",
    "x@1f9c2a.0",
]


@pytest.mark.parametrize("kind", ["sweep", "arm"])
def test_hostile_names_are_refused_and_no_job_is_left(
    plain_cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "site.yaml").write_text(json.dumps(PROFILE))
    all_jobs = ("squeue", "--noheader", "--states=all", "--format=%i %j")
    before = plain_cluster.run(*all_jobs).stdout
    for name in HOSTILE:
        arm = name if kind == "arm" else "base"
        sweep = {"baseline": arm, "seeds": [0], "arms": {arm: ["trainer=command"]}}
        (tmp_path / "toy.yaml").write_text(json.dumps(sweep))  # JSON is YAML
        renamed = ["--as", name] if kind == "sweep" else []
        done = plain_cluster.run(
            *(sys.executable, "-P", "-m", "harness", "run", "toy.yaml"),
            *("--on", "./site.yaml", *renamed),
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 2, done
        error, hint = done.stderr.splitlines()
        assert error.startswith("error: "), error
        assert hint.startswith("hint: "), hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site.yaml", "toy.yaml"]
    assert plain_cluster.run(*all_jobs).stdout == before


def test_names_that_look_like_the_harness_s_own_are_kept_apart(
    plain_cluster: Cluster, make: Make
) -> None:
    arms = {"finish": TRAINS, "0": TRAINS, "a.0_b-c": TRAINS}
    submitting = make(plain_cluster, arms, seeds=(0,), resources={"0": {"gpus_per_node": 2}})
    result = submit(submitting).follow(lambda snapshot: None)
    assert {o.run.arm: o.state for o in result.outcomes} == dict.fromkeys(arms, RunState.DONE)
    assert wait_for_finish(submitting).startswith("toy: 3 done")
