"""Which keys a version of prime-rl has, read from its configuration classes.

The classes of a checkout are read as text (nothing of prime-rl is imported): annotated fields with
their inheritance, unions that a literal `type` tells apart, lists of tables and free-form tables.
Only names of keys are checked, never values. What can't be followed (a class of another package, an
annotation that is not understood, a field that a validator rewrites) holds anything: a document
that prime-rl accepts is never refused here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.near import near_miss
from harness.trainers.prime_rl.config_classes import Builder
from harness.trainers.prime_rl.config_shapes import (
    Anything,
    Items,
    OneOf,
    Shape,
    Table,
    TableRef,
    Tagged,
    Values,
)
from harness.trainers.prime_rl.config_source import Found, Source
from harness.trainers.prime_rl.toml_text import NULL_TEXT

ROOTS = ("packages/prime-rl-configs/src", "src")
"""Where a checkout keeps the package `prime_rl`, newest layout first."""
MODULES = ("prime_rl.configs.rl", "prime_rl.entrypoints.rl", "prime_rl.rl")
"""Where `rl` declares its configuration, newest layout first."""
ROOT_CLASS = "RLConfig"

_MAX_LISTED = 12


@dataclass(frozen=True)
class ConfigSchema:
    """The keys of one version of prime-rl.

    Attributes:
        name: what messages call the version.
        tables: by the name that a TableRef holds.
    """

    name: str
    root: Shape
    tables: Mapping[str, Table]


def read_schema(checkout: Path) -> ConfigSchema:
    """Return the keys that the prime-rl checkout in `checkout` declares for `rl`.

    Raises:
        UsageError: no checkout of prime-rl, or its classes can't be read.
    """
    source = Source([checkout / root for root in ROOTS])
    for name in MODULES:
        module = source.module(name)
        if module is None:
            continue
        found = source.find(module, ast.Name(ROOT_CLASS, ast.Load()))
        if isinstance(found, Found):
            builder = Builder(source)
            return ConfigSchema(str(checkout), builder.shape_of(found), builder.tables)
    raise UsageError(
        f"`{checkout}` declares no configuration of prime-rl (no class `{ROOT_CLASS}` in"
        f" `{ROOTS[0]}/{MODULES[0].replace('.', '/')}.py`)",
        "give the folder of a prime-rl checkout",
    )


def check_document(document: Mapping[str, Any], schema: ConfigSchema) -> None:
    """Refuse the first key of `document` that this version of prime-rl doesn't have.

    Raises:
        UsageError: names the dotted key (`orchestrator.train.source.0.nmae`) and the near miss.
    """
    for problem in _problems(document, schema.root, "", schema):
        raise UsageError(*problem)


_Problem = tuple[str, str]


def _problems(value: Any, shape: Shape, key: str, schema: ConfigSchema) -> Iterator[_Problem]:
    """Yield what is wrong with `value`, in the order of the document."""
    if value is None or value == NULL_TEXT:
        return
    match shape:
        case Anything():
            return
        case Items(item) if isinstance(value, (list, tuple)):
            for i, entry in enumerate(value):
                yield from _problems(entry, item, _join(key, str(i)), schema)
        case Values(inner) if isinstance(value, Mapping):
            for name, entry in value.items():
                yield from _problems(entry, inner, _join(key, str(name)), schema)
        case TableRef(name) if isinstance(value, Mapping):
            yield from _table_problems(value, schema.tables[name], key, schema)
        case Tagged() if isinstance(value, Mapping):
            yield from _tagged_problems(value, shape, key, schema)
        case OneOf(options):
            yield from _best(options, lambda option: _problems(value, option, key, schema))


def _table_problems(
    value: Mapping[str, Any], table: Table, key: str, schema: ConfigSchema
) -> Iterator[_Problem]:
    for name, entry in value.items():
        dotted = _join(key, str(name))
        shape = table.fields.get(name)
        if shape is not None:
            yield from _problems(entry, shape, dotted, schema)
        elif not table.is_open:
            yield (
                f"`{dotted}` is no key of the prime-rl in `{schema.name}`"
                f" (`{table.name}` has no `{name}`)",
                f"{_near(str(name), table.fields, key)}prime-rl renames keys without aliases:"
                " compare the file with that version",
            )


def _tagged_problems(
    value: Mapping[str, Any], shape: Tagged, key: str, schema: ConfigSchema
) -> Iterator[_Problem]:
    tag = value.get(shape.tag)
    if tag is None or tag == NULL_TEXT:
        # prime-rl fills in the default's, which isn't always readable from its source.
        options = tuple(dict.fromkeys(shape.options.values()))
        if shape.is_complete:
            yield from _best(options, lambda option: _problems(value, option, key, schema))
    elif tag in shape.options:
        yield from _problems(value, shape.options[tag], key, schema)
    elif shape.is_complete:
        dotted = _join(key, shape.tag)
        near = near_miss(str(tag), shape.options)
        known = ", ".join(f"`{option}`" for option in sorted(shape.options))
        yield (
            f"`{dotted}` is {tag!r}, which the prime-rl in `{schema.name}` doesn't have",
            (f"did you mean `{near}`? " if near else "")
            + f"it has {known}; another version may name it otherwise",
        )


def _best(
    options: tuple[Shape, ...], problems: Callable[[Shape], Iterator[_Problem]]
) -> Iterator[_Problem]:
    """Yield the problems of the option that has the fewest; none where one fits."""
    found = [list(problems(option)) for option in options]
    if found:
        yield from min(found, key=len)


def _near(name: str, fields: Mapping[str, Shape], key: str) -> str:
    near = near_miss(name, fields)
    if near is not None:
        return f"did you mean `{_join(key, near)}`? "
    if 0 < len(fields) <= _MAX_LISTED:
        return f"it has {', '.join(f'`{field}`' for field in sorted(fields))}; "
    return ""


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
