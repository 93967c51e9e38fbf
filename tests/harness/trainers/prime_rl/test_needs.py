from __future__ import annotations

from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.interface import Needs
from harness.trainers.prime_rl.needs import FATAL_NAMES, needs


def _needs(document: dict[str, Any], ports: str = "own") -> Needs:
    return needs({"trainer": {"native": document, "ports": ports}})


@pytest.mark.parametrize(
    ("document", "gpus"),
    [
        ({}, 1),
        ({"inference": {}}, 2),
        ({"inference": "None"}, 1),
        ({"deployment": {"num_train_gpus": 4, "num_infer_gpus": 2}}, 4),
        ({"inference": {}, "deployment": {"num_train_gpus": 4, "num_infer_gpus": 2}}, 6),
    ],
)
def test_a_single_node_run_needs_the_gpus_of_its_parts(document: dict[str, Any], gpus: int) -> None:
    assert _needs(document) == Needs(nodes=1, gpus_per_node=gpus)


def test_a_run_shares_no_node_where_its_ports_are_fixed_or_it_kills_by_name() -> None:
    assert _needs({}, ports="fixed").is_alone
    assert _needs({"slurm": {"pre_run_command": "sudo pkill -f vllm"}}).is_alone
    assert not _needs({"slurm": {"pre_run_command": "echo pkills"}}).is_alone


@pytest.mark.parametrize(
    ("deployment", "inference", "nodes"),
    [
        ({"num_train_nodes": 1, "num_infer_nodes": 1, "num_infer_replicas": 3}, {}, 4),
        ({"num_train_nodes": 2}, {}, 3),
        ({"num_train_nodes": 2, "num_infer_nodes": "None"}, {}, 3),
        ({"num_train_nodes": 2}, None, 2),
        ({"num_train_nodes": 2}, {"deployment": {"type": "multi_node"}}, 4),
        ({"num_train_nodes": 2}, {"deployment": {"type": "multi_node", "num_nodes": 3}}, 5),
        ({"num_train_nodes": 1}, {"deployment": {"type": "disaggregated"}}, 3),
        (
            {"num_train_nodes": 1, "num_infer_replicas": 2},
            {
                "deployment": {
                    "type": "disaggregated",
                    "prefill_nodes_per_replica": 2,
                    "num_decode_replicas": 3,
                }
            },
            11,
        ),
    ],
)
def test_a_multi_node_run_needs_the_nodes_of_trainer_and_inference_alone(
    deployment: dict[str, Any], inference: dict[str, Any] | None, nodes: int
) -> None:
    document: dict[str, Any] = {"deployment": {"type": "multi_node", **deployment}}
    if inference is not None:
        document["inference"] = inference
    assert _needs(document) == Needs(nodes, 8, is_alone=True, fatal_names=FATAL_NAMES)


def test_gpus_per_node_may_be_others() -> None:
    deployment = {"type": "multi_node", "num_train_nodes": 1, "gpus_per_node": 4}
    assert _needs({"deployment": deployment}).gpus_per_node == 4


@pytest.mark.parametrize(
    ("deployment", "error"),
    [
        ({"type": "multi_node"}, "`deployment.num_train_nodes` is missing"),
        ({"type": "multi_node", "num_train_nodes": "2"}, "is '2', want a whole number"),
        ({"num_train_gpus": -1}, "`deployment.num_train_gpus` is -1"),
        ({"num_train_gpus": True}, "`deployment.num_train_gpus` is True"),
    ],
)
def test_counts_that_are_none_are_refused(deployment: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        _needs({"deployment": deployment})
