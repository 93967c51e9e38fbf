"""Every trainer by its name: one line each. A trainer is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.trainers.interface import Trainer

TRAINERS: Mapping[str, str] = {
    "builtin": "harness.trainers.builtin.trainer",
    "command": "harness.trainers.command",
    "prime_rl": "harness.trainers.prime_rl.trainer",
}
"""`trainer.type` -> module that holds it as `TRAINER`."""


def load_trainer(name: str) -> Trainer:
    """Return the trainer called `name`. Raises UsageError with the near miss."""
    if name not in TRAINERS:
        raise UsageError(
            f"there is no trainer `{name}`", did_you_mean(name, TRAINERS, what="trainers")
        )
    trainer = importlib.import_module(TRAINERS[name]).TRAINER
    assert isinstance(trainer, Trainer), name
    return trainer
