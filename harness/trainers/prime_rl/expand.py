"""Completes the `trainer` group by the files that it names, so that a plan holds all they say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.resources import CONF_DIR
from harness.trainers.prime_rl.documents import SUFFIXES, read_document
from harness.trainers.prime_rl.loss_table import render_loss
from harness.trainers.prime_rl.merge import apply_overrides, merge, with_nulls
from harness.trainers.prime_rl.needs import is_multi_node, needs
from harness.trainers.prime_rl.owned import refuse_unusable, take_owned
from harness.trainers.prime_rl.pre_run import refuse_pre_run
from harness.trainers.prime_rl.render import set_seed
from harness.trainers.prime_rl.settings import (
    SEED_KEYS,
    checkout_error,
    find_checkout,
    find_loss_schema,
)
from harness.trainers.prime_rl.tables import get_table, get_value

BASES_DIR = CONF_DIR / "prime_rl"
"""The files of prime-rl that come with this project."""

_TABLES = ("trainer", "orchestrator", "inference", "slurm", "deployment", "run", "ckpt", "monitors")
_PATCH = "`trainer.patch`"


def expand(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with all that its files, `native` and `patch` say in `trainer.native`.

    The loss and the keys that the harness sets itself (see `owned`) are taken out, and kept in
    `trainer.replaced`. A pure function of the config and the files that it names.

    Args:
        config: checked.

    Raises:
        UsageError: a file that is missing, unreadable or has no effect; an override that leads
            nowhere or has no effect; what the harness can't run; a loss that this prime-rl can't
            hold.
    """
    trainer = config["trainer"]
    checkout = find_checkout(trainer)
    render_loss(config["loss"], version=find_loss_schema(trainer, checkout))
    merged, sources = _compose(trainer)
    where = sources[0] if len(sources) == 1 else "prime-rl's files, merged"
    for key in _TABLES:
        get_table(merged, key)
    native, replaced = take_owned(merged)
    refuse_unusable(native, where)
    refuse_pre_run(native, where)
    _refuse_infinite(native, "", where)
    _check_seed_keys(native, trainer)
    if is_multi_node(native):
        _check_multi_node(native, trainer, checkout, where)
    expanded = {
        **trainer,
        "checkout": str(checkout),
        "loss_version": str(trainer["loss_version"]),
        "base": [],
        "patch": [],
        "native": native,
        "replaced": replaced,
        "sources": sources,
    }
    result = {**config, "trainer": expanded}
    needs(result)
    return result


def find_base(text: str, key: str) -> Path:
    """Return the file that an entry of `trainer.base` names.

    Raises:
        UsageError: there is none; the hint has the near miss.
    """
    given = Path(text).expanduser()
    for path in (given, BASES_DIR / given):
        if path.is_file():
            return path
    shipped = [
        path.relative_to(BASES_DIR).as_posix()
        for path in sorted(BASES_DIR.rglob("*"))
        if path.suffix in SUFFIXES
    ]
    beside = [path.name for path in given.parent.glob("*") if path.suffix in SUFFIXES]
    raise UsageError(
        f"{key} is {text!r}: there is no such file in `{Path.cwd()}`, and none in conf/prime_rl",
        did_you_mean(
            text, {*shipped, *(str(given.parent / name) for name in beside)}, what="files"
        ),
    )


def _compose(trainer: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what the files, `native` and `patch` say together, and the parts that said it."""
    merged: dict[str, Any] = {}
    sources: list[str] = []
    for i, text in enumerate(trainer["base"]):
        path = find_base(text, f"`trainer.base[{i}]`")
        before, merged = merged, merge([merged, read_document(path)])
        if i:
            _refuse_idle(before, merged, f"`trainer.base[{i}]`: `{text}`")
        sources.append(f"`{text}`")
    if trainer["native"]:
        before, merged = merged, merge([merged, trainer["native"]])
        # Restating a value is fine here: one arm of a grid has the value of the base.
        if with_nulls(before) != with_nulls(merged):
            _refuse_idle(before, merged, "`trainer.native`")
        sources.append("`trainer.native`")
    for text in trainer["patch"]:
        before, merged = merged, apply_overrides(merged, [text], origin=_PATCH)
        _refuse_idle(before, merged, f"{_PATCH}: `{text}`")
        sources.append(f"`{text}`")
    return merged, sources


def _refuse_idle(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> None:
    if with_nulls(take_owned(before)[0]) != with_nulls(take_owned(after)[0]):
        return
    if with_nulls(before) == with_nulls(after):
        raise UsageError(f"{what} has no effect: what it says stands there already", "leave it out")
    raise UsageError(
        f"{what} has no effect: the `loss` group states the loss, and the harness names and bounds"
        " runs",
        "choose the loss with loss=…, the steps with max_steps=…; a folder of files with one loss"
        " each becomes a sweep by `harness import-toml`",
    )


def _refuse_infinite(value: Any, key: str, where: str) -> None:
    """Refuse what the JSON of a record has no number for."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_infinite(item, f"{key}.{name}" if key else str(name), where)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_infinite(item, f"{key}[{i}]", where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(
            f"{where}: `{key}` is {value}, want a finite number",
            f"quote it: prime-rl reads the text '{value}' as that number",
        )


def _check_seed_keys(native: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    for key in trainer["seed_keys"]:
        seeded = set_seed(native, [key], 0)
        if take_owned(seeded)[1]:
            raise UsageError(
                f"`{SEED_KEYS}` names `{key}`, which the harness sets itself",
                "name a seed of prime-rl, such as inference.vllm.seed",
            )


def _check_multi_node(
    native: Mapping[str, Any], trainer: Mapping[str, Any], checkout: Path, where: str
) -> None:
    """Refuse what would break prime-rl's own script."""
    if re.search(r"\s", str(checkout)):
        raise checkout_error(
            trainer,
            f" is {str(checkout)!r}, and prime-rl's multi-node script does not quote it",
            "move the checkout to a path without spaces",
        )
    template = get_value(native, "slurm.template_path")
    if template is not None and not (checkout / str(template)).is_file():
        raise UsageError(
            f"{where}: `slurm.template_path` is {template!r}, which is no file from the checkout",
            "give the path of the template, or leave it out for prime-rl's own",
        )
