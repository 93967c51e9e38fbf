"""From record dataclasses to their JSON form and back.

`to_record` and `from_record` are each other's inverse. Keys that a newer version added are
ignored on reading, so that an older analysis still reads a newer sweep.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import HarnessError
from harness.records.files import read_json, read_json_if_there
from harness.records.layout import repair_hint

RecordT = TypeVar("RecordT")


def to_record(value: Any) -> dict[str, Any]:
    """Return the JSON form of a record dataclass."""
    result: dict[str, Any] = _plain(dataclasses.asdict(value))
    return result


def from_record(kind: type[RecordT], data: dict[str, Any], *, where: str) -> RecordT:
    """Return the record that `data` stands for.

    Raises:
        HarnessError: a field is missing or of another type, naming `where` and the key.
    """
    result: RecordT = _convert(kind, data, where, "")
    return result


def read_record(kind: type[RecordT], path: Path) -> RecordT:
    """Return the record in `path`. Raises HarnessError where it is missing or not one."""
    return from_record(kind, read_json(path), where=str(path))


def read_record_if_there(kind: type[RecordT], path: Path) -> RecordT | None:
    """Return the record in `path`, or None where there is no such file."""
    data = read_json_if_there(path)
    return None if data is None else from_record(kind, data, where=str(path))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _convert(kind: Any, value: Any, where: str, key: str) -> Any:
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        if value is None:
            return None
        [kind] = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
        return _convert(kind, value, where, key)
    if dataclasses.is_dataclass(kind):
        return _convert_dataclass(kind, value, where, key)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, key, value)
        arguments = typing.get_args(kind)
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise _wrong(where, key, value)
        return tuple(
            _convert(arguments[0], item, where, f"{key}[{i}]") for i, item in enumerate(value)
        )
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, key, value)
        item_kind = typing.get_args(kind)[1]
        return {k: _convert(item_kind, v, where, f"{key}.{k}") for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(where, key, value)
    return value


def _convert_dataclass(kind: Any, value: Any, where: str, key: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, key, value)
    hints = _type_hints(kind)
    arguments: dict[str, Any] = {}
    for spec in dataclasses.fields(kind):
        dotted = f"{key}.{spec.name}" if key else spec.name
        if spec.name in value:
            arguments[spec.name] = _convert(hints[spec.name], value[spec.name], where, dotted)
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise HarnessError(f"`{where}` lacks `{dotted}`", repair_hint(Path(where)))
    return kind(**arguments)


@functools.cache
def _type_hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _wrong(where: str, key: str, value: Any) -> HarnessError:
    return HarnessError(f"`{where}`: `{key}` can't be {value!r}", repair_hint(Path(where)))
