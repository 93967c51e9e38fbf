"""Whether arms, as prime-rl resolved them, differ in what was declared and in nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.records.model import KeyDifference
from harness.sweep.difference import find_differences, is_declared
from harness.trainers.prime_rl.loss_table import LOSS_KEY
from harness.trainers.prime_rl.owned import MAX_STEPS_KEYS

NATIVE_KEY = "trainer.native"
"""Our key above prime-rl's own."""

_LOSS = "loss"
_MAX_STEPS = "max_steps"
_MAX_SHOWN = 3


@dataclass(frozen=True)
class ResolvedArm:
    """One arm, rendered under a name that all arms share.

    Attributes:
        document: as prime-rl is given it.
        config: as prime-rl resolved it; the document, where prime-rl was not asked.
        was_asked: whether it was.
    """

    name: str
    document: Mapping[str, Any]
    config: Mapping[str, Any]
    was_asked: bool


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[KeyDifference, ...]:
    """Return the leaves of prime-rl's configuration that differ; items of lists of tables count
    one by one (`orchestrator.train.source.0.ratio`)."""
    return find_differences(_indexed(one), _indexed(other))


def find_undeclared(
    arm: ResolvedArm,
    baseline: ResolvedArm,
    differs: Sequence[KeyDifference],
    may_differ: Sequence[str],
) -> tuple[KeyDifference, ...]:
    """Return those of `differs` that no key in `may_differ` accounts for.

    A key of `trainer.native` accounts for itself, for the keys below it, and for the same change in
    another place: prime-rl copies shared keys (`model.name`) to its parts.
    """
    allowed = [key.removeprefix(f"{NATIVE_KEY}.") for key in may_differ if _is_native(key)]
    if any(is_declared(_LOSS, [key]) or is_declared(key, [_LOSS]) for key in may_differ):
        allowed.append(LOSS_KEY)
    if _MAX_STEPS in may_differ:
        allowed += MAX_STEPS_KEYS
    if any(is_declared(NATIVE_KEY, [key]) for key in may_differ):
        return tuple(d for d in differs if _is_loss(d) and LOSS_KEY not in allowed)
    declared = [
        d
        for d in compare(baseline.document, arm.document)
        if is_declared(d.key, allowed) and not _is_loss(d)
    ]
    return tuple(
        d
        for d in differs
        if not is_declared(d.key, allowed) and not any(_is_copy(d, other) for other in declared)
    )


def refuse_undeclared(
    arm: ResolvedArm,
    baseline: ResolvedArm,
    undeclared: Sequence[KeyDifference],
    may_differ: Sequence[str],
) -> None:
    """Raise UsageError where there is one: it names arm, key and both values."""
    if not undeclared:
        return
    first = undeclared[0]
    shown = ", ".join(_shown(d) for d in undeclared[:_MAX_SHOWN])
    more = f" and {len(undeclared) - _MAX_SHOWN} more" if len(undeclared) > _MAX_SHOWN else ""
    names = ", ".join(f"`{key}`" for key in may_differ) or "nothing"
    stated = {d.key for d in compare(baseline.document, arm.document)}
    derived = "" if first.key in stated else " (prime-rl derived that: its files say no such thing)"
    key = _LOSS if _is_loss(first) else f"{NATIVE_KEY}.{first.key}"
    raise UsageError(
        f"arm `{arm.name}` differs from the baseline `{baseline.name}` in more than {names}:"
        f" {shown}{more}{derived}",
        f"state `{first.key}` in prime-rl's files or `trainer.native` for all arms, or add `{key}`"
        " to `may_differ`",
    )


def refuse_equal(arms: Sequence[ResolvedArm], ignored: frozenset[str]) -> None:
    """Refuse arms whose configurations are the same, but for the keys in `ignored`.

    Raises:
        UsageError: names both arms.
    """
    seen: dict[str, ResolvedArm] = {}
    for arm in arms:
        leaves = {d.key: d.arm for d in compare({}, arm.config) if d.key not in ignored}
        twin = seen.setdefault(json.dumps(leaves, sort_keys=True), arm)
        if twin is not arm:
            raise UsageError(
                f"the arms `{twin.name}` and `{arm.name}` are the same"
                + (" once prime-rl has resolved them" if arm.was_asked else " to prime-rl"),
                "remove one of them, or check that its overrides do what they should",
            )


def _is_native(key: str) -> bool:
    return key.startswith(f"{NATIVE_KEY}.")


def _is_loss(difference: KeyDifference) -> bool:
    return is_declared(difference.key, [LOSS_KEY])


def _is_copy(difference: KeyDifference, declared: KeyDifference) -> bool:
    """Whether prime-rl carried a declared change over to another key."""
    before, after = declared.baseline, declared.arm
    if (difference.baseline, difference.arm) != (before, after):
        return False
    is_same_name = difference.key.rpartition(".")[2] == declared.key.rpartition(".")[2]
    return is_same_name or (isinstance(before, str) and isinstance(after, str))


def _indexed(value: Any) -> Any:
    """Return `value` with lists of tables as tables by index, and NaN equal to itself."""
    if isinstance(value, Mapping):
        return {str(key): _indexed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, Mapping) for item in value):
            return {str(i): _indexed(item) for i, item in enumerate(value)}
        return [_indexed(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _shown(difference: KeyDifference) -> str:
    return f"`{difference.key}`: {difference.baseline!r} -> {difference.arm!r}"
