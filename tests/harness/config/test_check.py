from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.config.check import check_group, defaults_of, output_keys
from harness.config.fields import choice, number, output
from harness.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Inner:
    every: int = number(10, ge=1)
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Example:
    type: str = "example"
    rate: float = number(ge=0, lt=1)
    limit: float | None = number(None, gt=0, allows_infinity=True)
    steps: int = number(5, ge=0)
    is_on: bool = False
    mode: str = choice("fast", "fast", "slow")
    window: tuple[int, int] = (1, 2)
    inner: Inner = output(default_factory=Inner)
    free: dict[str, Any] = field(default_factory=dict)


def check(**data: Any) -> dict[str, Any]:
    return check_group(Example, {"rate": 0.5, **data}, "trainer", lambda key: "`file.yaml`")


def test_defaults_are_filled_in_and_numbers_come_out_in_the_declared_form() -> None:
    assert check(rate=0, limit=3) == {
        "type": "example",
        "rate": 0.0,
        "limit": 3.0,
        "steps": 5,
        "is_on": False,
        "mode": "fast",
        "window": [1, 2],
        "inner": {"every": 10, "names": []},
        "free": {},
    }
    assert isinstance(check(rate=0)["rate"], float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rate": "1e-3"}, "`trainer.rate` is the text '1e-3', want a number"),
        ({"steps": "1_000"}, "`trainer.steps` is the text '1_000', want a whole number"),
        ({"is_on": "yes"}, "`trainer.is_on` is the text 'yes', want true or false"),
        ({"is_on": 1}, "`trainer.is_on` is 1, want true or false"),
        ({"steps": True}, "`trainer.steps` is true, want a whole number"),
        ({"steps": 2.0}, "`trainer.steps` is 2.0, want a whole number"),
        ({"rate": True}, "`trainer.rate` is true, want a number"),
        ({"rate": None}, "`trainer.rate` is null, want a number"),
        ({"rate": 1}, "`trainer.rate` is 1.0, want less than 1"),
        ({"rate": -1e-9}, "`trainer.rate` is -1e-09, want at least 0"),
        ({"rate": float("nan")}, "`trainer.rate` is nan, want a finite number"),
        ({"rate": 10**400}, "`trainer.rate` is inf, want a finite number"),
        ({"limit": 0}, "`trainer.limit` is 0.0, want more than 0"),
        ({"mode": "fsat"}, "`trainer.mode` is the text 'fsat'"),
        ({"window": [1]}, "`trainer.window` has 1 items, want 2"),
        ({"window": 3}, "`trainer.window` is 3, want a list"),
        ({"window": [1, "2"]}, "`trainer.window[1]` is the text '2', want a whole number"),
        ({"inner": 3}, "`trainer.inner` is 3, want a group of keys"),
        ({"inner": {"evry": 3}}, "unknown key `trainer.inner.evry`"),
        ({"inner": {"every": 0}}, "`trainer.inner.every` is 0, want at least 1"),
        ({"rate": "???"}, "`trainer.rate` has no value (`???`)"),
        ({"free": {"a": [float("inf")]}}, "`trainer.free.a[0]` is inf, want a finite number"),
        ({"free": {1: 2}}, "`trainer.free` has the key 1, want text"),
    ],
)
def test_wrong_values_are_refused_naming_key_and_value(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"`file.yaml`: {message}")):
        check(**data)


def test_unknown_key_hints_at_the_near_miss() -> None:
    with pytest.raises(UsageError) as caught:
        check(stpes=3)
    assert caught.value.message == "`file.yaml`: unknown key `trainer.stpes`"
    assert caught.value.hint == "did you mean `steps`?"


def test_missing_required_key_is_named() -> None:
    with pytest.raises(UsageError, match="`trainer.rate` is missing"):
        check_group(Example, {}, "trainer", lambda key: "`file.yaml`")


def test_infinity_is_kept_only_where_the_field_allows_it() -> None:
    assert check(limit=float("inf"))["limit"] == float("inf")


def test_defaults_leave_out_what_must_be_given() -> None:
    assert "rate" not in defaults_of(Example)
    assert defaults_of(Example)["inner"] == {"every": 10, "names": []}


def test_output_keys_are_listed_with_their_dotted_name() -> None:
    assert list(output_keys(Example, "trainer")) == ["trainer.inner"]
