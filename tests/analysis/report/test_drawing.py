from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from analysis.curve import Curve
from analysis.report.drawing import (
    Panel,
    drawable,
    finish_axes,
    line_of,
    middle_of,
    open_limits,
    prepare_axes,
    thinned,
)
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


def test_what_no_axis_can_hold_is_left_out() -> None:
    kept = drawable(curve({1: 1e308, 2: -1e308, 3: 1e-308, 4: 1e-3, 5: math.inf}))
    assert np.isnan(kept.values).tolist() == [True, True, False, False, True]
    assert kept.values[2:4].tolist() == [0.0, 1e-3]


@pytest.mark.parametrize("is_log", [True, False])
def test_a_constant_line_stands_amid_its_axis(is_log: bool) -> None:
    # One rounding apart is where matplotlib warns of identical limits; warnings fail tests here.
    axes = Canvas().subplots()
    prepare_axes(axes, Panel("mismatch_kl", is_log=is_log), [])
    axes.plot([1, 2], [1e-3, np.nextafter(1e-3, 1)])
    open_limits(axes)
    low, high = axes.get_ylim()
    assert low < 0.95e-3
    assert high > 1.05e-3


def test_lines_that_vary_keep_the_limits_of_matplotlib() -> None:
    axes, plain = Canvas().subplots(2)
    for each in (axes, plain):
        each.plot([1, 2], [1.0, 1.1])
    open_limits(axes)
    assert axes.get_ylim() == plain.get_ylim()


@pytest.mark.parametrize("height_in", [1.0, 2.1, 6.0])
@pytest.mark.parametrize("floor", [3e-13, 1.1e-12, 3e-5])
def test_no_label_of_a_log_axis_stands_on_its_zero(height_in: float, floor: float) -> None:
    canvas = Canvas(figsize=(6.0, height_in))
    FigureCanvasAgg(canvas)
    axes: Axes = canvas.subplots()
    panel = Panel("grad_norm", is_log=True, floor=floor)
    prepare_axes(axes, panel, [])
    axes.plot([1, 2], [floor, 10.0])
    finish_axes(axes, panel)
    canvas.draw_without_rendering()
    [zero] = axes.texts
    top = zero.get_window_extent().y1
    labels = [label for label in axes.get_yticklabels(which="both") if label.get_text()]
    inside = [label for label in labels if floor <= label.get_position()[1] <= 10.0]
    assert inside
    assert all(label.get_window_extent().y0 >= top - 1.5 for label in inside)
