"""Turns a folder of prime-rl files, one base and one overlay per loss, into a sweep.

An overlay may hold a loss that the harness knows, and what names a run, which the harness sets
itself. Anything else would confound its arm, or get lost, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.override import to_override
from harness.errors import UsageError
from harness.losses.config import parse_loss
from harness.records.layout import MAX_NAME_LENGTH, is_valid_name
from harness.trainers.prime_rl.documents import read_document
from harness.trainers.prime_rl.loss_table import LOSS_KEY, parse_table
from harness.trainers.prime_rl.merge import merge, with_nulls

PRE_RUN_KEY = "slurm.pre_run_command"
IDENTITY_KEYS = (
    "run.name",
    "run.dir",
    "output_dir",
    "slurm.job_name",
    "monitors.wandb.project",
    "monitors.wandb.name",
    "monitors.wandb.group",
    "monitors.wandb.tags",
    "wandb.project",
    "wandb.name",
    "wandb.group",
    "wandb.tags",
)
"""Keys that name a run in prime-rl's files, beside the labels of its sandboxes."""

_LABEL = re.compile(r"orchestrator\..+\.labels")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+=-]*")
_ABSENT = object()


@dataclass(frozen=True)
class _Arm:
    name: str
    path: Path
    loss: Mapping[str, Any]
    left_out: tuple[str, ...]
    """Identity keys of the overlay, which the harness sets instead."""


def import_folder(base: Path, overlays: Sequence[Path], *, base_key: str = "trainer.base") -> str:
    """Return the text of a sweep: one arm per overlay, named by its file, the first the baseline.

    Each arm gets the loss of `@ base @ overlay` with the knobs that these two state; others take
    the defaults of `conf/loss`, which are those of the newest prime-rl.

    Args:
        base: what all arms share. It stands in the sweep as it is given here.
        base_key: the key of the trainer that takes the list of base files.

    Raises:
        UsageError: naming the file and the key: a file that can't be read, no overlay, an overlay
            that changes nothing or states no loss, a loss that is unknown or uses names that
            prime-rl gave up, any other key that differs, two overlays with one loss or one name.
    """
    if not overlays:
        raise UsageError(f"`{base}`: no overlays given", "give one file per loss after the base")
    shared = read_document(base)
    arms: list[_Arm] = []
    for path in overlays:
        arm = _read_arm(base, shared, path)
        for other in arms:
            if other.name.casefold() == arm.name.casefold():
                raise UsageError(
                    f"`{other.path}` and `{path}` would both be the arm `{arm.name}`",
                    "rename one of the files",
                )
            if parse_loss(other.loss) == parse_loss(arm.loss):
                raise UsageError(
                    f"`{other.path}` and `{path}` state the same loss", "leave one of them out"
                )
        arms.append(arm)
    return _sweep_text(base, shared, arms, base_key)


def _read_arm(base: Path, shared: Mapping[str, Any], path: Path) -> _Arm:
    name = path.stem
    if not is_valid_name(name):
        raise UsageError(
            f"`{path}`: {name!r} can't be the name of an arm",
            f"use letters, digits, `.`, `_`, `-`, at most {MAX_NAME_LENGTH}, no dot at the end",
        )
    overlay = read_document(path)
    merged = merge([shared, overlay])
    before, after = dict(_leaves(with_nulls(shared))), dict(_leaves(with_nulls(merged)))
    changed = sorted(
        key
        for key in before.keys() | after.keys()
        if before.get(key, _ABSENT) != after.get(key, _ABSENT)
    )
    if not changed:
        raise UsageError(
            f"`{path}` changes nothing of `{base}`",
            f"state its loss in `[{LOSS_KEY}]`, and leave that table out of the base",
        )
    outside = [key for key in changed if not _is_below(key, LOSS_KEY)]
    for key in outside:
        if not _is_identity(key, before, after):
            raise UsageError(
                f"`{path}`: `{key}` differs from `{base}`, and is no key of the loss",
                "arms may differ in their loss only: move it to the base, or write the sweep"
                " by hand",
            )
    trainer = overlay.get("trainer")
    if not isinstance(trainer, Mapping) or "loss" not in trainer:
        raise UsageError(f"`{path}` states no loss", f"add `[{LOSS_KEY}]` with a `type`")
    table = with_nulls(merged["trainer"]["loss"])
    if not isinstance(table, Mapping):
        raise UsageError(f"`{path}`: `{LOSS_KEY}` is {table!r}, want a table", "add its `type`")
    own = trainer["loss"]
    inherited = [key for key in table if not isinstance(own, Mapping) or key not in own]
    where = f"`{path}`" if not inherited else f"`{path}` with `{base}`"
    return _Arm(name, path, parse_table(table, where), tuple(outside))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves with their keys; lists of tables are walked, so that a key has a name."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{key}[{i}]")
    elif value != {} or key:
        yield key, value


def _is_below(key: str, prefix: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}.")


def _is_identity(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if key in IDENTITY_KEYS or _LABEL.fullmatch(key):
        return True
    return key == PRE_RUN_KEY and _differs_by_labels(before, after)


def _differs_by_labels(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the pre-run command is the base's but for the labels that it clears."""
    command = before.get(PRE_RUN_KEY)
    if not isinstance(command, str):
        return False
    for key in before.keys() & after.keys():
        if _LABEL.fullmatch(key):
            for old, new in zip(_texts(before[key]), _texts(after[key]), strict=False):
                command = command.replace(old, new) if old else command
    return command == after.get(PRE_RUN_KEY)


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _sweep_text(base: Path, shared: Mapping[str, Any], arms: Sequence[_Arm], base_key: str) -> str:
    common = ["trainer=prime_rl", "task=external", "model=external"]
    common.append(to_override(base_key, [str(base)]))
    model = shared.get("model")
    if isinstance(model, Mapping) and isinstance(model.get("name"), str):
        common.append(to_override("model.name", model["name"]))
    if isinstance(shared.get("max_steps"), int):
        common.append(f"max_steps={shared['max_steps']}")
    lines = [f"# Imported from {_comment(str(base))} and one overlay per loss."]
    before = dict(_leaves(shared))
    replaced = [f"{key}={value!r}" for key, value in before.items() if _is_below(key, LOSS_KEY)]
    if replaced:
        lines.append(f"# Replaced in the base by each arm's loss: {_comment(', '.join(replaced))}")
    for arm in arms:
        if arm.left_out:
            keys = ", ".join(arm.left_out)
            lines.append(f"# Set by the harness instead of {arm.path.name}: {_comment(keys)}")
    lines += [
        f"question: {_quoted(f'Which loss holds up on the recipe {base.stem}?')}",
        f"baseline: {_scalar(arms[0].name)}",
        "# prime-rl has no seed for everything: seeds are reruns.",
        "seeds: [0]",
        "pairing: none",
        "common:",
        *(f"  - {_scalar(text)}" for text in common),
        "arms:",
    ]
    for arm in arms:
        overrides = [f"loss={arm.loss['type']}"]
        overrides += [
            to_override(f"loss.{knob}", value) for knob, value in arm.loss.items() if knob != "type"
        ]
        lines.append(f"  {_scalar(arm.name)}: [{', '.join(_scalar(text) for text in overrides)}]")
    lines.append("may_differ: [loss]")
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    """Return `text` as YAML that is read back as that text, also by other readers."""
    looks_plain = _PLAIN.fullmatch(text) is not None and re.match(r"[A-Za-z_]", text) is not None
    is_word = text.lower() in ("true", "false", "null", "none", "yes", "no", "on", "off", "y", "n")
    return text if looks_plain and not is_word else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
