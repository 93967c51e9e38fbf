"""Free-form `task` and `model` groups for trainers whose tasks and models the harness doesn't know.

What they hold is handed to the trainer as it is, takes part in a run's identity and is compared
between arms like any other key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.config.fields import choice


@dataclass(frozen=True, kw_only=True)
class ExternalLoss:
    """A loss of a foreign trainer, which its own keys (`trainer.native`) choose.

    `name` is what reports call it. `options` are its knobs: `trainer.native` takes them over where
    it refers to them (`${loss.options.clip}`).
    """

    type: str = choice("external", "external")
    name: str = "external"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExternalTask:
    """A task of a foreign trainer. `name` is what reports call it."""

    type: str = choice("external", "external")
    name: str = "external"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExternalModel:
    """A model of a foreign trainer. `name` is what reports call it."""

    type: str = choice("external", "external")
    name: str = "external"
    options: dict[str, Any] = field(default_factory=dict)
