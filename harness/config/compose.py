"""Composes configurations. The only module that talks to Hydra and OmegaConf.

Hydra chooses the options and merges them. Everything else (types, unknown keys, missing values)
is checked here on the plain result, where a message can name the file and the near miss.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.check import MISSING, check_group, check_value, defaults_of, output_keys
from harness.config.conf_dir import Conf, ConfFile
from harness.config.fields import Limits
from harness.config.groups import (
    DELTA_GROUPS,
    GROUPS,
    MAX_MAX_STEPS,
    MAX_SEED,
    TYPED_GROUPS,
    type_names,
    type_of,
)
from harness.config.locator import Locator, is_same_or_below
from harness.config.override import Override, to_override
from harness.config.stability import refuse_unstable
from harness.errors import UsageError, VariableError
from harness.near import did_you_mean, near_miss
from harness.records.files import flatten

_TOP_KEYS = (*TYPED_GROUPS, "seed", "max_steps")
_SEED = Limits(ge=0, le=MAX_SEED)
_MAX_STEPS = Limits(ge=1, le=MAX_MAX_STEPS)


@dataclass(frozen=True)
class Composed:
    """One composed configuration, before the seed of a run is set.

    Attributes:
        config: resolved and checked plain data with `seed` and `max_steps`, for the base seed.
        choices: group -> the options that were chosen.
        depends_on_seed: whether other values may follow from `seed`.
    """

    config: Mapping[str, Any]
    choices: Mapping[str, tuple[str, ...]]
    depends_on_seed: bool
    _unresolved: DictConfig = field(repr=False)
    _locator: Locator = field(repr=False)


def compose_all(
    conf: Conf, requests: Iterable[Sequence[Override]], *, needs_seed: bool = True
) -> list[Composed]:
    """Return one composed configuration per list of overrides, in order.

    Args:
        needs_seed: refuse a configuration without a value for `seed`.

    Raises:
        UsageError: anything that can't be composed or that the schema doesn't hold.
    """
    search_path = [path.resolve() for path in conf.dirs[1:]]
    shipped = str(conf.dirs[0].resolve())
    with initialize_config_dir(shipped, version_base="1.3", job_name="harness"):
        return [_compose(conf, tuple(overrides), search_path) for overrides in requests]


def with_seed(composed: Composed, seed: int) -> dict[str, Any]:
    """Return the configuration of the run with `seed`; what follows from the seed follows it."""
    check_value(int, seed, _SEED, "seed", composed._locator)
    if not composed.depends_on_seed:
        return {**composed.config, "seed": seed}
    unresolved = composed._unresolved.copy()
    unresolved.seed = seed
    return _resolve_and_check(unresolved, composed._locator)


def identity_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved configuration that says what the run computes.

    Without `max_steps` and without the keys that the schema marks as output.
    """
    kept = {key: value for key, value in config.items() if key != "max_steps"}
    for group in TYPED_GROUPS:
        kind = type_of(group, config[group]["type"])
        for dotted in output_keys(kind, group):
            kept = _without(kept, dotted.split("."))
    return kept


def surviving_leaves(composed: Composed, option: ConfFile) -> tuple[int, int]:
    """Return how many leaves of an overlay's file hold in the result, and how many it has."""
    wanted = flatten(_plain(_load(option.path), resolve=False))
    wanted = {key: value for key, value in wanted.items() if key.split(".")[0] != "defaults"}
    have = flatten(_plain(composed._unresolved, resolve=False))
    return sum(key in have and have[key] == wanted[key] for key in wanted), len(wanted)


def _compose(conf: Conf, overrides: tuple[Override, ...], search_path: list[Path]) -> Composed:
    texts = []
    choices: dict[str, tuple[str, ...]] = {}
    for override in overrides:
        parsed = _parse(override)
        if override.is_group:
            choices[override.key] = _chosen(conf, override, parsed)
            if choices[override.key]:
                texts.append(override.text)
        else:
            # Forced, so that an unknown key reaches the schema check and its near miss.
            texts.append(f"++{override.text}")
    if search_path:
        texts.append(to_override("hydra.searchpath", [f"file://{path}" for path in search_path]))
    locator = Locator(conf, overrides, choices)
    try:
        composed = compose(conf.primary.path.stem, overrides=texts, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(f"{locator('')}: can't be composed: {_one_line(error)}") from None
    choices = _all_choices(composed, choices)
    locator = Locator(conf, overrides, choices)
    for option in locator.chosen_files():
        if not option.path.is_relative_to(conf.dirs[0]):
            _refuse_yaml_surprises(option)
    OmegaConf.set_struct(composed, False)
    del composed["hydra"]
    # Checked before the merge: a missing value does not override a default there.
    for key, value in flatten(_plain(composed, resolve=False)).items():
        if value == MISSING:
            raise UsageError(
                f"{locator(key)}: `{key}` has no value (`???`)", f"set it, for example `{key}=…`"
            )
    defaults = OmegaConf.create(_schema_defaults(composed, locator))
    merged = OmegaConf.merge(defaults, composed)
    assert isinstance(merged, DictConfig)
    plain = _plain(merged, resolve=False)
    texts_in_tree = [v for v in flatten(plain).values() if _has_interpolation(v)]
    refuse_unstable(plain, locator)
    return Composed(
        config=_resolve_and_check(merged, locator),
        choices=choices,
        depends_on_seed=bool(texts_in_tree),
        _unresolved=merged,
        _locator=locator,
    )


def _refuse_yaml_surprises(option: ConfFile) -> None:
    """Refuse values that Hydra's YAML reads as something else than what they look like."""
    seen = flatten(_plain(_load(option.path), resolve=False))
    for key, meant in flatten(option.content).items():
        value = seen.get(key)
        if type(value) is not type(meant) or (value != meant and meant == meant):
            raise UsageError(
                f"`{option.path}`: `{key}` is `{meant}`, which would be read as `{value}`",
                "quote text; write numbers plainly, and true or false for a switch",
            )


def _parse(override: Override) -> HydraOverride:
    functions = create_functions()
    functions.functions.pop("shuffle")  # another order at each planning
    try:
        parsed = OverridesParser(functions).parse_override(override.text)
        is_several = parsed.is_sweep_override()
    except RecursionError:
        raise UsageError(f"{override.where[:80]}…: nested too deeply", "simplify it") from None
    except (HydraException, ValueError) as error:
        raise UsageError(
            f"{override.where[:200]} can't be read: {_one_line(error)}",
            "put a value with special characters in quotes: key='a, b'",
        ) from None
    if is_several:
        raise UsageError(
            f"{override.where} gives several values", "use a `grid` or `zip` axis of the sweep file"
        )
    value = parsed.value()
    if isinstance(value, (int, float)) and "_" in override.text.partition("=")[2]:
        raise UsageError(f"{override.where}: `_` inside a number", f"write {override.key}={value}")
    for group in TYPED_GROUPS:
        if override.key == f"{group}.type":
            raise UsageError(
                f"{override.where}: the type belongs to the {group} option",
                f"choose the option: {group}={value}",
            )
    return parsed


def find_overruled(overrides: Sequence[Override]) -> tuple[Override, Override] | None:
    """Return the first pair (earlier, later) in which the later sets a key again.

    `a={b: 1}` sets `a.b`. Raises UsageError for an override that can't be read.
    """
    seen: dict[str, Override] = {}
    for override in overrides:
        for key in _keys_set(override):
            for earlier_key, earlier in seen.items():
                if earlier is not override and is_same_or_below(key, earlier_key):
                    return earlier, override
            seen[key] = override
    return None


def _keys_set(override: Override) -> list[str]:
    if override.is_group:
        return [f"{override.key}="]  # an option and a value below it do not overrule each other
    value = _parse(override).value()
    if isinstance(value, dict) and value:
        return list(flatten({override.key: value}))
    return [override.key]


def _chosen(conf: Conf, override: Override, parsed: HydraOverride) -> tuple[str, ...]:
    group = override.key
    value = parsed.value()
    if group == "overlay":
        names = [] if value is None else value if isinstance(value, list) else [value]
    elif value is None and group in DELTA_GROUPS:
        names = []
    else:
        names = [value]
    for name in names:
        if not isinstance(name, str):
            raise UsageError(
                f"{override.where}: want the name of one {group} option",
                did_you_mean(str(name), conf.options[group], what=f"{group} options"),
            )
        conf.option(group, name, override.where)
    if len(set(names)) != len(names):
        raise UsageError(f"{override.where} names an option twice", "name it once")
    return tuple(names)


def _all_choices(
    composed: DictConfig, asked: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    found = dict(composed.hydra.runtime.choices)
    choices = {}
    for group in GROUPS:
        value = found.get(group)
        if value is None:
            choices[group] = asked.get(group, ())
        else:
            names = value if not isinstance(value, str) else [value]
            choices[group] = tuple(str(name) for name in names)
    return choices


def _schema_defaults(composed: DictConfig, locator: Locator) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for group in TYPED_GROUPS:
        node = OmegaConf.select(composed, group, throw_on_missing=False)
        key = f"{group}.type"
        if not isinstance(node, DictConfig):
            raise UsageError(f"{locator(group)}: `{group}` is not a group of keys")
        kind = _plain(node, resolve=False).get("type", MISSING)
        types = type_names(group)
        if kind == MISSING:
            raise UsageError(
                f"{locator(key)}: `{key}` is missing", f"one of {', '.join(sorted(types))}"
            )
        if not isinstance(kind, str) or kind not in types:
            raise UsageError(
                f"{locator(key)}: there is no {group} type {kind!r}",
                did_you_mean(str(kind), types, what=f"{group} types"),
            )
        defaults[group] = {**defaults_of(type_of(group, kind)), "type": kind}
    return defaults


def _resolve_and_check(unresolved: DictConfig, locator: Locator) -> dict[str, Any]:
    try:
        plain = _plain(unresolved, resolve=True)
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "")
        raise UsageError(
            f"{locator(key)}: `{key}` can't be resolved: {_one_line(error)}",
            "write `\\${` for a literal `${`",
        ) from None
    for key in plain:
        if key not in _TOP_KEYS:
            raise UsageError(
                f"{locator(str(key))}: unknown key `{key}`",
                did_you_mean(str(key), _TOP_KEYS, what="keys"),
            )
    checked: dict[str, Any] = {}
    for group in TYPED_GROUPS:
        kind = type_of(group, plain[group]["type"])
        _refuse_foreign_knob(group, kind, plain[group], locator)
        checked[group] = check_group(kind, plain[group], group, locator)
    checked["seed"] = check_value(int, plain.get("seed", MISSING), _SEED, "seed", locator)
    checked["max_steps"] = check_value(
        int, plain.get("max_steps", MISSING), _MAX_STEPS, "max_steps", locator
    )
    return _check_across_fields(checked, locator)


def _refuse_foreign_knob(
    group: str, kind: type[Any], data: Mapping[str, Any], locator: Locator
) -> None:
    """Say whose knob it is, where a key belongs to another type of the group."""
    own = {f.name for f in fields(kind)}
    for name in data:
        if name in own or near_miss(str(name), own):
            continue
        owners = [
            other
            for other in type_names(group)
            if any(f.name == name for f in fields(type_of(group, other)))
        ]
        if owners:
            key = f"{group}.{name}"
            raise UsageError(
                f"{locator(key)}: `{key}` is no key of the {group} type `{data['type']}`",
                f"it belongs to {', '.join(f'`{owner}`' for owner in owners)}",
            )


def _check_across_fields(checked: dict[str, Any], locator: Locator) -> dict[str, Any]:
    """Return the configuration with what the trainer reads from files of its own."""
    from harness.losses.config import EXTERNAL, parse_loss  # noqa: PLC0415 (imported with the group)
    from harness.trainers.registry import load_trainer  # noqa: PLC0415

    trainer = load_trainer(checked["trainer"]["type"])
    expanded: dict[str, Any] = {}
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        # A foreign loss is for its trainer to accept.
        ("loss", lambda: checked["loss"]["type"] == EXTERNAL or parse_loss(checked["loss"])),
        ("trainer", lambda: trainer.check(checked)),
        ("trainer", lambda: expanded.update(trainer.expand(checked))),
    )
    for group, step in steps:
        try:
            step()
        except VariableError:
            raise
        except UsageError as error:
            named = re.search(r"`((?:loss|task|model|trainer)\.[\w.]+)", error.message)
            where = locator(named.group(1) if named else group)
            raise UsageError(f"{where}: {error.message}", error.hint) from None
    return expanded


def _has_interpolation(value: Any) -> bool:
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, Mapping):
        return any(_has_interpolation(item) for item in value.values())
    return isinstance(value, list) and any(_has_interpolation(item) for item in value)


def _without(tree: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    head, *rest = path
    if head not in tree:
        return dict(tree)
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return {**tree, head: _without(tree[head], rest)}


def _load(path: Path) -> DictConfig:
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    return loaded


def _plain(node: DictConfig, *, resolve: bool) -> dict[str, Any]:
    plain = OmegaConf.to_container(node, resolve=resolve)
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [
        line for line in lines if not line.startswith(("full_key:", "object_type=", "See http"))
    ]
    return " ".join(kept)[:300] or type(error).__name__


logging.getLogger("hydra").setLevel(logging.ERROR)
