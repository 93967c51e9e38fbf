"""How many steps a run was to make, as far as the config of some trainer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.sources.contents import lookup
from analysis.sources.interface import parse_step

_MAX_STEPS_KEYS = (
    "max_steps",
    "trainer.max_steps",
    "trainer.total_training_steps",
    "total_training_steps",
    "num_training_steps",
)


def max_steps_of(config: Mapping[str, Any] | None) -> int | None:
    """Return how many steps a trainer's config says that it makes; None where it doesn't say."""
    for key in _MAX_STEPS_KEYS:
        steps = parse_step(lookup(config, key))
        if steps is not None and steps > 0:
            return steps
    return None
