from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curve import (
    EMPTY_CURVE,
    Curve,
    mean_of,
    median_of,
    trailing_means,
    typical_spacing,
)


def curve(points: dict[int, float]) -> Curve:
    return Curve(np.array(list(points), dtype=np.int64), np.array(list(points.values())))


def test_trailing_means_use_the_steps_present_only() -> None:
    means = trailing_means(curve({1: 1.0, 2: 3.0, 4: 5.0, 9: 7.0}), 3)
    assert means.steps.tolist() == [1, 2, 4, 9]
    assert means.values.tolist() == [1.0, 2.0, 4.0, 7.0]


def test_trailing_means_leave_values_out_that_are_not_finite() -> None:
    means = trailing_means(curve({1: 1.0, 2: math.nan, 3: 3.0}), 3)
    assert means.steps.tolist() == [1, 3]
    assert means.values.tolist() == [1.0, 2.0]


def test_trailing_means_of_small_values_survive_a_huge_one() -> None:
    means = trailing_means(curve({1: 1e300, 2: 1e-5, 3: 1e-5, 4: 1e-5}), 2)
    assert means.values[2:].tolist() == [1e-5, 1e-5]


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.integers(min_value=1, max_value=8)
)
def test_trailing_means_equal_their_definition(values: list[float], window: int) -> None:
    steps = np.cumsum(np.arange(len(values)) % 3 + 1)
    means = trailing_means(Curve(steps, np.array(values)), window)
    for place, step in enumerate(steps):
        inside = [v for s, v in zip(steps, values, strict=True) if step - window < s <= step]
        assert means.values[place] == pytest.approx(sum(inside) / len(inside), abs=1e-9)


def test_nothing_has_no_means() -> None:
    assert len(trailing_means(EMPTY_CURVE, 5)) == 0


def test_typical_spacing_is_the_median_distance() -> None:
    assert typical_spacing(np.array([1, 11, 21, 22])) == 10
    assert typical_spacing(np.array([7])) == 1


def test_means_and_medians_whose_sums_are_beyond_floats() -> None:
    assert mean_of(np.array([1e308, 1.2e308, 1.7e308])) == pytest.approx(1.3e308)
    assert mean_of(np.array([1.5e308, -1.5e308])) == 0.0
    assert mean_of(np.full(7, sys.float_info.max)) == sys.float_info.max
    assert math.isnan(mean_of(np.array([math.inf, -math.inf])))
    assert median_of(np.array([1.0, 1.2e308, 1.6e308, 1.7e308])) == pytest.approx(1.4e308)
    assert median_of(np.array([3.0, 1.0, 2.0, 4.0])) == 2.5
    means = trailing_means(curve({1: 1e308, 2: 1.6e308, 3: 1e-3}), 2)
    assert means.values.tolist() == pytest.approx([1e308, 1.3e308, 0.8e308])


def test_a_curve_is_cut_after_a_step() -> None:
    whole = curve({1: 1.0, 5: 2.0, 9: 3.0})
    assert whole.up_to(5).steps.tolist() == [1, 5]
    assert whole.up_to(5).values.tolist() == [1.0, 2.0]
    assert whole.up_to(None) is whole
