from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from harness.trainers.prime_rl.loss_table import CUSTOM_PATH
from harness.trainers.prime_rl.render import is_custom, render_document
from tests.harness.trainers.prime_rl.arms import NAME, SHOWN, expand_document

IPO = {
    "type": "ipo",
    "eps": 0.3,
    "max_importance_ratio": 10000.0,
    "adv_tau": 1.0,
    "score_centering": False,
}


def _render(config: dict[str, Any], **options: Any) -> dict[str, Any]:
    before = copy.deepcopy(config)
    document = render_document(config, NAME, 20, Path("/out/trainer"), **options)
    assert config == before
    return document


def test_a_document_holds_the_loss_the_name_and_the_steps(tmp_path: Path) -> None:
    config = expand_document(
        tmp_path,
        {
            "slurm": {"partition": "all", "pre_run_command": "true"},
            "monitors": {"wandb": {"project": "p"}},
            "trainer": {"optim": {"lr": 3e-6, "max_norm": None}, "loss": {"type": "x"}},
        },
    )
    assert _render(config) == {
        "run": {"name": SHOWN},
        "output_dir": "/out/trainer",
        "max_steps": 20,
        "monitors": {
            "wandb": {
                "project": "p",
                "name": SHOWN,
                "group": "toy",
                "tags": ["toy", "ipo", "seed 3"],
            }
        },
        "trainer": {"optim": {"lr": 3e-6, "max_norm": None}, "loss": IPO},
    }


def test_an_old_checkout_gets_its_own_names_of_knobs(tmp_path: Path) -> None:
    loss = _render(expand_document(tmp_path, {}, "2798"))["trainer"]["loss"]
    assert loss == {"type": "ipo", "ipo_threshold": 0.3, "adv_tau": 1.0, "kl_tau": 0.0}


def test_a_loss_that_prime_rl_lacks_is_the_exported_one(tmp_path: Path) -> None:
    document = _render(expand_document(tmp_path, {}, loss={"type": "kpop", "phi": 0.2}))
    assert is_custom(document)
    assert document["trainer"]["loss"]["import_path"] == CUSTOM_PATH
    assert document["trainer"]["loss"]["kwargs"]["phi"] == 0.2
    assert not is_custom(_render(expand_document(tmp_path, {})))


def test_seed_keys_get_the_seed(tmp_path: Path) -> None:
    keys = ["inference.vllm.seed", "orchestrator.train.source.0.seed"]
    document = {"orchestrator": {"train": {"source": [{"name": "a"}]}}}
    rendered = _render(expand_document(tmp_path, document, seed_keys=keys))
    assert rendered["inference"] == {"vllm": {"seed": 3}}
    assert rendered["orchestrator"] == {"train": {"source": [{"name": "a", "seed": 3}]}}


def test_a_resumed_run_names_the_step(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {"resume": {"dir": "/a/checkpoints/step_5"}})
    assert _render(config)["resume"] == {"dir": "/a/checkpoints/step_5"}
    assert _render(config, resume_step=10)["resume"] == {"step": 10}


def test_ports_are_set_where_they_are_given(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {"inference": {}})
    assert "weight_broadcast" not in _render(config)
    assert _render(config, ports=20400)["inference"]["server"] == {"port": 20400}


@pytest.mark.parametrize("slurm", [{}, {"slurm": "None"}, {"slurm": {"partition": "all"}}])
def test_a_multi_node_document_keeps_the_scheduler(tmp_path: Path, slurm: dict[str, Any]) -> None:
    deployment = {"type": "multi_node", "num_train_nodes": 1}
    document = _render(expand_document(tmp_path, {"deployment": deployment, **slurm}))
    assert document["slurm"] == {"job_name": SHOWN}
