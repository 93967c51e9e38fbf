"""The test double of prime-rl: that it refuses what the contract says that prime-rl refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.trainers.prime_rl.loss_schema import read_checkout
from tests.harness.trainers.prime_rl.fake.checkout import make_checkout, rl_command
from tests.harness.trainers.prime_rl.fake.driving import (
    PORT_KEYS,
    files_below,
    make_document,
    put,
    read_rows,
    run_rl,
    start_rl,
)

KL = "mismatch_kl/all/mean"
REWARD = "train/toy/all/agent/reward/mean"
CUSTOM = """
import sys
def loss(inputs, scale):
    outputs = sys.modules[type(inputs).__module__].LossOutputs
    mask = inputs.loss_mask
    return outputs(loss=(scale * inputs.trainer_logprobs * mask).sum(), metrics={})
"""


@pytest.fixture(scope="module")
def august(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("august") / "prime-rl")


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("newest") / "prime-rl", layout="newest")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_each_layout_declares_the_losses_of_its_time(august: Path, newest: Path) -> None:
    assert read_checkout(august).name == "2798"
    assert read_checkout(newest).name == "newest"


def test_it_says_that_it_is_a_test_double(august: Path, tmp_path: Path) -> None:
    code, said = run_rl(august, tmp_path, {}, "--help")
    assert code == 0
    assert "TEST DOUBLE" in said
    assert "TEST DOUBLE" in (august / "README.md").read_text()


def test_a_run_leaves_the_files_of_august(august: Path, tmp_path: Path) -> None:
    code, said = run_rl(august, tmp_path, make_document(tmp_path), PRL_RUN_ID="a" * 32)
    assert (code, "Training finished!" in said) == (0, True)
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        "broadcasts",
        "checkpoints",
        "configs",
        "logs",
        "metrics.jsonl",
        "rollouts",
    }
    assert files_below(run / "configs") == {
        "envs/train/toy.json",
        "inference.json",
        "orchestrator.json",
        "trainer.json",
    }
    assert files_below(run / "checkpoints") == {
        f"step_{step}/{name}"
        for step in (2, 4)
        for name in ("trainer/__0_0.distcp", "trainer/.metadata", "orchestrator/progress.pt")
    }
    logs = run / "logs" / "latest"
    assert logs.resolve().name == "attempt_1"
    assert {path.name for path in logs.iterdir()} >= {
        "inference.log",
        "orchestrator.log",
        "trainer.log",
    }
    assert '"PRL_RUN_ID": "' + "a" * 32 in (logs / "env.json").read_text()


def test_two_processes_write_the_rows_of_a_step(august: Path, tmp_path: Path) -> None:
    run_rl(august, tmp_path, make_document(tmp_path))
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert {row["step"] for row in rows} == {1, 2, 3, 4}
    assert all("producer" not in row for row in rows)
    for step in (1, 2, 3, 4):
        own = [row for row in rows if row["step"] == step]
        assert len(own) == 6
        assert [KL in row for row in own].count(True) == 1
        assert not any(KL in row and REWARD in row for row in own)
        assert sum("time/step" in row for row in own) == 2


def test_numbers_depend_on_the_loss_the_step_and_the_run_id_alone(
    august: Path, tmp_path: Path
) -> None:
    def kl(name: str, run_id: str, loss: dict[str, Any]) -> list[float]:
        document = make_document(tmp_path, name=name, max_steps=2)
        document["trainer"]["loss"] = loss
        assert run_rl(august, tmp_path, document, PRL_RUN_ID=run_id)[0] == 0
        return [row[KL] for row in read_rows(tmp_path / name / "metrics.jsonl") if KL in row]

    ipo = kl("a", "1", {"type": "ipo"})
    assert kl("b", "1", {"type": "ipo"}) == ipo
    assert kl("c", "2", {"type": "ipo"}) != ipo
    assert kl("d", "1", {"type": "ipo", "ipo_threshold": 0.2}) != ipo


def test_the_newest_layout_keeps_each_launchs_configs_and_names_producers(
    newest: Path, tmp_path: Path
) -> None:
    document = make_document(tmp_path)
    assert run_rl(newest, tmp_path, document, "--dry-run")[0] == 0
    assert run_rl(newest, tmp_path, document)[0] == 0
    configs = tmp_path / "run" / "configs"
    assert files_below(configs / "attempt_1") == {
        "command.txt",
        "rl.json",
        "resolved/envs/train/toy.json",
        "resolved/inference.json",
        "resolved/orchestrator.json",
        "resolved/rl.json",
        "resolved/trainer.json",
    }
    assert (configs / "latest").resolve().name == "attempt_2"
    rows = read_rows(tmp_path / "run" / "monitors" / "file" / "metrics.jsonl")
    assert {row["producer"] for row in rows} == {"trainer", "orchestrator"}
    assert [row for row in rows if row["step"] is None]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("trainer", "loss", "eps"), 0.1, "Extra inputs are not permitted"),
        (("orchestrator", "batchsize"), 8, "Extra inputs are not permitted"),
        (("orchestrator", "batch_size"), 10, "no multiple of group_size"),
        (("trainer", "max_steps"), 9, "'max_steps' and 'trainer.max_steps' are set to different"),
        (("trainer", "output_dir"), "elsewhere", "output_dir of a part"),
        (("env_vars",), {"PRL_RUN_ID": "x"}, "env_vars may not set ['PRL_RUN_ID']"),
        (("monitors", "wandb"), {"offline": True}, "share one run"),
        (("resume",), {"step": 2, "dir": "x/step_2"}, "exclude each other"),
        (("deployment",), {"type": "multi_node", "num_train_nodes": 1}, "needs [slurm]"),
        (("orchestrator", "train", "source"), [{"name": "x"}], "no env is configured"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_config_that_prime_rl_refuses_is_refused(
    august: Path, tmp_path: Path, path: tuple[str, ...], value: Any, reason: str
) -> None:
    document = make_document(tmp_path)
    put(document, path, value)
    code, said = run_rl(august, tmp_path, document, "--dry-run")
    assert (code, reason in said) == (1, True), said
    assert not (tmp_path / "run").exists()


def test_ports_of_client_and_server_that_differ_are_refused_at_a_real_start_only(
    august: Path, tmp_path: Path
) -> None:
    document = make_document(tmp_path)
    put(document, ("orchestrator", "model", "client", "base_url"), "http://localhost:1/v1")
    assert run_rl(august, tmp_path, document, "--dry-run")[0] == 0
    code, said = run_rl(august, tmp_path, document)
    assert (code, "base_url is 1, inference.server.port is" in said) == (1, True)


@pytest.mark.parametrize("path", PORT_KEYS, ids=".".join)
def test_a_port_that_another_run_holds_ends_the_run(
    august: Path, tmp_path: Path, path: tuple[str, ...]
) -> None:
    first, second = make_document(tmp_path), make_document(tmp_path, name="second")
    value: Any = first
    for key in path:
        value = value[key]
    put(second, path, value)
    if path == ("inference", "server", "port"):
        second["orchestrator"]["model"] = first["orchestrator"]["model"]
    gate = tmp_path / "gate"
    env = {"FAKE_RL_HOLD_AT": "2", "FAKE_RL_GATE": str(gate)}
    process = start_rl(august, tmp_path, first, env=env)
    log = tmp_path / "run" / "logs" / "latest" / "trainer.log"
    wait_until(lambda: log.exists() and "Step 1" in log.read_text())
    code, said = run_rl(august, tmp_path, second)
    gate.touch()
    process.communicate(timeout=60)
    assert (code, process.returncode) == (1, 0)
    assert "failed with exit code 1" in said


@pytest.mark.parametrize("name", ["harness.json", "metrics.jsonl", "logs"])
def test_a_used_run_folder_is_refused_unless_it_is_resumed_or_cleaned(
    august: Path, tmp_path: Path, name: str
) -> None:
    document = make_document(tmp_path)
    run = tmp_path / "run"
    for own in ("configs/rl.json", "rl.sbatch", "job_7.log"):
        (run / own).parent.mkdir(parents=True, exist_ok=True)
        (run / own).touch()
    assert run_rl(august, tmp_path, document, "--dry-run")[0] == 0
    (run / name).mkdir()
    code, said = run_rl(august, tmp_path, document, "--dry-run")
    assert (code, "FileExistsError" in said) == (1, True)
    assert run_rl(august, tmp_path, document, "--dry-run", "--resume")[0] == 0
    assert run_rl(august, tmp_path, document, "--dry-run", "--clean")[0] == 0
    assert not (run / name).exists()


def test_checkpoints_of_another_folder_count_as_used(august: Path, tmp_path: Path) -> None:
    document = make_document(tmp_path)
    document["ckpt"]["output_dir"] = str(tmp_path / "ckpt")
    assert run_rl(august, tmp_path, document)[0] == 0
    assert files_below(tmp_path / "ckpt/checkpoints/step_2") == {
        "trainer/__0_0.distcp",
        "trainer/.metadata",
    }
    document["run"]["name"] = "second"
    code, said = run_rl(august, tmp_path, document)
    assert (code, "FileExistsError" in said) == (1, True)


def test_a_resumed_run_goes_on_after_its_checkpoint(august: Path, tmp_path: Path) -> None:
    document = make_document(tmp_path, max_steps=6)
    code, said = run_rl(august, tmp_path, document, FAKE_RL_FAIL_AT="4")
    assert (code, "Trainer failed with exit code 1" in said) == (1, True)
    run = tmp_path / "run"
    assert "told to fail at step 4" in (run / "logs/latest/trainer.log").read_text()
    assert run_rl(august, tmp_path, document, "--resume.step", "2")[0] == 0
    rows = read_rows(run / "metrics.jsonl")
    assert [row["step"] for row in rows if KL in row] == [1, 2, 3, 3, 4, 5, 6]
    assert (run / "logs/latest").resolve().name == "attempt_2"
    assert "Step 4" not in (run / "logs/attempt_1/trainer.log").read_text()


def test_a_checkpoint_that_is_missing_or_not_whole_is_not_resumed(
    august: Path, tmp_path: Path
) -> None:
    document = make_document(tmp_path)
    run = tmp_path / "run"
    assert run_rl(august, tmp_path, document, FAKE_RL_FAIL_IN_SAVE="4")[0] == 1
    assert not (run / "checkpoints/step_4/trainer/.metadata").exists()
    for flags in (["--resume"], ["--resume.step", "4"], ["--resume.step", "3"]):
        code, said = run_rl(august, tmp_path, document, *flags)
        assert (code, "failed with exit code 1" in said) == (1, True), said
    assert run_rl(august, tmp_path, document, "--resume.step", "2")[0] == 0


def test_values_that_are_not_finite_are_left_out_of_their_row(august: Path, tmp_path: Path) -> None:
    run_rl(august, tmp_path, make_document(tmp_path), FAKE_RL_NAN_FROM="3")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if KL in row] == [1, 2]
    assert [row["step"] for row in rows if "entropy/all/mean" in row] == [1, 2, 3, 4]


def test_sigterm_ends_every_process_with_exit_code_1(august: Path, tmp_path: Path) -> None:
    document = make_document(tmp_path)
    env = {"FAKE_RL_HOLD_AT": "2", "FAKE_RL_GATE": str(tmp_path / "gate")}
    process = start_rl(august, tmp_path, document, env=env)
    log = tmp_path / "run" / "logs" / "latest" / "trainer.log"
    wait_until(lambda: log.exists() and "Step 1" in log.read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert run_rl(august, tmp_path, document, "--clean")[0] == 0


def test_a_deaf_run_ends_by_itself_only(august: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env = {"FAKE_RL_HOLD_AT": "2", "FAKE_RL_GATE": str(gate), "FAKE_RL_IGNORE_SIGTERM": "1"}
    process = start_rl(august, tmp_path, make_document(tmp_path), env=env)
    log = tmp_path / "run" / "logs" / "latest" / "trainer.log"
    wait_until(lambda: log.exists() and "Step 1" in log.read_text())
    process.send_signal(signal.SIGTERM)
    gate.touch()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_custom_loss_is_imported_from_pythonpath_and_called(august: Path, tmp_path: Path) -> None:
    document = make_document(tmp_path, max_steps=1)
    loss = {"type": "custom", "import_path": "own_loss.loss", "kwargs": {"scale": 2.0}}
    document["trainer"]["loss"] = loss
    code, _ = run_rl(august, tmp_path, document)
    log = tmp_path / "run" / "logs" / "latest" / "trainer.log"
    assert (code, "No module named 'own_loss'" in log.read_text()) == (1, True)
    (tmp_path / "own_loss.py").write_text(CUSTOM)
    assert run_rl(august, tmp_path, document, "--clean", PYTHONPATH=str(tmp_path))[0] == 0
    assert "custom loss own_loss.loss: -1.466667" in log.read_text()


def test_gpus_beyond_the_visible_ones_are_refused(august: Path, tmp_path: Path) -> None:
    document = make_document(tmp_path)
    code, said = run_rl(august, tmp_path, document, CUDA_VISIBLE_DEVICES="3")
    assert (code, "2 GPUs are asked for, [3] are there" in said) == (1, True)
    code, said = run_rl(august, tmp_path, document, CUDA_VISIBLE_DEVICES="GPU-5,GPU-6")
    assert (code, "invalid literal for int()" in said) == (1, True)


@pytest.mark.parametrize("layout", ["august", "newest"])
def test_a_dry_run_on_several_nodes_renders_the_script_that_kills_by_name(
    request: pytest.FixtureRequest, tmp_path: Path, layout: str
) -> None:
    checkout = request.getfixturevalue(layout)
    document = make_document(tmp_path)
    document["deployment"] = {"type": "multi_node", "num_train_nodes": 2, "num_infer_replicas": 3}
    document["slurm"] = {"job_name": "study", "pre_run_command": "echo before", "time": "1:00:00"}
    assert run_rl(checkout, tmp_path, document, "--dry-run")[0] == 0
    place = {"august": "rl.sbatch", "newest": "launcher/rl.sbatch"}[layout]
    script = (tmp_path / "run" / place).read_text()
    lines = script.splitlines()
    assert "#SBATCH --nodes=5" in lines
    assert "#SBATCH --time=1:00:00" in lines
    assert "uv sync --all-extras --all-packages" in lines
    assert "echo before" in lines
    assert f"export PROJECT_DIR={checkout}" in lines
    assert 'kill_by_name "[p]rime_rl"' in script
    assert "<<" not in script.replace("<<<", "").replace("<<'", "")
    assert run_rl(checkout, tmp_path, document, "--dry-run")[0] == 0


def test_the_clean_up_kills_by_name_within_its_job_and_nobody_else(
    august: Path, tmp_path: Path
) -> None:
    script = (august / "src/prime_rl/templates/multi_node_rl.sbatch").read_text()
    [clean_up] = re.findall(r"<<'CLEANUP_SH'\n(.*?)\nCLEANUP_SH\n", script, re.DOTALL)
    job = {"SLURM_JOB_ID": f"double-{os.getpid()}", "SLURM_CONF": str(tmp_path)}
    own, other_name, other_job = (
        subprocess.Popen(["bash", "-c", f"exec -a {name} sleep 60"], env={**os.environ, **env})
        for name, env in (("old_vllm", job), ("old_server", job), ("old_vllm", {}))
    )
    try:
        wait_until(lambda: all(name_of(p).startswith("old_") for p in (own, other_name, other_job)))
        env = {**os.environ, **job}
        done = subprocess.run(
            ["bash", "-s"], input=clean_up, env=env, text=True, capture_output=True, check=True
        )
        assert done.stdout == f"clean-up kills {own.pid}: old_vllm 60 \n"
        assert own.wait(timeout=60) == -signal.SIGKILL
        assert (other_name.poll(), other_job.poll()) == (None, None)
    finally:
        for process in (own, other_name, other_job):
            process.kill()
            process.wait()


def name_of(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text()


def test_a_single_node_with_slurm_writes_one_config_for_the_job(
    august: Path, tmp_path: Path
) -> None:
    document = make_document(tmp_path) | {"slurm": {}}
    assert run_rl(august, tmp_path, document, "--dry-run")[0] == 0
    assert files_below(tmp_path / "run") == {"configs/rl.json", "rl.sbatch"}


def test_the_command_needs_no_environment_of_the_checkouts_own(august: Path) -> None:
    assert not (august / ".venv").exists()
    assert rl_command(august)[1] == str(august / "bin" / "rl")
