"""Writes plain data as TOML (the standard library only reads it)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.errors import UsageError

NULL_TEXT = "None"
"""What prime-rl reads as null where a table holds it: TOML has no null."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def to_toml(document: Mapping[str, Any]) -> str:
    """Return `document` as TOML 1.0: what reads it gets the same data back, keys in any order.

    A null that a table holds is written as the text `None`, which prime-rl's own tables read as
    null. A free-form dictionary in them (`kwargs`, environment variables) does not: there it stays
    text, so write a document with nulls as JSON where that matters.

    Raises:
        UsageError: naming the key: a null in a list, a key that is no text, a value that is no
            plain data, text that is not Unicode.
    """
    lines = list(_table_lines((), document))
    return "\n".join(lines).strip("\n") + "\n" if lines else ""


def _table_lines(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the body of `table`: plain values first, as a header ends what belongs to it."""
    later = []
    for key, value in table.items():
        if not isinstance(key, str):
            raise UsageError(f"`{_dotted(path)}` has the key {key!r}, want text", "quote it")
        if isinstance(value, Mapping) or _is_list_of_tables(value):
            later.append((key, value))
        else:
            here = (*path, key)
            yield f"{_key_text(key, here)} = {_table_value_text(value, here)}"
    for key, value in later:
        here = (*path, key)
        name = ".".join(_key_text(part, here) for part in here)
        if isinstance(value, Mapping):
            # A table that holds nothing but tables exists through their headers.
            if not value or any(not _has_header(item) for item in value.values()):
                yield from ("", f"[{name}]")
            yield from _table_lines(here, value)
        else:
            for item in value:
                yield from ("", f"[[{name}]]")
                yield from _table_lines(here, item)


def _has_header(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_list_of_tables(value)


def _is_list_of_tables(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(item, Mapping) for item in value)
    )


def _table_value_text(value: Any, path: tuple[str, ...]) -> str:
    return _text(NULL_TEXT, path) if value is None else _value_text(value, path)


def _value_text(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value_text(item, path) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = []
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(f"`{_dotted(path)}` has the key {key!r}, want text", "quote it")
            here = (*path, key)
            pairs.append(f"{_key_text(key, here)} = {_table_value_text(item, here)}")
        return f"{{{', '.join(pairs)}}}"
    if value is None:
        raise UsageError(
            f"`{_dotted(path)}` holds a null in a list, which TOML can't say",
            "leave the item out, or write the document as JSON",
        )
    raise UsageError(
        f"`{_dotted(path)}` is a {type(value).__name__}, want plain data", "use text or a number"
    )


def _key_text(key: str, path: tuple[str, ...]) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key, path)


def _text(text: str, path: tuple[str, ...]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"`{_dotted(path)}` is {text!r}, which is no Unicode text", "leave those characters out"
        ) from None
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character


def _dotted(path: Sequence[str]) -> str:
    return ascii(".".join(path))[1:-1] if path else "the document"
