"""Reads and changes the nested tables of a document of prime-rl by dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.trainers.prime_rl.toml_text import NULL_TEXT


def get_value(document: Mapping[str, Any], dotted: str, default: Any = None) -> Any:
    """Return the value of a key; `default` where it is absent or null, as prime-rl reads it."""
    value: Any = document
    for name in dotted.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return default if is_null(value) else value


def get_table(document: Mapping[str, Any], dotted: str) -> Mapping[str, Any] | None:
    """Return the table at a key; None where it is absent or null.

    Raises:
        UsageError: something else stands there.
    """
    value = get_value(document, dotted)
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"prime-rl's `{dotted}` is {value!r}, want a table", "check that key")
    return value


def set_value(document: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a key in place; tables on the way are made.

    Raises:
        UsageError: something on the way is no table.
    """
    *above, name = dotted.split(".")
    table = document
    for i, part in enumerate(above):
        if get_table(document, ".".join(above[: i + 1])) is None:
            table[part] = {}
        table = table[part]
    table[name] = value


def is_null(value: Any) -> bool:
    """Whether prime-rl reads `value` as null."""
    return value is None or (isinstance(value, str) and value == NULL_TEXT)
