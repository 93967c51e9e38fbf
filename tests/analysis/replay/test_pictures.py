from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.replay.pictures import plot_pictures
from analysis.replay.regions import find_regions
from analysis.replay.result import Curve
from analysis.replay.spread import spread
from tests.analysis.replay.made_results import made_result


def test_both_pictures_are_drawn_and_the_same_result_gives_the_same_bytes() -> None:
    result = made_result()
    figures = plot_pictures(result)
    assert [figure.name for figure in figures] == ["density", "curve_ipo_eps"]
    for figure in figures:
        assert figure.png.startswith(b"\x89PNG\r\n")
        assert b"<svg" in figure.svg
    assert plot_pictures(result) == figures


def test_the_regions_count_what_the_rules_decide_and_the_figure_prints_it() -> None:
    result = made_result()
    pair = next(
        pair
        for pair in result.agreements
        if pair.first == "ipo:eps=0.3" and pair.second.startswith("icepop")
    )
    counts = find_regions(result).counts
    assert counts == {
        "both": pair.both,
        "only IPO": pair.only_first,
        "only IcePop": pair.only_second,
        "neither": pair.neither,
    }
    [figure, _] = plot_pictures(result)
    svg = figure.svg.decode()
    assert f"<!-- masked by only IPO: {pair.only_first:,} -->" in svg
    assert f"<!-- masked by neither: {pair.neither:,} -->" in svg


def test_a_pair_that_stands_the_other_way_round_gives_the_same_regions() -> None:
    result = made_result()
    turned = tuple(
        dataclasses.replace(
            pair,
            first=pair.second,
            second=pair.first,
            only_first=pair.only_second,
            only_second=pair.only_first,
        )
        for pair in result.agreements
    )
    swapped = dataclasses.replace(result, agreements=turned)
    assert find_regions(swapped) == find_regions(result)


@pytest.mark.parametrize("kind", ["ipo", "icepop", "kpop"])
def test_a_density_is_drawn_with_the_rules_that_there_are(kind: str) -> None:
    result = made_result()
    rules = tuple(rule for rule in result.rules if rule.type == kind)
    [figure, _] = plot_pictures(dataclasses.replace(result, rules=rules, agreements=()))
    assert ("IPO" in figure.caption, "IcePop" in figure.caption) == (
        kind == "ipo",
        kind == "icepop",
    )


def test_zeros_are_drawn_below_one_token_and_marked_so() -> None:
    figure = plot_pictures(made_result())[1]
    assert b"<!-- &lt; 1/n -->" in figure.svg or b"<!-- < 1/n -->" in figure.svg
    assert "1: 0 %" in figure.alt


def test_curves_of_nothing_masked_and_from_0_are_drawn() -> None:
    flat = Curve("ipo", "eps", {}, (0.0, 0.5, 1.0), (0, 0, 0))
    figures = plot_pictures(made_result(curves=(flat,), rules=(), density=None))
    assert [figure.name for figure in figures] == ["curve_ipo_eps"]


def test_no_tokens_give_no_picture() -> None:
    assert plot_pictures(dataclasses.replace(made_result(), num_tokens=0)) == []


@given(st.lists(st.floats(0, 1), max_size=9), st.floats(0.01, 0.3))
def test_labels_lie_apart_in_the_order_of_what_they_name(places: list[float], gap: float) -> None:
    found = spread(places, gap)
    order = sorted(range(len(places)), key=lambda index: places[index])
    ordered = [found[index] for index in order]
    steps = itertools.pairwise(ordered)
    assert all(second - first >= gap - 1e-9 for first, second in steps)


def test_labels_that_do_not_meet_stay_where_they_are() -> None:
    assert spread([0.9, 0.1, 0.5], 0.05) == [0.9, 0.1, 0.5]
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
