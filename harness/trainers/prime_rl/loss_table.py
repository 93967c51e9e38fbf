"""Renders the `loss` group into prime-rl's `[trainer.loss]`, and reads it back.

prime-rl's own losses become its own tables, knob by knob, so that no default of a version decides
anything. A loss that the version lacks becomes `type = "custom"`: prime-rl imports `CUSTOM_PATH`
and hands it `kwargs`, the loss group without its nulls (prime-rl's files can't hold null in a
free-form table), so an absent knob means null there.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.check import check_group
from harness.errors import UsageError
from harness.losses.config import LOSS_TYPES, parse_loss
from harness.near import did_you_mean
from harness.records.files import flatten
from harness.trainers.prime_rl.loss_schema import LossSchema, find_schema

CUSTOM_PATH = "ablation_loss.compute"
"""The function behind every loss that prime-rl lacks, importable in prime-rl's environment."""
LOSS_KEY = "trainer.loss"

NATIVE = ("ipo", "icepop", "ppo", "cispo")
"""Losses that mean here what prime-rl's of the same name mean."""

RENAMED: Mapping[str, str] = {
    "ipo_threshold": "`eps` since prime-rl#3418, and IPO had a KL term (`kl_tau` 1e-3) then",
    "dppo_mask_low": "gone since prime-rl#3418: the loss here is `dppo_tv`, without a KL term",
    "dppo_mask_high": "gone since prime-rl#3418: the loss here is `dppo_tv`, without a KL term",
    "ipo_mask_low": "`dppo_mask_low` since prime-rl#2187, and gone since prime-rl#3418",
    "ipo_mask_high": "`dppo_mask_high` since prime-rl#2187, and gone since prime-rl#3418",
    "kl_tau": "gone from newer prime-rl; only 0 means what the loss here means",
}
"""Knobs of prime-rl that are called otherwise now, and how."""

_NEUTRAL: Mapping[str, Any] = {"kl_tau": 0.0, "score_centering": False}
"""Knobs of prime-rl that the losses here don't have -> the value that leaves them out."""
_OLD_EPS = "ipo_threshold"


@dataclass(frozen=True)
class _Bounds:
    """What prime-rl accepts where it is stricter than the loss group."""

    kind: str
    knob: str
    low: float
    high: float
    low_is_open: bool = False

    def holds(self, value: float) -> bool:
        return (self.low < value if self.low_is_open else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        if self.high != float("inf"):
            return f"a number from {self.low:g} to {self.high:g}"
        return f"a number {'above' if self.low_is_open else 'of at least'} {self.low:g}"


_STRICTER = (
    _Bounds("icepop", "ratio_low", 0, float("inf"), low_is_open=True),
    _Bounds("cispo", "ratio_low", 0, 1),
    _Bounds("cispo", "ratio_high", 1, float("inf")),
)


def render_loss(loss: Mapping[str, Any], *, version: LossSchema | str) -> dict[str, Any]:
    """Return the whole `[trainer.loss]` table that means what the `loss` group means.

    Args:
        loss: a resolved `loss` group: `type` and knobs; knobs left out take their defaults.
        version: what prime-rl has: a name in SCHEMAS, or what `read_checkout` found.

    Raises:
        UsageError: unknown version, type or knob; a knob that the version lacks and that is not at
            its default (see `unrendered_knobs`); a value that prime-rl refuses; a knob of prime-rl
            whose neutral value is unknown.
    """
    schema = find_schema(version) if isinstance(version, str) else version
    knobs = _knobs_of(loss)
    kind = knobs.pop("type")
    if kind not in NATIVE or kind not in schema.knobs:
        kept = {name: value for name, value in knobs.items() if value is not None}
        return {"type": "custom", "import_path": CUSTOM_PATH, "kwargs": {"type": kind, **kept}}
    table: dict[str, Any] = {"type": kind}
    for name in schema.knobs[kind]:
        own = "eps" if name == _OLD_EPS else name
        if own in knobs:
            table[name] = _within_bounds(kind, own, knobs[own])
        elif name in _NEUTRAL:
            table[name] = _NEUTRAL[name]
        else:
            raise UsageError(
                f"prime-rl's loss `{kind}` has the knob `{name}`, unknown here"
                f" (version {schema.name})",
                "its default may change what the loss means: use a version that is known",
            )
    for name, value in unrendered_knobs(loss, version=schema).items():
        default = getattr(LOSS_TYPES[kind], name)
        if value != default:
            raise UsageError(
                f"`loss.{name}` is {value:g}, but prime-rl's `{kind}` has no such knob"
                f" (version {schema.name})",
                f"leave it at {default:g}, or use a prime-rl that has it",
            )
    return table


def unrendered_knobs(loss: Mapping[str, Any], *, version: LossSchema | str) -> dict[str, Any]:
    """Return the knobs of `loss` that its table in this version can't hold: what a plan warns of.

    The loss then runs without them: before prime-rl had `max_importance_ratio`, ratios had no cap.

    Raises:
        UsageError: unknown version, type or knob.
    """
    schema = find_schema(version) if isinstance(version, str) else version
    knobs = _knobs_of(loss)
    kind = knobs.pop("type")
    if kind not in NATIVE or kind not in schema.knobs:
        return {}
    held = {"eps" if name == _OLD_EPS else name for name in schema.knobs[kind]}
    return {name: value for name, value in knobs.items() if name not in held}


def replace_loss(
    document: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `document` with `table` as its whole `[trainer.loss]`, and what that replaced.

    A merge would leave knobs of another loss standing, which prime-rl refuses.

    Returns:
        The new document, and the document's own loss knobs by dotted key, as a plan shows them.

    Raises:
        UsageError: `trainer` is no table.
    """
    result = copy.deepcopy(dict(document))
    trainer = result.setdefault("trainer", {})
    if not isinstance(trainer, dict):
        raise UsageError(
            f"`trainer` is {trainer!r}, want a table",
            "prime-rl's `[trainer]` holds `[trainer.loss]`",
        )
    replaced = flatten({"trainer": {"loss": trainer["loss"]}}) if "loss" in trainer else {}
    trainer["loss"] = copy.deepcopy(dict(table))
    return result, {key: value for key, value in replaced.items() if value != {}}


def parse_table(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the `loss` group that a `[trainer.loss]` table states: `type` and the knobs in it.

    Knobs that it leaves out are left out here, too. `table` is in prime-rl's newest names.

    Raises:
        UsageError: naming `where` and the key: no or an unknown type, a knob that the loss lacks or
            that prime-rl renamed, values that the loss or prime-rl does not take, knobs that can't
            be expressed here, a custom loss of others.
    """
    key = f"{where}: `{LOSS_KEY}"
    for name in table:
        if name in RENAMED and not (name in _NEUTRAL and table[name] == _NEUTRAL[name]):
            raise UsageError(
                f"{key}.{name}` is a key that prime-rl renamed or dropped",
                f"it is {RENAMED[name]}",
            )
    kind = table.get("type")
    if kind is None:
        raise UsageError(
            f"{key}` has no `type`, and the default depends on prime-rl's version",
            f"name it: {', '.join((*NATIVE, 'custom'))}",
        )
    if kind == "custom":
        if table.get("import_path") != CUSTOM_PATH:
            raise UsageError(
                f"{key}.import_path` is {table.get('import_path')!r}, a loss unknown here",
                f"only `{CUSTOM_PATH}` can be read back",
            )
        kwargs = table.get("kwargs")
        stated = dict(kwargs) if isinstance(kwargs, Mapping) else {}
        extra = set(table) - {"type", "import_path", "kwargs"}
    elif kind in NATIVE:
        stated = {name: value for name, value in table.items() if name not in _NEUTRAL}
        extra = {name for name in _NEUTRAL if name in table and table[name] != _NEUTRAL[name]}
    else:
        raise UsageError(
            f"{key}.type` is {kind!r}, which is no loss of prime-rl",
            f"this project has it: give the sweep an arm of its own, `{kind}: [loss={kind}]`"
            if str(kind) in LOSS_TYPES
            else did_you_mean(str(kind), (*NATIVE, "custom"), what="losses"),
        )
    if extra:
        name = sorted(extra)[0]
        raise UsageError(
            f"{key}.{name}` is {table[name]!r}, which the loss here does not have", "leave it out"
        )
    _check_values(stated, LOSS_KEY if kind in NATIVE else f"{LOSS_KEY}.kwargs", where)
    try:
        parse_loss(stated)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from None
    return stated


def _check_values(stated: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse values of knobs that no config of the loss, or no table of prime-rl, holds."""
    kind = stated.get("type")
    if not isinstance(kind, str) or kind not in LOSS_TYPES:
        return
    names = {field.name for field in dataclasses.fields(LOSS_TYPES[kind])}
    known = {name: value for name, value in stated.items() if name in names}
    check_group(LOSS_TYPES[kind], known, key, lambda _: where)
    if key == LOSS_KEY:
        try:
            for name, value in known.items():
                _within_bounds(kind, name, value, key)
        except UsageError as error:
            raise UsageError(f"{where}: {error.message}", error.hint) from None


def _knobs_of(loss: Mapping[str, Any]) -> dict[str, Any]:
    return dict(vars(parse_loss(loss)))


def _within_bounds(kind: str, name: str, value: Any, key: str = "loss") -> Any:
    for bounds in _STRICTER:
        if (bounds.kind, bounds.knob) == (kind, name) and not bounds.holds(value):
            raise UsageError(
                f"`{key}.{name}` is {value:g}, and prime-rl's `{kind}` wants {bounds}",
                "a value next to the bound does the same, such as 1e-30"
                if bounds.low_is_open
                else f"choose {bounds}",
            )
    return value
