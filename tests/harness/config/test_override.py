from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from harness.config.override import parse_overrides, to_override
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("+loss.foo=1", "adds or deletes a key"),
        ("++loss.eps=1", "adds or deletes a key"),
        ("~loss", "adds or deletes a key"),
        ("loss", "has no `=`"),
        ("=1", "`` can't be a key"),
        ("loss@x=ipo", "`loss@x` can't be a key"),
        ("hydra.verbose=true", "sets a key of Hydra itself"),
    ],
)
def test_what_is_no_plain_override_is_refused_with_its_origin(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="sweeps/x.yaml: arm a") as caught:
        parse_overrides([text], "sweeps/x.yaml: arm a")
    assert message in caught.value.message


def test_a_number_in_an_override_list_is_refused() -> None:
    with pytest.raises(UsageError, match="3 is not text"):
        parse_overrides([3], "x")


@given(st.text().filter(lambda s: "$" not in s))
def test_any_text_survives_the_way_through_an_override(text: str) -> None:
    parsed = OverridesParser.create().parse_override(to_override("key", text))
    assert parsed.value() == text if isinstance(parsed.value(), str) else False


@pytest.mark.parametrize("value", [None, True, False, 0, -3, 1.5, 1e-30, [1, "a, b", None]])
def test_plain_values_survive_the_way_through_an_override(value: object) -> None:
    parsed = OverridesParser.create().parse_override(to_override("key", value)).value()
    assert str(parsed) == str(value)
    assert type(parsed) is type(value)
