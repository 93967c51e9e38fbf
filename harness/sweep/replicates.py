"""Replicates: A/A arms, with the configuration of another arm and noise of their own.

What a replicate and its arm differ by is what runs of one configuration differ by. In a run's
configuration it is nothing but the number under `replicate`, which enters the run's identity and
no difference between arms; runs of other arms lack the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.model import PlannedArm, PlanRecord
from harness.trainers.registry import load_trainer

_OF = "replicate_of"


def load_replicate_of(content: Mapping[Any, Any], where: str) -> str:
    """Return the arm that the mapping `content` in place of an arm's overrides replicates.

    Raises:
        UsageError: it holds anything else; a replicate has its arm's configuration.
    """
    for key in content:
        if key != _OF:
            hint = "a replicate has exactly its arm's configuration: write `{replicate_of: ARM}`"
            if _OF not in content:
                hint = f"{did_you_mean(str(key), [_OF], what='keys')}; overrides stand in a list"
            raise UsageError(f"{where}: unknown key `{key}`", hint)
    name = content.get(_OF)
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise UsageError(
            f"{where}: `{_OF}` is {name!r}, want the name of an arm", f"write `{{{_OF}: ARM}}`"
        )
    return str(name)


def check_replicates(replicates: Mapping[str, str], arms: Sequence[str], path: Path) -> None:
    """Refuse a replicate of anything but an arm of its own configuration.

    Args:
        replicates: name of a replicate -> the arm that it is one of.
        arms: the names of all arms.

    Raises:
        UsageError: names the replicate.
    """
    plain = [name for name in arms if name not in replicates]
    for name, of in replicates.items():
        where = f"`{path}`: arm `{name}`"
        if of == name:
            raise UsageError(f"{where} is a replicate of itself", f"name another: {_list(plain)}")
        if of in replicates:
            raise UsageError(
                f"{where} is a replicate of `{of}`, which is a replicate itself",
                f"write `{{{_OF}: {replicates[of]}}}`: an arm may have several"
                if replicates[of] in plain
                else f"name an arm with overrides: {_list(plain)}",
            )
        if of not in plain:
            raise UsageError(
                f"{where} is a replicate of `{of}`, which is no arm",
                did_you_mean(of, plain, what="arms"),
            )


def check_baseline(baseline: str, replicates: Mapping[str, str], path: Path) -> None:
    """Refuse a baseline that is itself a replicate. Raises UsageError."""
    if baseline in replicates:
        raise UsageError(
            f"`{path}`: the baseline `{baseline}` is a replicate of `{replicates[baseline]}`",
            f"write `baseline: {replicates[baseline]}`: a replicate is compared with its arm alone",
        )


def share_resources(
    resources: Mapping[str, Mapping[str, Any]], replicates: Mapping[str, str]
) -> dict[str, Mapping[str, Any]]:
    """Return `resources` by arm with those of its arm for each replicate that names none."""
    shared = {name: resources[of] for name, of in replicates.items() if of in resources}
    return {**shared, **resources}


def number_replicates(replicates: Mapping[str, str | None]) -> dict[str, int]:
    """Return the number of each replicate among those of its arm, from 1 on.

    Args:
        replicates: arm -> the one that it replicates, or None, in the sweep file's order.
    """
    counts: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for name, of in replicates.items():
        if of is not None:
            numbers[name] = counts[of] = counts.get(of, 0) + 1
    return numbers


def describe_replicates(plan: PlanRecord) -> str:
    """Return what the replicates of a plan share with their arms; empty where there is none."""
    replicates = [arm for arm in plan.arms if arm.replicate_of is not None]
    if not replicates:
        return ""
    named = ", ".join(f"{arm.name} of {arm.replicate_of}" for arm in replicates)
    if load_trainer(plan.trainer).is_deterministic:
        return (
            f"replicates: {named}; equal seeds alone would repeat the numbers of their arms, so"
            " they draw prompts, sampling and engine faults anew and share each seed's start alone"
        )
    return (
        f"replicates: {named}; equal seeds are no replicate: with the trainer {plan.trainer} every"
        " run is a rerun, so a replicate only adds runs, and its seeds void nothing"
    )


def judged_arms(arms: Sequence[PlannedArm]) -> list[PlannedArm]:
    """Return the arms that are compared with the baseline, and it: those that replicate none."""
    return [arm for arm in arms if arm.replicate_of is None]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "there is none"
