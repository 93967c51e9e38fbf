"""Declares what a configuration field may hold, beside its type.

Used in the dataclasses behind the configuration; `harness.config.check` enforces it. A field's type
is one of bool, int, float, str, dict[str, Any], tuple[T, ...], a nested dataclass, or one of
these `| None`. A field without a default must be given (`???` in a base file).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

_KEY = "harness"


@dataclass(frozen=True)
class Limits:
    """What else holds for a field's value.

    Attributes:
        ge, gt, le, lt: bounds of a number (of each item, in a tuple).
        options: the closed list of choices of a str.
        allows_infinity: whether a float may be inf or -inf. NaN is never allowed.
        is_output: the field says where a run executes or what it leaves behind, not what it
            computes: it stays out of the run's identity.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    options: tuple[str, ...] | None = None
    allows_infinity: bool = False
    is_output: bool = False


def number(
    default: Any = dataclasses.MISSING,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    allows_infinity: bool = False,
    is_output: bool = False,
) -> Any:
    """A dataclass field for an int or float within bounds."""
    limits = Limits(
        ge=ge, gt=gt, le=le, lt=lt, allows_infinity=allows_infinity, is_output=is_output
    )
    return dataclasses.field(default=default, metadata={_KEY: limits})


def choice(default: Any, *options: str, is_output: bool = False) -> Any:
    """A dataclass field for a str from a closed list."""
    limits = Limits(options=options, is_output=is_output)
    return dataclasses.field(default=default, metadata={_KEY: limits})


def output(
    default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING
) -> Any:
    """A dataclass field, or a whole nested group, that stays out of a run's identity."""
    metadata = {_KEY: Limits(is_output=True)}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def limits_of(field: dataclasses.Field[Any]) -> Limits:
    """Return the limits declared for `field`; none where it was declared plainly."""
    limits = field.metadata.get(_KEY, Limits())
    assert isinstance(limits, Limits)
    return limits
