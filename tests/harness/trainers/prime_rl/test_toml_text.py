from __future__ import annotations

import datetime
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.trainers.prime_rl.toml_text import to_toml

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_KEYS = st.one_of(st.sampled_from(["a", "b_c", "1", "x-y", "a.b", "", "é"]), _TEXT)
_SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXT, st.sampled_from(["None", "\r"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_what_is_written_is_read_back_with_the_same_values_and_types(
    document: dict[str, Any],
) -> None:
    read = tomllib.loads(to_toml(document))
    assert read == document
    assert _types(read) == _types(document)


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_types(item) for item in value]
    return type(value)


def test_tables_are_sections_and_lists_of_tables_are_repeated_sections() -> None:
    document = {
        "trainer": {"loss": {"type": "ipo", "eps": 0.3}},
        "max_steps": 100,
        "orchestrator": {"train": {"source": [{"name": "x", "env": {"labels": ["l"]}}, {}]}},
        "resume": {},
    }
    assert to_toml(document) == (
        "max_steps = 100\n"
        "\n"
        "[trainer.loss]\n"
        'type = "ipo"\n'
        "eps = 0.3\n"
        "\n"
        "[[orchestrator.train.source]]\n"
        'name = "x"\n'
        "\n"
        "[orchestrator.train.source.env]\n"
        'labels = ["l"]\n'
        "\n"
        "[[orchestrator.train.source]]\n"
        "\n"
        "[resume]\n"
    )


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e16, 1e-06, 2**70])
def test_unusual_numbers_survive(value: float) -> None:
    assert tomllib.loads(to_toml({"a": value, "b": [value]})) == {"a": value, "b": [value]}


def test_nan_is_written() -> None:
    assert to_toml({"a": float("nan")}) == "a = nan\n"


def test_nothing_is_an_empty_file() -> None:
    assert to_toml({}) == ""


def test_null_in_a_table_is_the_text_that_prime_rl_reads_as_null() -> None:
    document = {"a": None, "b": [1, {"c": None}]}
    assert to_toml(document) == 'a = "None"\nb = [1, {c = "None"}]\n'


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"a": {"b": [1, None]}}, "`a.b` holds a null in a list, which TOML can't say"),
        ({"a": {1: 2}}, "`a` has the key 1, want text"),
        ({"a": [[{1: 2}]]}, "`a` has the key 1, want text"),
        ({"a": datetime.date(2026, 1, 1)}, "`a` is a date, want plain data"),
        ({"a": "\ud800"}, r"`a` is '\ud800', which is no Unicode text"),
        ({"\ud800": 1}, r"`\ud800` is '\ud800', which is no Unicode text"),
    ],
)
def test_what_toml_cannot_say_is_refused_by_key(document: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        to_toml(document)
    assert caught.value.message == message
    assert caught.value.hint
