"""What a reader of a plan must know about the arms of prime-rl that it shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.trainers.prime_rl.export_loss import LOSS_FILE
from harness.trainers.prime_rl.loss_table import LOSS_KEY, render_loss, unrendered_knobs
from harness.trainers.prime_rl.needs import is_multi_node
from harness.trainers.prime_rl.owned import MAX_STEPS_KEYS
from harness.trainers.prime_rl.render import CUSTOM
from harness.trainers.prime_rl.settings import find_checkout, find_loss_schema
from harness.trainers.prime_rl.tables import get_table, get_value

_GRACE_KEY = "slurm.cleanup_grace_period"
_GRACE_S = 3600
"""prime-rl's default."""


def remarks(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences about an expanded config: one per topic, most telling first."""
    trainer = config["trainer"]
    document = trainer["native"]
    found = (
        _replaced_loss(trainer["replaced"]),
        *_loss(config),
        _seeds(trainer["seed_keys"]),
        _replaced_steps(trainer["replaced"], config.get("max_steps")),
        _checkpoints(document),
        _grace(document) if is_multi_node(document) else None,
        _server(document),
        _sources(trainer["sources"]),
        _replaced_names(trainer["replaced"]),
    )
    return tuple(sentence for sentence in found if sentence is not None)


def _replaced_loss(replaced: Mapping[str, Any]) -> str | None:
    knobs = {key: value for key, value in replaced.items() if key.startswith(f"{LOSS_KEY}.")}
    if not knobs:
        return None
    return f"The `loss` group replaces the whole loss of prime-rl's files: {_shown(knobs)}."


def _loss(config: Mapping[str, Any]) -> Iterator[str]:
    trainer, loss = config["trainer"], config["loss"]
    schema = find_loss_schema(trainer, find_checkout(trainer))
    if render_loss(loss, version=schema)["type"] == CUSTOM:
        yield (
            f"prime-rl (version {schema.name}) has no `{loss['type']}`: the loss runs as"
            f" `{CUSTOM}`, from the exported `{LOSS_FILE}`."
        )
    knobs = unrendered_knobs(loss, version=schema)
    if knobs:
        names = _names(f"loss.{name}" for name in knobs)
        yield f"This prime-rl (losses {schema.name}) has no {names}: its loss runs without."


def _seeds(seed_keys: Iterable[str]) -> str:
    names = _names(seed_keys)
    if not names:
        return (
            "Seeds are reruns: prime-rl has no seed for everything, and `trainer.seed_keys` names"
            " none of its own."
        )
    return f"Seeds set {names}; all else that is random differs from run to run."


def _replaced_steps(replaced: Mapping[str, Any], max_steps: Any) -> str | None:
    others = {
        key: replaced[key]
        for key in MAX_STEPS_KEYS
        if key in replaced and replaced[key] != max_steps
    }
    if not others or max_steps is None:
        return None
    return f"Runs end after `max_steps` {max_steps}; prime-rl's files say {_shown(others)}."


def _checkpoints(document: Mapping[str, Any]) -> str | None:
    if get_table(document, "ckpt") is None and get_table(document, "trainer.ckpt") is None:
        return "No `[ckpt]`: a run that is interrupted starts over."
    every = (get_value(document, key) for key in ("ckpt.interval", "trainer.ckpt.interval"))
    if all(value is None for value in every):
        return "No `ckpt.interval`: a run that is interrupted before its end starts over."
    return None


def _grace(document: Mapping[str, Any]) -> str | None:
    seconds = get_value(document, _GRACE_KEY, _GRACE_S)
    if seconds == 0:
        return None
    return f"A run that crashes holds its nodes for up to {seconds} s (`{_GRACE_KEY}`)."


def _server(document: Mapping[str, Any]) -> str | None:
    if is_multi_node(document) or get_table(document, "inference") is not None:
        return None
    return (
        "No `[inference]`: runs would all train one server that somebody else starts, so start one"
        " run at a time."
    )


def _sources(sources: list[str]) -> str | None:
    return f"Composed of {', '.join(sources)}, in this order." if len(sources) > 1 else None


def _replaced_names(replaced: Mapping[str, Any]) -> str | None:
    names = [
        key for key in replaced if key not in MAX_STEPS_KEYS and not key.startswith(f"{LOSS_KEY}.")
    ]
    return f"Set by the harness instead of prime-rl's files: {_names(names)}." if names else None


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` {value!r}" for key, value in values.items())


def _names(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
