"""Checks plain data against the dataclasses of the configuration, strictly.

OmegaConf's structured merge converts as it checks: the string '1e-3' becomes a float, 'yes' a
bool, '1_000' an int. Here a value either has the declared type already or is refused.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.config.fields import Limits, limits_of
from harness.errors import UsageError
from harness.near import did_you_mean

MISSING = "???"

Locate = Callable[[str], str]
"""From a dotted key to a few words that say where its value was set."""


def check_group(kind: type[Any], data: Any, key: str, locate: Locate) -> dict[str, Any]:
    """Return `data` as plain JSON data that dataclass `kind` accepts, defaults filled in.

    Numbers come out in one form (a float field holds a float even where 1 was written), so that
    equal configurations have equal bytes.

    Args:
        key: dotted key of this group, for messages.
        locate: says where a key's value was set.

    Raises:
        UsageError: unknown key, missing value, wrong type, value out of bounds.
    """
    if not isinstance(data, Mapping):
        raise UsageError(
            f"{locate(key)}: `{key}` is {_show(data)}, want a group of keys", "write `{a: 1, b: 2}`"
        )
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in data:
        if name not in fields:
            dotted = _join(key, str(name))
            raise UsageError(
                f"{locate(dotted)}: unknown key `{dotted}`",
                did_you_mean(str(name), fields, what=f"keys of `{key}`" if key else "keys"),
            )
    checked: dict[str, Any] = {}
    for name, field in fields.items():
        dotted = _join(key, name)
        value = data[name] if name in data else _default(field, dotted, locate)
        checked[name] = check_value(hints[name], value, limits_of(field), dotted, locate)
    return checked


def check_value(kind: Any, value: Any, limits: Limits, key: str, locate: Locate) -> Any:
    """Return `value` in its one form for a field of type `kind`. Raises UsageError."""
    if isinstance(value, str) and value == MISSING:
        raise _has_no_value(key, locate)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
        if value is None:
            return None
        assert len(inner) == 1, f"{key}: only `X | None` unions are supported"
        return check_value(inner[0], value, limits, key, locate)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return check_group(kind, value, key, locate)
    if typing.get_origin(kind) is tuple:
        return _check_list(kind, value, limits, key, locate)
    if kind is dict or typing.get_origin(kind) is dict:
        return _check_mapping(kind, value, key, locate)
    if kind is Any:
        return check_free(value, key, locate)
    return _check_scalar(kind, value, limits, key, locate)


def check_free(value: Any, key: str, locate: Locate) -> Any:
    """Return `value` of a free-form tree (a foreign trainer's own keys): any finite JSON data."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise UsageError(
                    f"{locate(key)}: `{key}` has the key {_show(name)}, want text", "quote it"
                )
        return {name: check_free(item, _join(key, name), locate) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [check_free(item, f"{key}[{i}]", locate) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(
            f"{locate(key)}: `{key}` is {value}, want a finite number", "write a finite number"
        )
    if value == MISSING:
        raise _has_no_value(key, locate)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise UsageError(f"{locate(key)}: `{key}` is {_show(value)}, want plain data")


def _has_no_value(key: str, locate: Locate) -> UsageError:
    return UsageError(
        f"{locate(key)}: `{key}` has no value (`???`)", f"set it, for example `{key}=…`"
    )


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """Return the defaults of dataclass `kind` as plain nested data; required fields are left out.

    Interpolations may refer to a value that no file states.
    """
    hints = typing.get_type_hints(kind)
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if field.default is not dataclasses.MISSING:
            plain[field.name] = _to_plain(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            plain[field.name] = _to_plain(field.default_factory())
        elif dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            plain[field.name] = defaults_of(hint)
    return plain


def output_keys(kind: type[Any], key: str) -> Iterator[str]:
    """Yield the dotted keys of dataclass `kind` that stay out of a run's identity."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        dotted = _join(key, field.name)
        if limits_of(field).is_output:
            yield dotted
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from output_keys(hints[field.name], dotted)


def _default(field: dataclasses.Field[Any], key: str, locate: Locate) -> Any:
    if field.default is not dataclasses.MISSING:
        return _to_plain(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return _to_plain(field.default_factory())
    raise UsageError(f"{locate(key)}: `{key}` is missing", f"set it, for example `{key}=…`")


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {k: _to_plain(v) for k, v in dataclasses.asdict(value).items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {k: _to_plain(v) for k, v in value.items()}
    return value


def _check_list(kind: Any, value: Any, limits: Limits, key: str, locate: Locate) -> list[Any]:
    arguments = typing.get_args(kind)
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"{locate(key)}: `{key}` is {_show(value)}, want a list", "use [a, b]")
    is_open = arguments[-1] is Ellipsis
    if not is_open and len(value) != len(arguments):
        raise UsageError(
            f"{locate(key)}: `{key}` has {len(value)} items, want {len(arguments)}",
            f"for example {key}=[{', '.join('…' for _ in arguments)}]",
        )
    kinds = [arguments[0]] * len(value) if is_open else list(arguments)
    return [
        check_value(kinds[i], item, limits, f"{key}[{i}]", locate) for i, item in enumerate(value)
    ]


def _check_mapping(kind: Any, value: Any, key: str, locate: Locate) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{locate(key)}: `{key}` is {_show(value)}, want a group of keys",
            "write `{a: 1, b: 2}`",
        )
    arguments = typing.get_args(kind)
    item_kind = arguments[1] if arguments else Any
    checked = check_free(value, key, locate) if item_kind is Any else dict(value)
    return {
        name: check_value(item_kind, item, Limits(), _join(key, str(name)), locate)
        for name, item in checked.items()
    }


def _check_scalar(kind: Any, value: Any, limits: Limits, key: str, locate: Locate) -> Any:
    is_bool = isinstance(value, bool)
    if kind is float and isinstance(value, (int, float)) and not is_bool:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isnan(number) or (math.isinf(number) and not limits.allows_infinity):
            raise UsageError(
                f"{locate(key)}: `{key}` is {number}, want a finite number", "write a finite number"
            )
        _check_bounds(number, limits, key, locate)
        return number
    if kind is int and isinstance(value, int) and not is_bool:
        _check_bounds(value, limits, key, locate)
        return value
    if kind is bool and is_bool:
        return value
    if kind is str and isinstance(value, str):
        if limits.options is not None and value not in limits.options:
            raise UsageError(
                f"{locate(key)}: `{key}` is {_show(value)}",
                did_you_mean(value, limits.options, what="choices"),
            )
        return value
    raise UsageError(
        f"{locate(key)}: `{key}` is {_show(value)}, want {_WANT[kind]}", _type_hint(kind, value)
    )


def _check_bounds(value: float, limits: Limits, key: str, locate: Locate) -> None:
    checks = (
        (limits.ge, operator.ge, "at least"),
        (limits.gt, operator.gt, "more than"),
        (limits.le, operator.le, "at most"),
        (limits.lt, operator.lt, "less than"),
    )
    for bound, holds, words in checks:
        if bound is not None and not holds(value, bound):
            limit = str(bound) if isinstance(bound, int) else f"{bound:g}"
            raise UsageError(
                f"{locate(key)}: `{key}` is {_show(value)}, want {words} {limit}",
                f"set `{key}` to {words} {limit}",
            )


_WANT = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}


def _type_hint(kind: Any, value: Any) -> str:
    if value is None:
        return "this key can't be null"
    if kind is str:
        return "quote it to make it text"
    if isinstance(value, str):
        return "write it without quotes" if _reads_as_number(value) else f"write {_WANT[kind]}"
    return f"write {_WANT[kind]}"


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _show(value: Any) -> str:
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, str):
        return f"the text {text}"
    return (
        {None: "null", True: "true", False: "false"}.get(value, text)
        if (value is None or isinstance(value, bool))
        else text
    )


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
