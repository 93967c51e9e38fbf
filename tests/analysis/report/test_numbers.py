from __future__ import annotations

import math

import pytest

from analysis.report.numbers import (
    format_duration,
    format_effect,
    format_integers,
    format_mean,
    format_metric,
    format_number,
    format_p,
    format_runs,
    format_share,
    format_time,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (1.0, "1.00"),
        (0.00123456, "0.00123"),
        (0.000123456, "1.23e-4"),
        (12345.6, "12346"),
        (-0.5, "-0.500"),
        (3.2e7, "3.20e7"),
        (math.nan, "not finite"),
        (None, "\N{EN DASH}"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_shares_are_written_by_what_they_are() -> None:
    assert format_metric("solve_rate", 0.9) == "0.900"
    assert format_metric("is_masked", 0.00003) == "0.00300 %"
    assert format_metric("mismatch_kl", 0.00003) == "3.00e-5"
    assert format_mean("is_masked", 0.01, 0.005, 0.015) == "1.00 % [0.500, 1.50]"
    assert format_mean("solve_rate", 0.9, None, None) == "0.900"


def test_effects_show_their_scale() -> None:
    assert format_effect("difference", 0.1, -0.2, 0.4) == "+0.100 [-0.200, +0.400]"
    assert format_effect("ratio", 2.5, 2.0, 3.0) == "\N{MULTIPLICATION SIGN}2.50 [2.00, 3.00]"
    assert format_effect("share", -1.0, None, None) == "-1.000"


def test_p_values_shares_and_durations() -> None:
    assert [format_p(p) for p in (0.00001, 0.0042, 0.042, 1.0)] == [
        "< 0.0001",
        "0.0042",
        "0.042",
        "1.000",
    ]
    assert format_share(3, 8, 0.09, 0.755) == "3 of 8 [9, 76 %]"
    assert [format_duration(s) for s in (2.25, 59.0, 61.0, 3720.0)] == [
        "2.2 s",
        "59 s",
        "1 min 01 s",
        "1 h 02 min",
    ]
    assert format_time(0.0) == "1970-01-01 00:00:00"


def test_runs_are_listed_with_ranges() -> None:
    assert format_integers([0, 1, 2, 4, 7, 8]) == "0-2, 4, 7-8"
    assert format_runs([("a", 1), ("a", 0), ("b", 3)]) == "a seeds 0-1, b seed 3"
