"""What a checkpoint of the built-in trainer says it was made with. Light: needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.records.files import flatten
from harness.records.model import KeyDifference

_WITH_AVERAGES = "adamw"


def about_checkpoint(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what another run must share with one of `config` to start from its checkpoints."""
    return {
        "task": dict(config["task"]),
        "model": dict(config["model"]),
        "trainer": {"optim": {"type": config["trainer"]["optim"]["type"]}},
    }


def what_does_not_fit(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[KeyDifference]:
    """Return the keys in which a checkpoint made with `saved` does not fit a run of `wanted`.

    Of an optimiser it only matters whether it keeps averages. An empty `saved` says nothing.
    """
    before, now = flatten(saved), flatten(wanted)
    return [
        KeyDifference(key, before.get(key), now.get(key))
        for key in (sorted(before.keys() | now.keys()) if saved else ())
        if before.get(key) != now.get(key) and not _is_alike(before.get(key), now.get(key), key)
    ]


def _is_alike(before: Any, now: Any, key: str) -> bool:
    return key == "trainer.optim.type" and _WITH_AVERAGES not in (before, now)
