"""Reads YAML that people write, with the surprises of YAML 1.1 taken out.

`1e-3` is a number, `on` and `no` are text, `24:00:00` is text (not 86400), `1_000` is text, and a
key that stands twice is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", "~nN"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), [*_first]
    )
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be text", key_node.start_mark
            )
        if key in mapping:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key `{key}` stands twice", key_node.start_mark
            )
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def load_yaml(path: Path) -> Any:
    """Return the plain data in `path`.

    Raises:
        UsageError: unreadable, not UTF-8, or not YAML; names file and line.
    """
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text in `path`. Raises UsageError where it is unreadable or not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"`{path}` does not exist", "check the path") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"`{path}` is not UTF-8 text: {error.reason}", "save it as UTF-8"
        ) from None
    except OSError as error:
        raise UsageError(
            f"`{path}` can't be read: {error.strerror}", "check the path and its permissions"
        ) from None


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data in `text`. Raises UsageError naming `where` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise UsageError(f"{where}{line}: not valid YAML: {problem}", "check that line") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise UsageError(f"{where}: not valid YAML: {problem}", "check the file") from None
