"""Which dataclass stands behind each `type` of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPED_GROUPS = ("loss", "task", "model", "trainer")
"""Plain groups: exactly one option each, its keys under the group's own name."""
DELTA_GROUPS = ("overlay", "experiment")
"""`@package _global_` groups: overlays combine, an experiment is one named point."""
GROUPS = TYPED_GROUPS + DELTA_GROUPS

MAX_SEED = 2**32 - 1
MAX_MAX_STEPS = 10**9


def type_names(group: str) -> tuple[str, ...]:
    """Return what `type` of `group` may be."""
    return tuple(_registry(group))


def type_of(group: str, name: str) -> type[Any]:
    """Return the dataclass behind `type: name` of `group`. `name` is one of `type_names`."""
    found = _registry(group)[name]
    if isinstance(found, str):
        from harness.trainers.registry import load_trainer  # noqa: PLC0415

        return load_trainer(name).config_type
    return found


def _registry(group: str) -> Mapping[str, type[Any] | str]:
    """Return type name -> dataclass, or module for trainers, which are loaded when asked for."""
    if group == "loss":
        from harness.losses.config import EXTERNAL, LOSS_TYPES  # noqa: PLC0415 (only if asked for)
        from harness.trainers.external import ExternalLoss  # noqa: PLC0415

        return {**LOSS_TYPES, EXTERNAL: ExternalLoss}
    if group == "trainer":
        from harness.trainers.registry import TRAINERS  # noqa: PLC0415

        return TRAINERS
    from harness.trainers.builtin.config import MODEL_TYPES, TASK_TYPES  # noqa: PLC0415
    from harness.trainers.external import ExternalModel, ExternalTask  # noqa: PLC0415

    if group == "task":
        return {**TASK_TYPES, "external": ExternalTask}
    assert group == "model", group
    return {**MODEL_TYPES, "external": ExternalModel}
