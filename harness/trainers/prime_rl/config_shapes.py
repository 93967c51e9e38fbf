"""What a key of prime-rl's configuration may hold, as far as names of keys go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Anything:
    """Not checked: a plain value, a free-form table, or what could not be followed."""


@dataclass(frozen=True)
class Items:
    """A list."""

    item: Shape


@dataclass(frozen=True)
class Values:
    """A table whose keys are free."""

    value: Shape


@dataclass(frozen=True)
class TableRef:
    """A table, by name: tables may hold themselves."""

    name: str


@dataclass(frozen=True)
class Tagged:
    """One of several tables, told apart by the text under `tag`.

    Attributes:
        is_complete: whether `options` holds every tag that prime-rl knows.
    """

    tag: str
    options: Mapping[str, Shape]
    is_complete: bool


@dataclass(frozen=True)
class OneOf:
    """Any of several, with nothing to tell them apart."""

    options: tuple[Shape, ...]


Shape = Anything | Items | Values | TableRef | Tagged | OneOf


@dataclass(frozen=True)
class Table:
    """The keys of a table.

    Attributes:
        name: of its class.
        tags: keys that hold one of some texts -> these texts.
        is_open: whether it takes other keys, too.
    """

    name: str
    fields: Mapping[str, Shape]
    tags: Mapping[str, tuple[str, ...]]
    is_open: bool
