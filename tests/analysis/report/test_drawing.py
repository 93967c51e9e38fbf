from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from analysis.curve import Curve
from analysis.report.decimate import column_starts, decimate, drawable, envelope
from analysis.report.drawing import (
    Panel,
    finish_axes,
    line_of,
    middle_of,
    open_limits,
    prepare_axes,
    render_pictures,
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


@given(
    values=st.lists(
        st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), min_size=1, max_size=300
    ),
    gaps=st.lists(st.integers(1, 9), min_size=300, max_size=300),
    max_columns=st.integers(1, 40),
)
def test_decimation_keeps_the_range_of_every_column_and_every_break(
    values: list[float], gaps: list[int], max_columns: int
) -> None:
    steps = np.cumsum(gaps[: len(values)])
    given_values = np.array(values)
    few_steps, few = decimate(steps, given_values, max_columns)
    assert (few_steps[0], few_steps[-1]) == (steps[0], steps[-1])
    assert (np.diff(few_steps) > 0).all()
    assert len(few) <= 3 * max_columns + 2
    if len(values) <= 2 * max_columns:
        assert few_steps.tolist() == steps.tolist()
        return
    starts = steps[column_starts(steps, max_columns)]
    assert len(starts) <= max_columns
    for first, end in zip(starts, [*starts[1:], steps[-1] + 1], strict=True):
        all_of = given_values[(steps >= first) & (steps < end)]
        kept_of = few[(few_steps >= first) & (few_steps < end)]
        finite, kept = all_of[np.isfinite(all_of)], kept_of[np.isfinite(kept_of)]
        assert np.isnan(kept_of).any() == (len(finite) < len(all_of))
        if len(finite):
            assert (kept.min(), kept.max()) == (finite.min(), finite.max())
    kept_values = given_values[np.isin(steps, few_steps)]
    np.testing.assert_array_equal(few, np.where(np.isfinite(kept_values), kept_values, np.nan))


def test_a_spike_of_one_step_is_drawn() -> None:
    values = np.zeros(10_000)
    values[[1234, 7777]] = 9.0
    values[4321] = -9.0
    few_steps, kept = decimate(np.arange(10_000), values, 50)
    assert len(few_steps) <= 102
    assert dict(zip(few_steps[kept != 0].tolist(), kept[kept != 0].tolist(), strict=True)) == {
        1234: 9.0,
        4321: -9.0,
        7777: 9.0,
    }


def test_the_envelope_of_a_column_is_over_its_finite_values() -> None:
    columns = np.array([0, 0, 2, 2, 2], dtype=np.int64)
    low, high, mean = envelope(columns, np.array([1.0, 3.0, 5.0, math.nan, 6.0]), 3)
    for found, expected in ((low, [1.0, 5.0]), (high, [3.0, 6.0]), (mean, [2.0, 5.5])):
        assert found[[0, 2]].tolist() == expected
        assert np.isnan(found[1])


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
    assert [arm for arm, style in styles.items() if not style.dash] == ["arm_0"]


def test_colors_on_dark_paper_are_lighter_and_all_differ() -> None:
    styles = arm_styles([f"arm_{i}" for i in range(7)], "arm_0").values()
    assert len({style.dark_color for style in styles}) == 7
    for style in styles:
        light, dark = (
            sum(int(color[i : i + 2], 16) for i in (1, 3, 5))
            for color in (style.color, style.dark_color)
        )
        assert dark > light


def test_a_picture_has_the_same_bytes_each_time_and_does_not_name_the_day() -> None:
    def draw() -> Canvas:
        canvas = Canvas(figsize=(2.0, 1.0))
        canvas.subplots().plot([1, 2], [3, 4], clip_on=True)
        return canvas

    png, svg = render_pictures(draw)
    assert render_pictures(draw) == (png, svg)
    assert png.startswith(b"\x89PNG\r\n")
    assert svg.lstrip().startswith(b"<?xml")
    assert b"dc:date" not in svg


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
