"""What differs between two resolved configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.records.files import flatten
from harness.records.model import KeyDifference

_ABSENT = object()
_NOTES = ("trainer.replaced", "trainer.sources")
"""What `Trainer.expand` notes of the files that it read, for remarks."""


def find_differences(
    baseline: Mapping[str, Any], arm: Mapping[str, Any]
) -> tuple[KeyDifference, ...]:
    """Return the leaves whose values differ, sorted by key; None stands for an absent side.

    What a trainer noted of its files is no value of theirs, and left out.
    """
    left, right = flatten(baseline), flatten(arm)
    left, right = _without_filled(left, right), _without_filled(right, left)
    return tuple(
        KeyDifference(key, left.get(key), right.get(key))
        for key in sorted(left.keys() | right.keys())
        if left.get(key, _ABSENT) != right.get(key, _ABSENT) and not is_declared(key, _NOTES)
    )


def _without_filled(leaves: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Drop empty groups that hold keys on the other side: those keys are the difference."""
    return {
        key: value
        for key, value in leaves.items()
        if value != {} or not any(name.startswith(f"{key}.") for name in other)
    }


def is_declared(key: str, may_differ: Sequence[str]) -> bool:
    """Whether `key` is one of the keys in `may_differ`, or below one."""
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in may_differ)
