"""The command line on a real cluster: whole commands, typed in a working folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.records.files import write_json
from harness.records.layout import SweepPaths
from tests.harness.cli.shell import Shell, sweep_text
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.submitting import PROFILE


@pytest.fixture
def shell(plain_cluster: Cluster, tmp_path: Path) -> Shell:
    """A working folder on a cluster without accounting."""
    return Shell(tmp_path, plain_cluster.env)


def write_profile(shell: Shell, **keys: Any) -> None:
    write_json(shell.folder / "site.yaml", {**PROFILE, **keys})  # JSON is YAML


def queue(cluster: Cluster) -> list[str]:
    """Return the names of the jobs that SLURM holds."""
    return cluster.run("squeue", "-h", "-o", "%j").stdout.split()


def submissions(shell: Shell) -> list[str]:
    return [s.id for s in SweepPaths(shell.folder / "outputs" / "study").submissions()]


def has_begun(shell: Shell) -> bool:
    path = shell.folder / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    return path.is_file() and path.stat().st_size > 0


def test_a_sweep_runs_to_its_report_and_the_cluster_reports_as_well(shell: Shell) -> None:
    shell.write(sweep_text("trains", "0"))
    code, out, err = shell.run("run", "study", "--on", "devcluster")
    lines = err.splitlines()
    assert code == 0, err
    assert lines[0] == (
        "study: 4 runs = 2 arms x 2 seeds on devcluster, up to 0.67 GPU-hours;"
        " everything goes to outputs/study"
    )
    assert lines[1].startswith("SLURM has 4 runs: job ")
    assert lines[1].endswith(" reports at the end")
    assert sorted(line[:5] for line in lines[2:6]) == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert lines[6:] == ["report: outputs/study/report/report.html"]
    assert "2 of 2" in out
    code, out, _ = shell.run("status", "study")
    head, *rows, summary = out.splitlines()
    assert head.split()[:7] == ["arm", "seed", "state", "age", "job", "node", "time"]
    assert [row.split()[:3] for row in rows] == [
        [arm, seed, "done"] for seed in "01" for arm in ("ipo", "icepop")
    ]
    assert all("gpu0" in row and "/10:00 " in row and " 5/5 " in row for row in rows)
    assert summary.startswith("study: 4 runs: 4 done; ")
    assert summary.endswith(" GPU-hours used, 0.67 planned")
    code, _, err = shell.run("run", "study", "--on", "devcluster", "--no-report")
    assert (code, err) == (0, "study: 4 runs = 2 arms x 2 seeds, all done\n")
    [submission] = submissions(shell)
    totals = shell.folder / "outputs/study/submissions" / submission / "totals.json"
    wait_until(totals.is_file, "the totals of the finishing job")
    assert json.loads(totals.read_text())["states"] == {"done": 4}


def test_a_detached_sweep_is_come_back_to_left_again_cancelled_and_retried(
    shell: Shell, plain_cluster: Cluster
) -> None:
    gate = shell.folder / "gate"
    shell.write(sweep_text("waits", str(gate)))
    write_profile(shell)
    code, out, err = shell.run("run", "study", "--on", "site.yaml", "--detach")
    back = (
        "`harness status study --watch` shows it, `harness run study --on site.yaml` comes back,"
        " `harness cancel study` ends it"
    )
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == f"detached: {back}"
    wait_until(lambda: has_begun(shell), "the first step")

    process = shell.start("run", "study", "--on", "site.yaml")
    assert process.stderr is not None
    assert process.stderr.readline() == ("study: 4 runs = 2 arms x 2 seeds, none is missing\n")
    assert process.stderr.readline().startswith("4 are with SLURM already (")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert err == f"detached, nothing was cancelled: {back}\n"
    assert len(submissions(shell)) == 1
    wait_until(lambda: set(shell.states().values()) == {"running"}, "four runs")

    code, _, err = shell.run("run", "study", "--no-report")
    assert code == 1
    assert err.splitlines()[-2:] == [
        "error: 4 runs can't be run here, SLURM has them (4 running)",
        "hint: `harness status study --watch` shows them, `harness cancel study` ends them",
    ]

    jobs = queue(plain_cluster)
    code, out, _ = shell.run("cancel", "study", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "would cancel 4 runs: 4 running")
    assert queue(plain_cluster) == jobs
    code, out, _ = shell.run("cancel", "study", "icepop")
    assert (code, out.splitlines()[-1]) == (0, "cancelling 2 runs: 2 running")
    expected = {"ipo/0": "running", "icepop/0": "cancelled"}
    expected |= {"ipo/1": "running", "icepop/1": "cancelled"}
    wait_until(lambda: shell.states() == expected, "two cancelled runs")

    code, out, err = shell.run("retry", "study", "--dry-run")
    assert code == 0
    assert out.startswith("study: would start 2 of 4 runs on site in 1 array and a finishing job")
    assert len(submissions(shell)) == 1
    code, _, err = shell.run("retry", "study", "--max-gpu-hours", "0.3")
    assert code == 2
    assert "the plan takes up to 0.33 GPU-hours, more than --max-gpu-hours 0.3" in err
    gate.touch()
    code, _, err = shell.run("retry", "study", "icepop/1", "--no-report")
    assert code == 0, err
    assert "study: 1 of 4 runs start again (1 cancelled) on site, up to 0.17 GPU-hours" in err
    # `run` completes what is missing, and waits for what is at work.
    code, out, err = shell.run("run", "study", "--on", "site.yaml")
    assert code == 0, err
    assert "1 missing" in err
    assert set(shell.states().values()) == {"done"}
    assert "2 of 2" in out


def test_a_failure_is_explained_and_retried_with_the_settings_it_had(shell: Shell) -> None:
    gate = shell.folder / "gate"
    gate.touch()
    shell.write(sweep_text("fails_once", str(gate)))
    write_profile(shell, retry_failures=False)
    code, _, err = shell.run("run", "study", "--on", "site.yaml", "--no-report")
    assert code == 1
    assert "error: 4 failed of 4 runs" in err
    assert "the network is away" in err
    (shell.folder / "site.yaml").unlink()
    code, out, _ = shell.run("why", "study", "ipo/0")
    lines = out.splitlines()
    assert lines[0].startswith("study ipo/seed_0: failed for ")
    assert lines[2].startswith("attempt 1: exit code 1 after ")
    assert "  the network is away" in lines
    code, out, err = shell.run("retry", "study", "ipo")
    assert code == 0, err
    assert err.startswith("profile `site` as submission 0001-")
    assert "2 of 4 runs start again (2 failed) on site" in err
    assert shell.states() == {
        "ipo/0": "done",
        "icepop/0": "failed",
        "ipo/1": "done",
        "icepop/1": "failed",
    }
    code, out, _ = shell.run("status", "study", "--state", "failed")
    assert [line.split()[:2] for line in out.splitlines()[1:-1]] == [
        ["icepop", "0"],
        ["icepop", "1"],
    ]


def test_a_run_that_never_began_has_the_output_of_its_job_for_a_log(shell: Shell) -> None:
    shell.write(sweep_text("trains", "0"))
    write_profile(shell, setup=["echo loading", "no-such-module load cuda"], requeue=False)
    code, _, err = shell.run("run", "study", "--on", "site.yaml", "--no-report")
    assert code == 1
    assert "error: 4 failed of 4 runs" in err
    code, out, _ = shell.run("logs", "study", "ipo/0")
    assert code == 0
    assert out.startswith("loading\n")
    assert "no-such-module: command not found" in out
    code, out, _ = shell.run("why", "study", "ipo/0")
    assert "exit code 127" in out
    assert "no-such-module: command not found" in out


def test_a_dry_run_and_a_plan_leave_nothing_on_disk_or_in_the_queue(
    shell: Shell, plain_cluster: Cluster
) -> None:
    shell.write(sweep_text("trains", "0"))
    inside = {"SLURM_JOB_ID": "77", "SBATCH_QOS": "gold"}
    nested = Shell(shell.folder, {**shell.env, **inside})
    before = sorted(shell.folder.rglob("*"))
    code, out, err = nested.run("run", "study", "--on", "devcluster", "--dry-run")
    assert (code, err) == (0, "")
    assert "study: would start 4 of 4 runs on devcluster in 1 array and a finishing job" in out
    assert "SBATCH_QOS of this shell is ignored; set `qos` in the profile" in out
    assert "submitting from inside allocation 77; its SLURM_* variables don't reach runs" in out
    assert "#SBATCH --array=0-3%4" in out
    code, out, _ = nested.run("plan", "study", "--on", "devcluster")
    assert (code, "Up to 0.67 GPU-hours" in out) == (0, True)
    assert sorted(shell.folder.rglob("*")) == before
    assert queue(plain_cluster) == []


def test_the_doctor_finds_a_cluster_well_and_a_probe_leaves_nothing(
    shell: Shell, plain_cluster: Cluster
) -> None:
    code, out, err = shell.run("doctor", "--on", "devcluster", "--probe")
    found = {line[9:24].strip(): line[:7].strip() for line in out.splitlines() if line[9:10] != " "}
    assert code == 0, out
    assert {name: found.get(name) for name in ("controller", "arrays", "partition")} == {
        "controller": "ok",
        "arrays": "ok",
        "partition": "ok",
    }
    assert found["accounting"] == "warning"
    there = {name: found.get(name) for name in ("probe", "folder there", "python there")}
    assert there == dict.fromkeys(there, "ok")
    assert (found["GPUs there"], found["SLURM there"], found["submission"]) == ("ok", "ok", "ok")
    assert "GPUs there      1 visible" in out
    assert err.startswith("probe: job ")
    assert list(shell.folder.iterdir()) == []
    assert queue(plain_cluster) == []


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"python": "/no/such/python"}, "there is no program `/no/such/python` on gpu0"),
        ({"partition": "gpuu"}, "`partition` is `gpuu`, which the cluster doesn't have"),
        ({"gpus_per_node": 99}, "Requested node configuration is not available"),
    ],
)
def test_the_doctor_names_what_a_profile_gets_wrong(
    shell: Shell, plain_cluster: Cluster, keys: dict[str, Any], found: str
) -> None:
    write_profile(shell, **keys)
    code, out, _ = shell.run("doctor", "--on", "site.yaml", "--probe")
    assert code == 1
    failures = [line for line in out.splitlines() if line.startswith("failed")]
    assert len(failures) == 1
    assert found in failures[0]
    assert queue(plain_cluster) == []


def test_the_doctor_sees_that_nodes_have_another_folder(shell: Shell) -> None:
    # In a mount namespace of its own the command has a folder that the nodes don't see.
    folder = shell.folder / "private"
    folder.mkdir()
    words = f"{sys.executable} -m harness doctor --on devcluster --probe"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs '{folder}' && exec {words}"],
        env={**os.environ, **shell.env, "HARNESS_OUTPUTS": str(folder / "outputs")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"and left nothing in `{folder}/outputs`: it doesn't see it" in done.stdout
    assert "warning  shared folder   tmpfs mounted at" in done.stdout


def test_a_controller_that_is_down_is_told_and_stops_a_run_before_anything_is_written(
    shell: Shell, plain_cluster: Cluster
) -> None:
    shell.write(sweep_text("trains", "0"))
    write_profile(shell, sbatch={"hold": True})
    code, _, err = shell.run("run", "study", "--on", "site.yaml", "--detach")
    assert code == 0, err
    plain_cluster.stop_controller()
    before = sorted(shell.folder.rglob("*"))
    status = shell.start("status", "study")  # beside the other, as each waits for an answer
    code, _, err = shell.run("run", "study", "max_steps=9", "--on", "site.yaml")
    out, warning = status.communicate(timeout=60)
    assert status.returncode == 0
    assert out.splitlines()[-1].startswith("study: 4 runs: 4 unknown")
    assert warning.startswith("warning: SLURM doesn't answer: ")
    assert code == 2
    assert err.splitlines()[0].startswith("error: `scontrol` ")
    assert len(err.splitlines()) == 2
    assert sorted(shell.folder.rglob("*")) == before
