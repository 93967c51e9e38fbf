"""Composes prime-rl's files as `rl @ a.toml @ b.toml` does, and sets single keys.

Source: prime-pydantic-config 0.4.3, which reads prime-rl's command line. Files are merged from left
to right: a table into a table, key by key; everything else, lists and lists of tables too, is
replaced. No value is interpreted: `${…}` belongs to the shell, the text `None` becomes null where
prime-rl checks the result.

Beyond that a key can be removed, which no file of prime-rl can say: `~key` as an override, or
`{"~key": None}` in a document. As TOML has no null, no TOML file means anything else here than
there.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.yaml_file import parse_yaml
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.trainers.prime_rl.toml_text import NULL_TEXT

REMOVE = "~"
"""In front of a key: take the key out."""

_REMOVED_KEY = re.compile(r"~[A-Za-z0-9_-]+")
_KEY_PART = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^."]+)')
_OVERRIDE = re.compile(r'(?P<key>(?:"(?:[^"\\]|\\.)*"|[^"=])*)=(?P<value>.*)', re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]*")


def merge(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the documents merged from left to right; a later one wins. None of them is changed.

    Within one table removals come first, so `{"~loss": None, "loss": {...}}` replaces a table as a
    whole.

    Raises:
        UsageError: a removal of a key that is not there.
    """
    merged: dict[str, Any] = {}
    for document in documents:
        _merge_into(merged, document, "")
    return merged


def apply_overrides(
    document: Mapping[str, Any], overrides: Iterable[str], *, origin: str = "overrides"
) -> dict[str, Any]:
    """Return `document` with single keys set or removed, in order. It is not changed itself.

    `a.b=1` sets a key (tables on the way are made), `a.b={x: 1}` merges into a table as another
    file would, `a.0.b=1` reaches into a list, `a."b.c"=1` into a key with a dot (or with `=`, or
    that is a number), `~a.b` removes.
    Values are YAML as the harness reads it (`1e-3` is a number, `on` and `24:00:00` are text);
    nothing after `=` is the empty text.

    Raises:
        UsageError: naming `origin` and the override: no `=`, a value that is no YAML, a way
            through something that is no table, a list index that is not there, a removal of a key
            that is not there.
    """
    result = copy.deepcopy(dict(document))
    for text in overrides:
        where = f"{origin}: `{text}`"
        if text.startswith(REMOVE):
            _remove(result, _parse_key(text[len(REMOVE) :], where), where)
            continue
        key, written = _split(text, where)
        _set(result, _parse_key(key, where), _parse_value(written, where), where)
    return result


def check_key(key: str, *, origin: str) -> None:
    """Refuse a key that no override could set, whatever the document. Raises UsageError."""
    _parse_key(key, f"{origin}: `{key}`")


def with_nulls(document: Any) -> Any:
    """Return `document` with the text `None` in tables as null, for comparing what files mean."""
    if isinstance(document, Mapping):
        return {
            key: None if value == NULL_TEXT else with_nulls(value)
            for key, value in document.items()
        }
    if isinstance(document, (list, tuple)):
        return [with_nulls(item) for item in document]
    return document


def _merge_into(base: dict[str, Any], document: Mapping[str, Any], prefix: str) -> None:
    for key, value in document.items():
        if _is_removal(key, value):
            name = key.removeprefix(REMOVE)
            if name not in base:
                raise _nothing_to_remove(f"{prefix}{name}", name, base, f"`{prefix}{key}`")
            del base[name]
    for key, value in document.items():
        if _is_removal(key, value):
            continue
        old = base.get(key)
        if isinstance(value, Mapping):
            # A removal inside a table that replaces something has nothing to act on.
            target = old if isinstance(old, dict) else {}
            _merge_into(target, value, f"{prefix}{key}.")
            base[key] = target
        else:
            base[key] = copy.deepcopy(value)


def _is_removal(key: Any, value: Any) -> bool:
    return value is None and isinstance(key, str) and _REMOVED_KEY.fullmatch(key) is not None


def _nothing_to_remove(key: str, name: str, table: Iterable[str], where: str) -> UsageError:
    return UsageError(
        f"{where} removes `{key}`, which is not there",
        did_you_mean(name, [str(known) for known in table], what="keys there"),
    )


def _split(text: str, where: str) -> tuple[str, str]:
    """Return the key and the value of `key=value`; a `=` in a quoted key is part of it."""
    match = _OVERRIDE.fullmatch(text)
    if match is not None:
        return match["key"], match["value"]
    key, equals, written = text.partition("=")
    if not equals:
        raise UsageError(f"{where} has no `=`", "write `key=value`, or `~key` to remove it")
    return key, written


def _parse_value(text: str, where: str) -> Any:
    try:
        return parse_yaml(text, where) if text.strip() else ""
    except UsageError:
        raise UsageError(
            f"{where}: the value is not valid YAML", "quote a text: `key='…'`"
        ) from None


def _parse_key(text: str, where: str) -> tuple[str, ...]:
    parts = []
    position = 0
    while True:
        match = _KEY_PART.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] != "."):
            raise UsageError(f"{where}: `{text}` can't be a key", 'write `a.b=1` or `a."b.c"=1`')
        quoted = match["quoted"]
        bare = match["bare"]
        parts.append(bare if quoted is None else _Quoted(re.sub(r"\\(.)", r"\1", quoted)))
        position = match.end() + 1
        if match.end() == len(text):
            return tuple(parts)


class _Quoted(str):
    """Part of a key that was written in quotes: a name, even where it is a number."""


@dataclass(frozen=True)
class _Slot:
    """The place of one key: a table with a name, or a list with an index."""

    holder: Any
    name: Any
    dotted: str

    @property
    def value(self) -> Any:
        return self.holder[self.name]


def _find_parent(
    document: dict[str, Any], parts: Sequence[str], where: str, *, make_tables: bool
) -> _Slot:
    holder: Any = document
    for i, part in enumerate(parts[:-1]):
        slot = _slot(holder, part, parts[: i + 1], where)
        if isinstance(holder, dict) and make_tables:
            old = holder.get(slot.name)
            if old is None or old == NULL_TEXT:
                _refuse_item(parts[: i + 1], parts[i + 1], where)
                holder[slot.name] = {}
        elif isinstance(holder, dict) and slot.name not in holder:
            raise _nothing_to_remove(".".join(parts), part, holder, where)
        holder = slot.value
    return _slot(holder, parts[-1], parts, where)


def _refuse_item(above: Sequence[str], part: str, where: str) -> None:
    if _INDEX.fullmatch(part) and not isinstance(part, _Quoted):
        dotted = ".".join(above)
        raise UsageError(
            f"{where}: there is no `{dotted}` with an item `{part}` to set",
            f"is it a list in prime-rl? give the whole list: `{dotted}=[…]`",
        )


def _slot(holder: Any, part: str, path: Sequence[str], where: str) -> _Slot:
    dotted = ".".join(path)
    above = ".".join(path[:-1])
    if isinstance(holder, dict):
        return _Slot(holder, part, dotted)
    if not isinstance(holder, list):
        raise UsageError(
            f"{where}: `{above}` is {_shown(holder)}, which holds no `{part}`",
            f"set `{above}` to a table, or check the key",
        )
    if not _INDEX.fullmatch(part) or int(part) >= len(holder):
        raise UsageError(
            f"{where}: `{above}` is a list of {len(holder)} items and has no `{part}`",
            f"count from 0: `{above}.0`" if holder else f"give the whole list: `{above}=[…]`",
        )
    return _Slot(holder, int(part), dotted)


def _set(document: dict[str, Any], parts: Sequence[str], value: Any, where: str) -> None:
    slot = _find_parent(document, parts, where, make_tables=True)
    if isinstance(slot.holder, list):
        old = slot.value
        if isinstance(value, dict) and isinstance(old, dict):
            _merge_into(old, value, f"{slot.dotted}.")
        else:
            slot.holder[slot.name] = value
    else:
        prefix = slot.dotted.removesuffix(str(slot.name))
        _merge_into(slot.holder, {slot.name: value}, prefix)


def _remove(document: dict[str, Any], parts: Sequence[str], where: str) -> None:
    slot = _find_parent(document, parts, where, make_tables=False)
    if isinstance(slot.holder, dict) and slot.name not in slot.holder:
        raise _nothing_to_remove(slot.dotted, str(slot.name), slot.holder, where)
    del slot.holder[slot.name]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
