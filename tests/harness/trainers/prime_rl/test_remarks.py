from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.trainers.prime_rl.remarks import remarks
from tests.harness.trainers.prime_rl.arms import expand_document

RERUNS = (
    "Seeds are reruns: prime-rl has no seed for everything, and `trainer.seed_keys` names none of"
    " its own."
)
QUIET: dict[str, Any] = {"ckpt": {"interval": 50}, "inference": {}}


def test_a_plain_arm_has_one_remark(tmp_path: Path) -> None:
    assert remarks(expand_document(tmp_path, QUIET)) == (RERUNS,)


def test_what_gave_way_is_named_with_its_values(tmp_path: Path) -> None:
    document = {
        **QUIET,
        "max_steps": 1000,
        "run": {"name": "a"},
        "monitors": {"wandb": {"name": "a"}},
        "trainer": {"loss": {"type": "ipo", "ipo_threshold": 0.1}},
    }
    native = {"orchestrator": {"batch_size": 8}}
    expanded = expand_document(tmp_path, document, native=native, seed_keys=["inference.vllm.seed"])
    assert remarks(expanded) == (
        "The `loss` group replaces the whole loss of prime-rl's files: `trainer.loss.type` 'ipo',"
        " `trainer.loss.ipo_threshold` 0.1.",
        "Seeds set `inference.vllm.seed`; all else that is random differs from run to run.",
        "Runs end after `max_steps` 20; prime-rl's files say `max_steps` 1000.",
        f"Composed of `{tmp_path / 'base.json'}`, `trainer.native`, in this order.",
        "Set by the harness instead of prime-rl's files: `run.name`, `monitors.wandb.name`.",
    )


def test_steps_that_agree_are_no_news(tmp_path: Path) -> None:
    assert remarks(expand_document(tmp_path, {**QUIET, "max_steps": 20})) == (RERUNS,)


def test_a_knob_that_this_version_lacks_is_named(tmp_path: Path) -> None:
    assert remarks(expand_document(tmp_path, QUIET, "3526"))[0] == (
        "This prime-rl (losses 3526) has no `loss.max_importance_ratio`: its loss runs without."
    )


@pytest.mark.parametrize(
    ("kind", "version"), [("icepop", "2798"), ("kpop", "newest"), ("none", "newest")]
)
def test_a_loss_that_prime_rl_lacks_is_said_to_run_as_custom(
    tmp_path: Path, kind: str, version: str
) -> None:
    assert remarks(expand_document(tmp_path, QUIET, version, loss={"type": kind})) == (
        f"prime-rl (version {version}) has no `{kind}`: the loss runs as `custom`, from the"
        " exported `ablation_loss.py`.",
        RERUNS,
    )


def test_runs_that_cannot_go_on_are_named(tmp_path: Path) -> None:
    assert remarks(expand_document(tmp_path, {"inference": {}})) == (
        RERUNS,
        "No `[ckpt]`: a run that is interrupted starts over.",
    )
    assert remarks(expand_document(tmp_path, {"inference": {}, "ckpt": {}})) == (
        RERUNS,
        "No `ckpt.interval`: a run that is interrupted before its end starts over.",
    )


def test_a_multi_node_run_that_crashes_holds_its_nodes(tmp_path: Path) -> None:
    deployment = {"type": "multi_node", "num_train_nodes": 1}
    held = "A run that crashes holds its nodes for up to {} s (`slurm.cleanup_grace_period`)."
    document = {**QUIET, "deployment": deployment}
    assert remarks(expand_document(tmp_path, document)) == (RERUNS, held.format(3600))
    document["slurm"] = {"cleanup_grace_period": 60}
    assert remarks(expand_document(tmp_path, document)) == (RERUNS, held.format(60))
    document["slurm"] = {"cleanup_grace_period": 0}
    assert remarks(expand_document(tmp_path, document)) == (RERUNS,)


def test_a_server_that_runs_would_share_is_named(tmp_path: Path) -> None:
    said = remarks(expand_document(tmp_path, {"ckpt": {"interval": 5}}))
    assert said[1].startswith("No `[inference]`: runs would all train one server")
