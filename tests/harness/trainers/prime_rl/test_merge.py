from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.prime_rl.documents import parse_document
from harness.trainers.prime_rl.merge import apply_overrides, merge, with_nulls

RECORDED: list[tuple[list[str], dict[str, Any]]] = [
    (["[a]\nx=1\ny=2\n", "[a]\ny=3\nz=4\n"], {"a": {"x": 1, "y": 3, "z": 4}}),
    (["[a.b]\nx=1\n[a.c]\ny=1\n", "[a.b]\nz=2\n"], {"a": {"b": {"x": 1, "z": 2}, "c": {"y": 1}}}),
    (["a=[1,2,3]\n", "a=[9]\n"], {"a": [9]}),
    (["[[s]]\nn='x'\nw=1\n[[s]]\nn='y'\n", "[[s]]\nn='z'\n"], {"s": [{"n": "z"}]}),
    (["[[t.s]]\nn=1\n", "[t]\nk=2\n"], {"t": {"s": [{"n": 1}], "k": 2}}),
    (["a=1\n", "[a]\nb=2\n"], {"a": {"b": 2}}),
    (["[a]\nb=2\n", "a=1\n"], {"a": 1}),
    (["[a]\nb=2\n", "[a]\n"], {"a": {"b": 2}}),
    (["[a]\nb=2\n", "a='None'\n"], {"a": None}),
    (["a='None'\n", "[a]\nb=1\n"], {"a": {"b": 1}}),
    (["a=[1]\n", "[a]\nb=1\n"], {"a": {"b": 1}}),
    (["p='${HOME}/x'\n", "q='$p'\n"], {"p": "${HOME}/x", "q": "$p"}),
    (
        ["[trainer.loss]\ntype='ipo'\neps=0.3\n", "[trainer.loss]\ntype='icepop'\n"],
        {"trainer": {"loss": {"type": "icepop", "eps": 0.3}}},
    ),
    (["x=1\n", "x=2\n", "x=3\n"], {"x": 3}),
]
"""Files as TOML, and what `@ a @ b` of prime-pydantic-config 0.4.3 made of them."""


@pytest.mark.parametrize(("files", "expected"), RECORDED)
def test_files_are_merged_as_prime_rl_was_seen_to_merge_them(
    files: list[str], expected: dict[str, Any]
) -> None:
    documents = [parse_document(text, ".toml", "f") for text in files]
    assert with_nulls(merge(documents)) == expected


def test_nothing_that_is_merged_is_changed_or_shared() -> None:
    documents: list[dict[str, Any]] = [{"a": {"x": [1]}, "s": [{"n": 1}]}, {"a": {"y": {"z": 1}}}]
    before = copy.deepcopy(documents)
    merged: Any = merge(documents)
    merged["a"]["x"].append(2)
    merged["a"]["y"]["z"] = 2
    merged["s"][0]["n"] = 2
    assert documents == before


def test_a_removal_takes_a_key_out_whatever_came_before() -> None:
    assert merge([{"a": {"b": 1, "c": 2}}, {"a": {"~b": None}}]) == {"a": {"c": 2}}


def test_a_removal_beside_the_key_replaces_a_table_as_a_whole() -> None:
    base = {"loss": {"type": "ipo", "eps": 0.3}}
    assert merge([base, {"loss": {"type": "icepop"}, "~loss": None}]) == {
        "loss": {"type": "icepop"}
    }


def test_only_a_bare_key_with_null_is_a_removal() -> None:
    document = {"mounts": {"~/data": "/data", "~x": 1}}
    assert merge([document]) == document
    assert merge([{"~/data": None}]) == {"~/data": None}


def test_a_removal_of_nothing_names_the_key_and_the_near_miss() -> None:
    with pytest.raises(UsageError) as caught:
        merge([{"slurm": {"time": "1:00"}}, {"slurm": {"~tme": None}}])
    assert caught.value.message == "`slurm.~tme` removes `slurm.tme`, which is not there"
    assert caught.value.hint == "did you mean `time`?"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a.b=2", {"a": {"b": 2, "c": [{"d": 1}, 5]}, "n": None}),
        ("a.x.y=1e-3", {"a": {"b": 1, "c": [{"d": 1}, 5], "x": {"y": 0.001}}, "n": None}),
        ("a.c.0.d=2", {"a": {"b": 1, "c": [{"d": 2}, 5]}, "n": None}),
        ("a.c.0={e: 3}", {"a": {"b": 1, "c": [{"d": 1, "e": 3}, 5]}, "n": None}),
        ("a.c.1=6", {"a": {"b": 1, "c": [{"d": 1}, 6]}, "n": None}),
        ("a.c=[]", {"a": {"b": 1, "c": []}, "n": None}),
        ("a={b: 7}", {"a": {"b": 7, "c": [{"d": 1}, 5]}, "n": None}),
        ("a={~c: null}", {"a": {"b": 1}, "n": None}),
        ("~a.c", {"a": {"b": 1}, "n": None}),
        ("~a.c.0", {"a": {"b": 1, "c": [5]}, "n": None}),
        ("~a", {"n": None}),
        ("n.m=1", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": {"m": 1}}),
        ("n=24:00:00", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": "24:00:00"}),
        ("n=on", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": "on"}),
        ("n=", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": ""}),
        ("n=None", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": "None"}),
        ("n=${X}=1", {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": "${X}=1"}),
        ('n."k=l"="m=n"', {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": {"k=l": "m=n"}}),
        ('n."0".x=1', {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": {"0": {"x": 1}}}),
        ('n."k.\\"l"=1', {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": {'k."l': 1}}),
    ],
)
def test_an_override_sets_or_removes_one_key(override: str, expected: dict[str, Any]) -> None:
    document = {"a": {"b": 1, "c": [{"d": 1}, 5]}, "n": None}
    before = copy.deepcopy(document)
    assert apply_overrides(document, [override]) == expected
    assert document == before


def test_overrides_act_in_order_and_the_last_one_wins() -> None:
    assert apply_overrides({}, ["a.b=1", "a.b=2", "~a.b", "a.c=3"]) == {"a": {"c": 3}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a.b", "arm x: `a.b` has no `=`"),
        ("=1", "arm x: `=1`: `` can't be a key"),
        ("a..b=1", "arm x: `a..b=1`: `a..b` can't be a key"),
        ("a.=1", "arm x: `a.=1`: `a.` can't be a key"),
        ('a."b=1', 'arm x: `a."b=1`: `a."b` can\'t be a key'),
        ("a.b.c=1", "arm x: `a.b.c=1`: `a.b` is 1, which holds no `c`"),
        ("a.c.2=1", "arm x: `a.c.2=1`: `a.c` is a list of 2 items and has no `2`"),
        ("a.c.-1=1", "arm x: `a.c.-1=1`: `a.c` is a list of 2 items and has no `-1`"),
        ("a.c.d=1", "arm x: `a.c.d=1`: `a.c` is a list of 2 items and has no `d`"),
        ("a.env.0.id=x", "arm x: `a.env.0.id=x`: there is no `a.env` with an item `0` to set"),
        ("a.n.0=x", "arm x: `a.n.0=x`: there is no `a.n` with an item `0` to set"),
        ("~a.x", "arm x: `~a.x` removes `a.x`, which is not there"),
        ("~x.y", "arm x: `~x.y` removes `x.y`, which is not there"),
        ("~", "arm x: `~`: `` can't be a key"),
        ("a.b=[1", "arm x: `a.b=[1`: the value is not valid YAML"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused_with_its_origin(
    override: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        apply_overrides({"a": {"b": 1, "c": [1, 2], "n": None}}, [override], origin="arm x")
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_the_text_none_in_tables_means_null_and_in_lists_it_does_not() -> None:
    assert with_nulls({"a": "None", "b": ["None", {"c": "None"}]}) == {
        "a": None,
        "b": ["None", {"c": None}],
    }
