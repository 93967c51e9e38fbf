"""Turns a folder of prime-rl files, one base and one overlay per loss, into a sweep.

An overlay may hold a loss that the harness knows, and what names a run, which the harness sets
itself. Anything else would confound its arm, or get lost, and is refused.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.override import to_override
from harness.errors import UsageError
from harness.losses.config import parse_loss
from harness.printable import one_line
from harness.records.layout import MAX_NAME_LENGTH, is_valid_name
from harness.trainers.prime_rl.documents import read_document
from harness.trainers.prime_rl.loss_table import LOSS_KEY, parse_table
from harness.trainers.prime_rl.merge import merge, with_nulls
from harness.trainers.prime_rl.owned import (
    MAX_STEPS_KEYS,
    OWNED_KEYS,
    PRE_RUN_KEY,
    WANDB_TABLES,
)

PROJECT_KEYS = tuple(f"{table}.project" for table in WANDB_TABLES)
"""Keys that say where a run is looked at; all arms get the base's."""
MAX_SEEDS = 1000

_IDENTITY_KEYS = frozenset(OWNED_KEYS) - frozenset(MAX_STEPS_KEYS)
_FACTORS = ("adv_tau", "max_importance_ratio", "clamp")
"""Knobs that leave a loss much the same at its default, in every version of prime-rl."""
_WIDTH = 96

_LABEL = re.compile(r"orchestrator\..+\.labels")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+=-]*")
_ABSENT = object()


@dataclass(frozen=True)
class ImportedSweep:
    """A sweep made from files of prime-rl.

    Attributes:
        text: of the sweep file.
        remarks: what people must know of it, one sentence each; they stand in `text` as comments.
    """

    text: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Arm:
    name: str
    path: Path
    loss: Mapping[str, Any]
    left_out: tuple[str, ...]
    """Keys of the overlay that the sweep doesn't take over."""


def import_folder(
    base: Path,
    overlays: Sequence[Path],
    *,
    base_key: str = "trainer.base",
    name: str | None = None,
    num_seeds: int = 3,
) -> ImportedSweep:
    """Return a sweep: one arm per overlay, named by its file, the first the baseline.

    Each arm gets the loss of `@ base @ overlay` with the knobs that these two state; others take
    the defaults of `conf/loss`, which are those of the newest prime-rl.

    Args:
        base: what all arms share. It stands in the sweep as it is given here.
        base_key: the key of the trainer that takes the list of base files.
        name: what the question calls the recipe; the base's name without one, or that of its
            folder where it is just `base`.
        num_seeds: runs per arm.

    Raises:
        UsageError: naming the file and the key: a file that can't be read, no overlay, an overlay
            that changes nothing or states no loss, a loss that is unknown or uses names that
            prime-rl gave up, any other key that differs, two overlays with one loss or one name.
    """
    if not overlays:
        raise UsageError(f"`{base}`: no overlays given", "give one file per loss after the base")
    if not 1 <= num_seeds <= MAX_SEEDS:
        raise UsageError(
            f"{num_seeds} seeds: want 1 to {MAX_SEEDS}", "each is a run of every arm: 3 are usual"
        )
    shared = read_document(base)
    try:
        str(base).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"`{base}`: the path is no text", "rename the folder or the file"
        ) from None
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
    remarks = _remarks(base, shared, arms)
    text = _sweep_text(
        base, shared, arms, remarks, base_key=base_key, name=name, num_seeds=num_seeds
    )
    return ImportedSweep(text, remarks)


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
    if not inherited:
        return _Arm(name, path, parse_table(table, f"`{path}`"), tuple(outside))
    try:
        loss = parse_table(table, f"`{path}` with `{base}`")
    except UsageError as error:
        raise UsageError(
            error.message, f"take `[{LOSS_KEY}]` out of the base; {error.hint}"
        ) from None
    return _Arm(name, path, loss, tuple(outside))


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
    if key in _IDENTITY_KEYS or key in PROJECT_KEYS or _LABEL.fullmatch(key):
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


def _remarks(base: Path, shared: Mapping[str, Any], arms: Sequence[_Arm]) -> tuple[str, ...]:
    remarks = []
    leaves = dict(_leaves(with_nulls(shared)))
    replaced = [f"{key}={value!r}" for key, value in leaves.items() if _is_below(key, LOSS_KEY)]
    if replaced:
        remarks.append(f"loss knobs of {base}, replaced by each arm's loss: {', '.join(replaced)}")
    for arm in arms:
        projects = [key for key in arm.left_out if key in PROJECT_KEYS]
        names = [key for key in arm.left_out if key not in projects]
        if names:
            remarks.append(f"set by the harness instead of {arm.path.name}: {', '.join(names)}")
        remarks += [
            f"left out of {arm.path.name}: {key}; every arm gets the base's,"
            f" {'none' if leaves.get(key) is None else repr(leaves[key])}"
            for key in projects
        ]
        remarks += [
            f"no file states loss.{knob} of {arm.name}: it is {value!r}, whatever the default"
            " of prime-rl's version is"
            for knob, value in vars(parse_loss(arm.loss)).items()
            if knob not in arm.loss and knob not in _FACTORS
        ]
    if _find_steps(leaves) is None:
        remarks.append(
            f"no max_steps in {base}: add one to `common`, or the default of the harness holds"
        )
    if not base.is_absolute():
        remarks.append(
            f"the path {base} is relative to the folder that harness is called in: keep to it,"
            " or make it absolute"
        )
    return tuple(one_line(remark) for remark in remarks)


def _sweep_text(
    base: Path,
    shared: Mapping[str, Any],
    arms: Sequence[_Arm],
    remarks: Sequence[str],
    *,
    base_key: str,
    name: str | None,
    num_seeds: int,
) -> str:
    leaves = dict(_leaves(with_nulls(shared)))
    common = ["trainer=prime_rl", "task=external", "model=external"]
    common.append(to_override(base_key, [str(base)]))
    tasks = _find_tasks(shared)
    if tasks:
        common.append(to_override("task.name", tasks))
    model = leaves.get("model.name", leaves.get("trainer.model.name"))
    if isinstance(model, str):
        common.append(to_override("model.name", model))
    steps = _find_steps(leaves)
    if steps is not None:
        common.append(f"max_steps={steps}")
    if name is None:
        name = base.stem if base.stem != "base" else base.absolute().parent.name or base.stem
    lines = _comment(f"Made from {base} and one overlay per loss.")
    for remark in remarks:
        lines += _comment(f"{remark[0].upper()}{remark[1:]}.")
    lines += [
        f"question: {_quoted(f'Which loss holds up on {one_line(name)}?')}",
        "# The arm that every other one is compared with.",
        f"baseline: {_scalar(arms[0].name)}",
        "# Reruns of the same recipe: prime-rl has no seed for everything. Each costs a whole run",
        "# of every arm, and a single run per arm decides nothing.",
        f"seeds: [{', '.join(str(seed) for seed in range(num_seeds))}]",
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
    lines += [
        "may_differ: [loss]",
        "analysis:",
        "  primary: [solve_rate, mismatch_kl]",
        "  # `harness plan` shows the windows that runs are judged by; declare baseline_steps and",
        "  # last_steps of your own here before anything has run.",
    ]
    return "\n".join(lines) + "\n"


def _find_steps(leaves: Mapping[str, Any]) -> int | None:
    found = [leaves.get(key) for key in MAX_STEPS_KEYS]
    return next((v for v in found if isinstance(v, int) and not isinstance(v, bool)), None)


def _find_tasks(shared: Mapping[str, Any]) -> str:
    """Return what the training sources are called, joined by `+`."""
    sources: Any = shared
    for key in ("orchestrator", "train", "source"):
        sources = sources.get(key) if isinstance(sources, Mapping) else None
    names = []
    for source in sources if isinstance(sources, list) else ():
        leaves = dict(_leaves(source))
        names.append(leaves.get("name", leaves.get("env.taskset.id")))
    return "+".join(dict.fromkeys(name for name in names if isinstance(name, str)))


def _scalar(text: str) -> str:
    """Return `text` as YAML that is read back as that text, also by other readers."""
    looks_plain = _PLAIN.fullmatch(text) is not None and re.match(r"[A-Za-z_]", text) is not None
    is_word = text.lower() in ("true", "false", "null", "none", "yes", "no", "on", "off", "y", "n")
    return text if looks_plain and not is_word else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _comment(text: str) -> list[str]:
    wrapped = textwrap.wrap(one_line(text), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in wrapped]
