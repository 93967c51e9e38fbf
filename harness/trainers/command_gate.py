"""Checks the arms of a sweep before anything is queued: does the program see a difference between
them?

A program that is given its config as a file (`{config}`) sees all of it. One whose own keys are
rendered sees its arguments, its variables and those keys: what none of them takes over, such as a
misspelt knob of a foreign loss, reaches it nowhere.

All arms are filled in with the same names and folders, so that nothing which only tells runs apart
counts as a difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.near import near_miss
from harness.records.files import flatten
from harness.sweep.difference import find_differences, is_declared
from harness.trainers.command import (
    NATIVE,
    PLACEHOLDERS,
    START_PLACEHOLDERS,
    TRAINER,
    Filled,
    fill_command,
    find_placeholders,
)
from harness.trainers.interface import Candidate, Progress, Verdict
from harness.trainers.native_config import NONE, NUMBERS

CONFIG, RUN_DIR = "config", "run_dir"
"""Placeholders for the config and for the folder that holds it."""

_CONFIG_BELOW = f"{{{RUN_DIR}}}/config.json"
_FREE_GROUPS = ("loss.options", "task.options", "model.options")
"""Whose keys no schema knows."""
_MAX_SHOWN = 3


@dataclass(frozen=True)
class _Arm:
    """One arm, filled in with words that all arms share.

    Attributes:
        is_rendered: whether the program is given its own keys.
        gets_config: whether it is told where its whole config is.
    """

    name: str
    config: Mapping[str, Any]
    filled: Filled
    is_rendered: bool
    gets_config: bool


def validate(
    candidates: Sequence[Candidate], baseline: str, may_differ: Sequence[str], progress: Progress
) -> Verdict:
    """Return where the program's own keys differ from the `baseline`'s, and what doesn't reach it.

    Raises:
        UsageError: two arms are the same to the program.
    """
    del may_differ, progress  # keys of the config were compared; the program can't be asked
    arms = [_fill(one) for one in candidates if one.config["trainer"]["type"] == TRAINER.name]
    judged = [arm for arm in arms if arm.is_rendered and not arm.gets_config]
    for twins in _find_twins(judged):
        _refuse(twins[0], twins[1], judged)
    base = next((arm for arm in arms if arm.name == baseline), None)
    return Verdict(
        remarks=tuple(_remark_unread(arms)),
        warnings=tuple(_warn_of_lost(judged)),
        differs={
            arm.name: find_differences(base.filled.native, arm.filled.native)
            for arm in arms
            if base is not None and base.is_rendered and arm.is_rendered
        },
    )


def _fill(candidate: Candidate) -> _Arm:
    trainer = candidate.config["trainer"]
    is_rendered = trainer["render"] != NONE
    # Its name stands for each value: equal texts are equal for any run. How long runs are is no
    # part of what they compute.
    values = {
        name: "0" if name in NUMBERS else f"{{{name}}}"
        for name in (*PLACEHOLDERS, *START_PLACEHOLDERS)
    }
    values["seed"] = str(candidate.name.seed)
    filled = fill_command({**trainer, NATIVE: _ordered(trainer[NATIVE])}, values, Path(NATIVE))
    texts = [*trainer["argv"], *trainer["env"].values(), trainer["cwd"] or ""]
    if is_rendered:
        texts += (leaf for leaf in _leaves(trainer[NATIVE]) if isinstance(leaf, str))
    names = {CONFIG} if is_rendered else {CONFIG, RUN_DIR}
    gets_config = any(names & find_placeholders(text) or _CONFIG_BELOW in text for text in texts)
    return _Arm(candidate.name.arm, candidate.config, filled, is_rendered, gets_config)


def _find_twins(arms: Sequence[_Arm]) -> list[list[_Arm]]:
    """Return the arms whose programs are given the same, in groups of two or more."""
    groups: dict[str, list[_Arm]] = {}
    for arm in arms:
        given = arm.filled
        seen = json.dumps([given.argv, dict(given.env), given.cwd, given.file], sort_keys=True)
        groups.setdefault(seen, []).append(arm)
    return [group for group in groups.values() if len(group) > 1]


def _refuse(one: _Arm, other: _Arm, judged: Sequence[_Arm]) -> None:
    lost = _lost_keys(one, other)
    message = (
        f"the arms `{one.name}` and `{other.name}` are the same to the program: its arguments,"
        " variables and keys (`trainer.native`) are equal"
    )
    if not lost:
        raise UsageError(
            message, "remove one of them, or check that its overrides do what they should"
        )
    shown = ", ".join(f"`{key}`{_meant(key, judged)}" for key in lost[:_MAX_SHOWN])
    more = f" and {len(lost) - _MAX_SHOWN} more" if len(lost) > _MAX_SHOWN else ""
    raise UsageError(
        message,
        f"nothing passes on {shown}{more}: write `${{{lost[0]}}}` where `trainer.native` or"
        f" `trainer.argv` is to take it over, or give the program all of it: `{{{CONFIG}}}`, in"
        " `trainer.env` for example",
    )


def _lost_keys(one: _Arm, other: _Arm) -> list[str]:
    """Return the keys in which the configs of two arms differ that the program can't tell apart.

    Where the type of a group differs, that stands for all of its keys.
    """
    keys = [d.key for d in find_differences(one.config, other.config)]
    types = [key for key in keys if key.endswith(".type") and key.count(".") == 1]
    groups = [key.removesuffix(".type") for key in types]
    return [
        key
        for key in keys
        if key in types or not is_declared(key, ["trainer", "max_steps", *groups])
    ]


def _remark_unread(arms: Sequence[_Arm]) -> Iterator[str]:
    """Say where equal commands leave it to the program to find its config."""
    for twins in _find_twins([a for a in arms if not a.is_rendered and not a.gets_config]):
        names = ", ".join(f"`{arm.name}`" for arm in twins)
        yield (
            f"The command of {names} is the same, and passes neither {{{CONFIG}}} nor {{{NATIVE}}}:"
            " the program finds its arm in HARNESS_RUN_DIR/config.json."
        )


def _warn_of_lost(judged: Sequence[_Arm]) -> Iterator[str]:
    """Name the knobs whose values stand nowhere in what the program is given."""
    lost: dict[str, list[str]] = {}
    for arm in judged:
        given = arm.filled
        values = [*_leaves(given.native), *given.argv, *given.env.values(), given.cwd or ""]
        for key, value in flatten(arm.config).items():
            if is_declared(key, _FREE_GROUPS) and not _stands_in(value, values):
                lost.setdefault(key, []).append(arm.name)
    for key, names in lost.items():
        shown = ", ".join(f"`{name}`" for name in names)
        yield (
            f"Nothing that the program is given holds the value of `{key}`{_meant(key, judged)}"
            f" in {shown}."
        )


def _stands_in(value: Any, values: Iterable[Any]) -> bool:
    """Whether `value` is one of `values`, or part of a text among them."""
    if isinstance(value, (Mapping, list, tuple)) and not value:
        return True  # nothing to pass on
    if isinstance(value, (list, tuple)):
        return all(_stands_in(item, values) for item in value)
    text = str(value)
    if isinstance(value, str):
        part = re.compile(re.escape(text))
    else:  # 5 is no part of 256 or 0.5
        part = re.compile(rf"(?<!\d)(?<!\d\.){re.escape(text)}(?!\d|\.\d)")
    return any(
        value == other or (part.search(other) if isinstance(other, str) else text == str(other))
        for other in values
    )


def _meant(key: str, judged: Sequence[_Arm]) -> str:
    """Return a question after the key that was probably meant; empty where nothing is close."""
    group = next((group for group in _FREE_GROUPS if is_declared(key, [group])), None)
    if group is None:
        return ""
    last = key.rpartition(".")[2]
    natives = {
        name.rpartition(".")[2]: name for arm in judged for name in flatten(arm.filled.native)
    }
    others = {
        name.rpartition(".")[2]: name
        for arm in judged
        for name in flatten(arm.config)
        if is_declared(name, [group]) and name != key
    }
    near = near_miss(last, {*natives, *others})
    if near in natives:
        return f" (meant for `trainer.{NATIVE}.{natives[near]}`?)"
    return "" if near is None else f" (or `{others[near]}`?)"


def _leaves(value: Any) -> list[Any]:
    """Return every value that is no list and no group."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _ordered(value: Any) -> Any:
    """Return `value` with the keys of its groups sorted: their order tells no arms apart."""
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    return value
