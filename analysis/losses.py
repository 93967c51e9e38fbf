"""Where the loss and its knobs stand in the resolved config of a run, by trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOSS_ROOTS = (
    "loss",
    "trainer.loss",
    "algorithm.rollout_correction",
    "actor_rollout_ref.actor.policy_loss",
    "loss_type",
)
"""This project; prime-rl; verl's correction and its policy loss; TRL. In order of preference."""


def loss_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loss of a resolved config with all its knobs; empty where none is found.

    A trainer that keeps it in several places gives one entry for each of them.
    """
    found = {root: value for root in LOSS_ROOTS if (value := _at(config, root)) is not None}
    if not found:
        return {}
    if len(found) == 1:
        [value] = found.values()
        return dict(value) if isinstance(value, Mapping) else {"type": value}
    return found


def _at(config: Mapping[str, Any], dotted: str) -> Any:
    node: Any = config
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
