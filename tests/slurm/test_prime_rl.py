"""Ablations with prime-rl on a real cluster. The trainer is a test double: no number is a result.

No test's name may hold a word that prime-rl's clean-up kills: it would be in the path of its runs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.records.files import write_json
from harness.runner.process import pids_with
from tests.harness.cli.shell import Shell
from tests.harness.trainers.prime_rl.fake.checkout import make_checkout, rl_command
from tests.harness.trainers.prime_rl.fake.driving import read_rows
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.submitting import PROFILE

KL = "mismatch_kl/all/mean"
BASE = """
[ckpt]
interval = 2
[orchestrator]
batch_size = 16
group_size = 4
[[orchestrator.train.source]]
name = "toy"
env = { taskset = { id = "toy-tasks" } }
[inference]
"""
TWO_NODES = """
[deployment]
type = "multi_node"
num_train_nodes = 1
num_infer_nodes = 1
gpus_per_node = 2
[slurm]
cleanup_grace_period = 0
# A server that an earlier job left behind, for the clean-up.
pre_run_command = "bash -c 'exec -a old_vllm sleep 600' > /dev/null 2>&1 &"
"""
STUDY = """
question: does it run?
baseline: ipo
seeds: [0]
common:
  - trainer=prime_rl
  - task=external
  - model=external
  - max_steps=6
  - trainer.base=[base.toml]
  - trainer.command={command}
  # How long the inference node's task, which never ends by itself, is waited for.
  - "trainer.env={{SLURM_WAIT: '2'{env}}}"
arms:
  ipo: [loss=ipo]
  wide: [loss=ipo, loss.eps=0.5]
analysis: {{last_steps: 3, baseline_steps: [1, 2]}}
"""
ALONE = {"nodes": 2, "sbatch": {"exclusive": True}, "parallelism": 1}
"""Its nodes are one machine here, so that runs on prime-rl's fixed ports go one by one."""
RUN = ("run", "study", "--on", "site.yaml", "--no-report")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("double") / "prime-rl")


@pytest.fixture
def shell(plain_cluster: Cluster, tmp_path: Path, checkout: Path) -> Shell:
    env = {**plain_cluster.env, "PRIME_RL_CHECKOUT": str(checkout)}
    return Shell(tmp_path, env)


def write_study(shell: Shell, base: str, profile: dict[str, Any], **knobs: str) -> None:
    """Write sweep, base and profile; `knobs` tell the double what to do."""
    command = json.dumps(rl_command(Path(shell.env["PRIME_RL_CHECKOUT"])))
    env = "".join(f", FAKE_RL_{name}: '{value}'" for name, value in knobs.items())
    shell.write(STUDY.format(command=command, env=env))
    (shell.folder / "base.toml").write_text(base)
    write_json(shell.folder / "site.yaml", {**PROFILE, "gpus_per_node": 2, **profile})


def run_folder(shell: Shell, arm: str = "ipo") -> Path:
    return shell.folder / f"outputs/study/runs/{arm}/seed_0/trainer/study-{arm}-s0"


def recorded_env(shell: Shell, arm: str = "ipo") -> dict[str, Any]:
    found = json.loads((run_folder(shell, arm) / "logs/latest/env.json").read_text())
    assert isinstance(found, dict)
    return found


def logged_steps(shell: Shell, arm: str = "ipo") -> list[int]:
    path = run_folder(shell, arm) / "metrics.jsonl"
    rows = read_rows(path) if path.exists() else []
    return [row["step"] for row in rows if KL in row]


def own_log(shell: Shell, arm: str = "ipo", attempt: int = 1) -> str:
    return (shell.folder / f"outputs/study/runs/{arm}/seed_0/attempts/{attempt}/log").read_text()


def used_gpu_hours(shell: Shell) -> float:
    code, out, _ = shell.run("status", "study")
    found = re.search(r"([\d.]+) GPU-hours used", out)
    assert (code, found is not None) == (0, True), out
    assert found is not None
    return float(found[1])


def queue(cluster: Cluster) -> list[str]:
    return cluster.run("squeue", "-h", "-o", "%A").stdout.split()


def test_arms_on_one_node_are_one_array_with_gpus_and_ports_of_their_own(shell: Shell) -> None:
    write_study(shell, BASE, {}, STEP_S="0.3")
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    assert shell.states() == {"ipo/0": "done", "wide/0": "done"}
    assert re.search(r"SLURM has 2 runs: job \d+ \(2\);", err)
    gpus = [recorded_env(shell, arm)["CUDA_VISIBLE_DEVICES"].split(",") for arm in ("ipo", "wide")]
    assert [len(ids) for ids in gpus] == [2, 2]
    assert not (run_folder(shell) / "rl.sbatch").exists()
    assert used_gpu_hours(shell) > 0


def test_a_job_that_is_requeued_goes_on_from_its_checkpoint(
    shell: Shell, plain_cluster: Cluster
) -> None:
    gate = shell.folder / "gate"
    write_study(shell, BASE, {}, HOLD_AT="4", GATE=str(gate))
    process = shell.start(*RUN)
    wait_until(lambda: logged_steps(shell) == logged_steps(shell, "wide") == [1, 2, 3])
    run_id = recorded_env(shell)["PRL_RUN_ID"]
    job_id = shell.read("study/runs/ipo/seed_0/attempts/1/claim.json")["job_id"]
    plain_cluster.run("scontrol", "requeue", job_id)
    gate.touch()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert logged_steps(shell) == [1, 2, 3, 3, 4, 5, 6]
    assert recorded_env(shell)["PRL_RUN_ID"] == run_id
    assert "going on from the checkpoint of step 2" in own_log(shell, attempt=2)


def test_runs_on_two_nodes_survive_the_clean_up_by_name_and_end(shell: Shell) -> None:
    write_study(shell, BASE + TWO_NODES, ALONE)
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    assert shell.states() == {"ipo/0": "done", "wide/0": "done"}
    for arm in ("ipo", "wide"):
        assert re.search(r"clean-up kills \d+: old_vllm", own_log(shell, arm))
        assert logged_steps(shell, arm) == [1, 2, 3, 4, 5, 6]
        claim = shell.read(f"study/runs/{arm}/seed_0/attempts/1/claim.json")
        assert claim["num_nodes"] == 2
        assert recorded_env(shell, arm)["PRL_RUN_NAME"] == f"study-{arm}-s0"
    assert recorded_env(shell)["PRL_RUN_ID"] != recorded_env(shell, "wide")["PRL_RUN_ID"]
    code, out, _ = shell.run("logs", "study", "wide/0", "--of", "orchestrator", "--tail", "1")
    assert (code, out[:16]) == (0, "Step 6 | Reward ")
    assert used_gpu_hours(shell) > 0


def test_a_run_on_two_nodes_is_cancelled_whole(shell: Shell, plain_cluster: Cluster) -> None:
    write_study(shell, BASE + TWO_NODES, ALONE, HOLD_AT="2", GATE=str(shell.folder / "gate"))
    process = shell.start(*RUN)
    wait_until(lambda: logged_steps(shell) == [1], "the first step")
    run_id = recorded_env(shell)["PRL_RUN_ID"]
    assert shell.run("cancel", "study")[0] == 0
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert shell.states() == {"ipo/0": "cancelled", "wide/0": "cancelled"}
    wait_until(lambda: not pids_with({"PRL_RUN_ID": run_id}), "the end of all processes")
    wait_until(lambda: not queue(plain_cluster), "the end of all jobs")


def test_a_run_on_two_nodes_that_fails_is_explained(shell: Shell) -> None:
    profile = {**ALONE, "retry_failures": False}
    write_study(shell, BASE + TWO_NODES, profile, FAIL_AT="3")
    code, _, err = shell.run(*RUN)
    assert code == 1
    assert "RuntimeError: told to fail at step 3" in err
    assert set(shell.states().values()) == {"failed"}


def test_two_nodes_are_refused_where_the_runner_would_be_killed_or_nodes_be_shared(
    shell: Shell, plain_cluster: Cluster
) -> None:
    write_study(shell, BASE + TWO_NODES, ALONE)
    elsewhere = Shell(shell.folder, {**shell.env, "HARNESS_OUTPUTS": str(shell.folder / "vllm-x")})
    check_refused(elsewhere, "with `vllm` in its command line", *RUN)
    check_refused(shell, "with `torchrun` in its command line", *RUN, "--as", "torchrun_2")
    write_study(shell, BASE + TWO_NODES, {"nodes": 2})
    check_refused(shell, "must have its nodes to itself", *RUN)
    write_study(shell, BASE + TWO_NODES, {**ALONE, "nodes": 1})
    check_refused(shell, "needs 2 nodes, and the profile `site` gives each run 1", *RUN)
    write_study(shell, BASE + TWO_NODES, {**ALONE, "gpus_per_node": 1})
    check_refused(shell, "uses 2 GPUs on each node", *RUN)
    assert queue(plain_cluster) == []


def check_refused(shell: Shell, error: str, *words: str) -> None:
    code, out, err = shell.run(*words)
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert error in err.splitlines()[0]
    assert not (shell.folder / "outputs").exists()
    assert not (shell.folder / "vllm-x").exists()
