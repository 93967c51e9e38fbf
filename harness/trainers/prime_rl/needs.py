"""What a run of prime-rl must get from the profile that it is executed with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.trainers.interface import Needs
from harness.trainers.prime_rl.owned import PRE_RUN_KEY
from harness.trainers.prime_rl.tables import get_table, get_value

FATAL_NAMES = ("prime_rl", "vllm", "torchrun")
"""prime-rl's multi-node script kills every process of its user with one in its command line."""
OWN_PORTS, FIXED_PORTS = "own", "fixed"

_KILLS = re.compile(r"\b(?:pkill|killall)\b")


def is_multi_node(document: Mapping[str, Any]) -> bool:
    """Whether prime-rl runs on several nodes, by a script of its own."""
    return bool(get_value(document, "deployment.type") == "multi_node")


def needs(config: Mapping[str, Any]) -> Needs:
    """Return what a run with the expanded `config` must get.

    Raises:
        UsageError: a number of nodes or GPUs that is none, naming the key.
    """
    document = config["trainer"]["native"]
    if is_multi_node(document):
        train = _count(document, "deployment.num_train_nodes", None)
        replicas = _count(document, "deployment.num_infer_replicas", 1)
        return Needs(
            nodes=train + replicas * _nodes_per_replica(document),
            gpus_per_node=_count(document, "deployment.gpus_per_node", 8),
            is_alone=True,
            fatal_names=FATAL_NAMES,
        )
    infer = _count(document, "deployment.num_infer_gpus", 1)
    has_inference = get_table(document, "inference") is not None
    kills = _KILLS.search(str(get_value(document, PRE_RUN_KEY, ""))) is not None
    return Needs(
        nodes=1,
        gpus_per_node=_count(document, "deployment.num_train_gpus", 1) + infer * has_inference,
        is_alone=config["trainer"]["ports"] == FIXED_PORTS or kills,
    )


def _nodes_per_replica(document: Mapping[str, Any]) -> int:
    """Return the nodes of one inference replica, as prime-rl fills them in."""
    if get_table(document, "inference") is None:
        return _count(document, "deployment.num_infer_nodes", 0)
    key = "inference.deployment"
    kind = get_value(document, f"{key}.type")
    default = 1
    if kind == "multi_node":
        default = _count(document, f"{key}.num_nodes", 2)
    elif kind == "disaggregated":
        default = sum(
            _count(document, f"{key}.{part}_nodes_per_replica", 1)
            * _count(document, f"{key}.num_{part}_replicas", 1)
            for part in ("prefill", "decode")
        )
    return _count(document, "deployment.num_infer_nodes", default)


def _count(document: Mapping[str, Any], key: str, default: int | None) -> int:
    value = get_value(document, key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        shown = "missing" if value is None else f"{value!r}, want a whole number"
        raise UsageError(f"prime-rl's `{key}` is {shown}", "set it to a whole number")
    return value
