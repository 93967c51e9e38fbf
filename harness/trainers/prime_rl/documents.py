"""Reads and writes the files that prime-rl is configured with: TOML, JSON and YAML.

A file means what it means to prime-rl (prime-pydantic-config 0.4.3: the suffix decides, YAML is
YAML 1.1). Where YAML 1.1 surprises (`on` is true, `24:00:00` is 86400), and where a key stands
twice, the file is refused: nobody means that.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.config.yaml_file import read_text
from harness.errors import UsageError
from harness.records.files import write_atomic
from harness.trainers.prime_rl.toml_text import to_toml

SUFFIXES = (".toml", ".json", ".yaml", ".yml")

_TOML_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)\s*\Z")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_TAG = "tag:yaml.org,2002:"
_YAML_KINDS = {
    "bool": "a truth value",
    "int": "a number in another base",
    "float": "a number in another base",
    "timestamp": "a date",
}


def read_document(path: Path) -> dict[str, Any]:
    """Return the tables of the file `path`, as plain data.

    Raises:
        UsageError: missing, a folder, unreadable, another suffix, a syntax error (with the line),
            no table at the top, a key twice, or a value that is no plain data (a date).
    """
    if os.path.isdir(path):  # noqa: PTH112 (unlike Path.is_dir, never an error)
        raise UsageError(f"`{path}` is a folder, want one of prime-rl's files", "name the files")
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"`{path}`: prime-rl reads no {path.suffix or 'file without a suffix'}",
            f"its files end with {', '.join(SUFFIXES)}",
        )
    return parse_document(read_text(path), path.suffix, str(path))


def parse_document(text: str, suffix: str, where: str) -> dict[str, Any]:
    """Return the tables in `text`, written in the format of `suffix` (one of SUFFIXES).

    Raises:
        UsageError: as `read_document`, naming `where`.
    """
    parse = {".toml": _parse_toml, ".json": _parse_json}.get(suffix, _parse_yaml)
    document = parse(text, where)
    if not isinstance(document, dict):
        raise UsageError(f"`{where}` holds no tables", "write `key = value` pairs, in sections")
    _refuse_dates(document, "", where)
    return document


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write `document` to `path`, atomically, as TOML or JSON by its suffix.

    JSON keeps every null; see `to_toml` for what TOML does with them.

    Raises:
        UsageError: another suffix, or data that the format can't hold (names the key).
    """
    if path.suffix == ".toml":
        write_atomic(path, to_toml(document))
    elif path.suffix == ".json":
        # Infinity and NaN pass: TOML has them, and prime-rl reads them from JSON, too.
        write_atomic(path, json.dumps(document, indent=2, ensure_ascii=True) + "\n")
    else:
        raise UsageError(f"`{path}`: documents are written as TOML or JSON", "end it with .toml")


def _parse_toml(text: str, where: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = str(error)
        place = _TOML_PLACE.search(message)
        problem = _TOML_PLACE.sub("", message)
        line = ""
        if place is not None:
            line = f":{place['line'] or text.rstrip().count(chr(10)) + 1}"
        raise UsageError(f"{where}{line}: not valid TOML: {problem}", "check that line") from None


def _parse_json(text: str, where: str) -> Any:
    def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise UsageError(f"`{where}`: the key `{key}` stands twice", "name it once")
            table[key] = value
        return table

    try:
        return json.loads(text, object_pairs_hook=refuse_twice)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{where}:{error.lineno}: not valid JSON: {error.msg}", "check that line"
        ) from None
    except RecursionError:
        raise UsageError(f"`{where}`: not valid JSON: too deeply nested", "check it") from None


def _parse_yaml(text: str, where: str) -> Any:
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_yaml(node, where, ())
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise UsageError(f"{where}{line}: not valid YAML: {problem}", "check that line") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise UsageError(f"`{where}`: not valid YAML: {problem}", "check the file") from None


def _check_yaml(node: yaml.Node, where: str, above: tuple[yaml.Node, ...]) -> None:
    """Refuse keys that stand twice or are no text, loops, and what YAML 1.1 reads oddly."""
    here = f"{where}:{node.start_mark.line + 1}"
    if any(node is other for other in above):
        raise UsageError(f"{here}: not valid YAML: it holds itself", "write it out")
    if isinstance(node, yaml.ScalarNode):
        _check_yaml_scalar(node, here)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_yaml(item, where, (*above, node))
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = f"{where}:{key.start_mark.line + 1}"
            if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
                raise UsageError(f"{line}: the key `{_shown(key)}` is no text", "quote it")
            if key.value in seen:
                raise UsageError(f"{line}: the key `{key.value}` stands twice", "name it once")
            seen.add(key.value)
            _check_yaml(value, where, (*above, node))


def _check_yaml_scalar(node: yaml.ScalarNode, here: str) -> None:
    value = node.value
    is_odd = (
        (node.tag == f"{_TAG}bool" and value.lower() not in ("true", "false"))
        or (node.tag in (f"{_TAG}int", f"{_TAG}float") and ":" in value)
        or (node.tag == f"{_TAG}int" and _OCTAL.fullmatch(value) is not None)
        or node.tag == f"{_TAG}timestamp"
    )
    if is_odd:
        kind = _YAML_KINDS[node.tag.removeprefix(_TAG)]
        raise UsageError(
            f"{here}: prime-rl reads YAML 1.1, where `{value}` is {kind}",
            f"quote it to make it text: '{value}'",
        )


def _shown(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "…"


def _refuse_dates(value: Any, key: str, where: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_dates(item, f"{key}.{name}" if key else str(name), where)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_dates(item, f"{key}[{i}]", where)
    elif isinstance(value, (datetime.date, datetime.time)):
        raise UsageError(f"`{where}`: `{key}` is a date, want plain data", f"quote it: '{value}'")
    elif not isinstance(value, (str, int, float, type(None))):
        kind = type(value).__name__
        raise UsageError(f"`{where}`: `{key}` is a {kind}, want plain data", "use text or a number")
