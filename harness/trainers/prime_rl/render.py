"""Makes the one document that a run of prime-rl is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.trainers.interface import RunName
from harness.trainers.prime_rl.loss_table import render_loss, replace_loss
from harness.trainers.prime_rl.merge import apply_overrides
from harness.trainers.prime_rl.needs import is_multi_node
from harness.trainers.prime_rl.owned import name_document
from harness.trainers.prime_rl.ports import set_ports
from harness.trainers.prime_rl.settings import SEED_KEYS, find_checkout, find_loss_schema
from harness.trainers.prime_rl.tables import get_table

CUSTOM = "custom"


def render_document(
    config: Mapping[str, Any],
    name: RunName,
    max_steps: int,
    trainer_dir: Path,
    *,
    resume_step: int | None = None,
    ports: int | None = None,
) -> dict[str, Any]:
    """Return everything that prime-rl reads of a run, in one document.

    Nothing but the declarations of the checkout is read, and nothing is written.

    Args:
        config: expanded.
        trainer_dir: below which prime-rl makes a folder by the run's name.
        resume_step: of a whole checkpoint to go on from; None starts anew.
        ports: first port of a block of the run's own; None leaves prime-rl's.

    Raises:
        UsageError: a loss that this version of prime-rl can't hold, a seed key that leads nowhere.
    """
    trainer = config["trainer"]
    schema = find_loss_schema(trainer, find_checkout(trainer))
    document, _ = replace_loss(trainer["native"], render_loss(config["loss"], version=schema))
    document = set_seed(document, trainer["seed_keys"], name.seed)
    if not is_multi_node(document):
        document.pop("slurm", None)  # the run is in its job already
    elif get_table(document, "slurm") is None:
        document["slurm"] = {}  # prime-rl wants it there
    name_document(document, name, trainer_dir)
    document["max_steps"] = max_steps
    if resume_step is not None:
        document["resume"] = {"step": resume_step}
    if ports is not None:
        set_ports(document, ports)
    return document


def set_seed(document: Mapping[str, Any], keys: Sequence[str], seed: int) -> dict[str, Any]:
    """Return `document` with each of `keys` set to `seed`. Raises UsageError."""
    return apply_overrides(document, [f"{key}={seed}" for key in keys], origin=SEED_KEYS)


def is_custom(document: Mapping[str, Any]) -> bool:
    """Whether the document's loss is the exported one of this project."""
    return bool(document["trainer"]["loss"]["type"] == CUSTOM)
