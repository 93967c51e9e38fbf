from __future__ import annotations

import math

import numpy as np

from analysis.curve import Curve
from analysis.report.drawing import Panel, line_of, middle_of, thinned
from analysis.report.style import arm_styles


def curve(points: dict[int, float]) -> Curve:
    return Curve(np.array(list(points), dtype=np.int64), np.array(list(points.values())))


def test_a_value_that_is_not_finite_breaks_the_line() -> None:
    _, values = line_of(curve({1: 1.0, 2: math.inf, 3: 2.0}), Panel("mismatch_kl", is_log=True))
    assert np.isnan(values).tolist() == [False, True, False]


def test_zeros_are_drawn_at_the_floor_of_a_log_axis() -> None:
    panel = Panel("is_masked", is_log=True, floor=1e-5)
    assert line_of(curve({1: 0.0, 2: 1e-2}), panel)[1].tolist() == [1e-5, 1e-2]


def test_thinning_keeps_every_spike() -> None:
    steps = np.arange(10_000)
    values = np.zeros(10_000)
    values[[1234, 7777]] = 9.0
    values[4321] = -9.0
    few, kept = thinned(steps, values, 100)
    assert len(few) <= 100
    assert sorted(kept[kept != 0].tolist()) == [-9.0, 9.0, 9.0]
    assert (np.diff(few) > 0).all()


def test_thinning_keeps_a_hole_in_the_line() -> None:
    values = np.ones(10_000)
    values[5000:6000] = np.nan
    _, kept = thinned(np.arange(10_000), values, 100)
    assert np.isnan(kept).any()


def test_the_middle_needs_half_of_the_runs() -> None:
    runs = [curve({1: 1.0, 2: 2.0, 3: 3.0}), curve({1: 3.0, 2: math.nan}), curve({1: 8.0})]
    mean = middle_of(runs, "mean")
    assert (mean.steps.tolist(), mean.values.tolist()) == ([1], [4.0])
    assert middle_of(runs, "median").values.tolist() == [3.0]


def test_thirty_arms_are_drawn_in_thirty_ways() -> None:
    arms = [f"arm_{i}" for i in range(31)]
    styles = arm_styles(arms, "arm_0")
    assert list(styles) == arms
    assert len({(style.color, style.dash) for style in styles.values()}) == 31
