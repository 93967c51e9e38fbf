"""The pictures of a replay. The same result gives the same bytes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from analysis.replay.regions import Regions, draw_boundaries, fill_regions, find_regions
from analysis.replay.result import Curve, Density, Recommendation, ReplayResult
from analysis.replay.spread import spread
from analysis.replay.wording import (
    curve_titles,
    format_count,
    format_fraction,
    format_knob,
    format_near,
    format_threshold,
    replayed,
    short_labels,
)
from analysis.report.drawing import PAPER, render_pictures
from analysis.report.figures import Figure

_WIDTH_IN = 9.6
_FEW_TOKENS = 20_000
_CURVE_COLOR = "#0072B2"
_OTHER_COLOR = "#5C636B"
_CHOSEN_COLOR = "#B8478E"
# Ink on white reads the same to every eye, and leaves hues to the regions; one token in a bin must
# still be seen on their tints.
_DENSITY_COLORS = LinearSegmentedColormap.from_list("density", ["#A9A9A9", "#6A6A6A", "#0A0A0A"])


def plot_pictures(result: ReplayResult) -> list[Figure]:
    """Return the density with its regions, and one figure per curve; none of no tokens."""
    if not result.num_tokens:
        return []
    figures = [_density(result, result.density)] if result.density is not None else []
    titles = curve_titles(result.curves)
    return figures + [
        _curve(result, curve, name, title)
        for curve, (name, title) in zip(result.curves, titles.items(), strict=True)
        if len(curve.thresholds) > 1
    ]


def _density(result: ReplayResult, density: Density) -> Figure:
    regions = find_regions(result)
    fine = np.array(density.counts, dtype=np.int64).T  # rows are drawn upwards: p
    coarse = _coarser(fine, result.num_tokens)

    def draw() -> Canvas:
        canvas = Canvas(figsize=(_WIDTH_IN, 5.0), layout="constrained")
        left, right = canvas.subplots(1, 2)
        levels = _density_levels(float(coarse.max()))
        norm = BoundaryNorm(levels, _DENSITY_COLORS.N)
        logarithmic = np.linspace(0.0, 1.0, len(fine) + 1)
        smallest = logarithmic[0] = logarithmic[1] / 2  # the lowest bin reaches down to 0
        linear = np.linspace(0.0, 1.0, len(coarse) + 1)
        for axes, sides, counts in ((left, linear, coarse), (right, logarithmic, fine)):
            fill_regions(axes, regions, smallest if axes is right else 0.0)
            mesh = axes.pcolormesh(
                sides,
                sides,
                np.ma.masked_equal(counts, 0),
                norm=norm,
                cmap=_DENSITY_COLORS,
                rasterized=True,
                zorder=2,
                linewidth=0,
            )
            draw_boundaries(axes, regions, smallest if axes is right else 0.0)
            axes.set_xlabel("probability under the engine, q")
            axes.set_aspect("equal")
            axes.grid(visible=False)
        left.set_ylabel("probability under the trainer, p")
        left.set(xlim=(0, 1), ylim=(0, 1), title="all tokens")
        ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        left.set_xticks(ticks)
        left.set_yticks(ticks)
        right.set(xscale="log", yscale="log", title="rare tokens (log axes)")
        right.set(xlim=(smallest, 1), ylim=(smallest, 1))
        _label_log_axes(right, smallest)
        bar = canvas.colorbar(mesh, ax=[left, right], shrink=0.72, aspect=28, pad=0.015)
        bar.set_ticks([level for level in levels if round(np.log10(level), 6) % 1 == 0])
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        bar.set_label("tokens per bin")
        bar.outline.set_visible(False)
        _add_legend(canvas, regions)
        return canvas

    caption = (
        f"Every one of {result.num_tokens:,} tokens by its two probabilities, in bins of "
        f"{1 / len(coarse):.2g}; the darker, the more tokens (log scale). On the diagonal "
        "nothing moved. "
        + (
            f"Drawn over it: {' and '.join(rule.text for rule in regions.rules)}; counts are of "
            "the rules' own decisions, not of bins. "
            if regions.rules
            else ""
        )
        + f"Right: on log axes, in bins of {1 / len(fine):.2g};"
        " there the lowest bin stands for all below it."
    )
    alt = (
        f"Tokens by engine probability (across) and trainer probability (up). "
        f"{'; '.join(f'{name}: {format_count(count)}' for name, count in regions.counts.items())}."
    )
    title = "Trainer and engine probability of every token"
    return _figure("density", title, caption, alt, draw)


def _coarser(counts: npt.NDArray[np.int64], num_tokens: int) -> npt.NDArray[np.int64]:
    """Return wider bins where tokens are few: a lone one must be seen."""
    factor = 4 if num_tokens < _FEW_TOKENS else 2 if num_tokens < 10 * _FEW_TOKENS else 1
    num_bins = len(counts) // factor
    if num_bins * factor != len(counts):
        return counts
    blocks = counts.reshape(num_bins, factor, num_bins, factor)
    return np.asarray(blocks.sum(axis=(1, 3)), dtype=np.int64)


def _density_levels(most: float) -> list[float]:
    """Return two steps of grey per decade, up to what holds `most`."""
    levels = [1.0, 3.0]
    while levels[-1] < most:
        levels += [10 * levels[-2], 10 * levels[-1]]
    return levels


def _label_log_axes(axes: Axes, smallest: float) -> None:
    shown = [value for value in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if value >= 1.3 * smallest]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(shown)
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _add_legend(canvas: Canvas, regions: Regions) -> None:
    handles: list[Any] = [
        Line2D([], [], color=rule.color, linestyle=rule.line, linewidth=1.6, label=rule.text)
        for rule in regions.rules
    ]
    handles += [
        Patch(
            facecolor=regions.colors[name],
            edgecolor=_OTHER_COLOR,
            linewidth=0.5,
            label=f"masked by {name}: {format_count(count)}"
            if name != "neither"
            else f"masked by neither: {format_count(count)}",
        )
        for name, count in regions.counts.items()
    ]
    if handles:
        canvas.legend(handles=handles, loc="outside upper left", ncols=3, handlelength=2.4)


@dataclass(frozen=True)
class _Level:
    """A rule's fraction, drawn across the axes of a curve."""

    text: str
    fraction: float
    color: str


def _curve(result: ReplayResult, curve: Curve, name: str, title: str) -> Figure:
    least = 1.0 / result.num_tokens
    floor = least / 2.5
    thresholds = np.array(curve.thresholds)
    shares = np.array(curve.num_masked) / result.num_tokens
    own, others = _split_rules(result, curve)
    chosen = _chosen(result.recommendations, curve)

    def draw() -> Canvas:
        canvas = Canvas(figsize=(_WIDTH_IN, 4.6), layout="constrained")
        axes = canvas.subplots()
        if curve.low:
            low, high = (np.maximum(np.array(ends), floor) for ends in (curve.low, curve.high))
            axes.fill_between(
                thresholds, low, high, color=_CURVE_COLOR, alpha=0.18, linewidth=0, zorder=2
            )
        drawn = np.where(shares > 0, shares, floor)
        axes.plot(thresholds, drawn, color=_CURVE_COLOR, linewidth=1.9, zorder=4)
        for level in others:
            at = max(level.fraction, floor)
            axes.axhline(at, color=level.color, linewidth=1.0, linestyle=(0, (5, 2)), zorder=3)
        for threshold, fraction in own.values():
            axes.plot(
                [threshold],
                [max(fraction, floor)],
                marker="o",
                markersize=6,
                color=_CURVE_COLOR,
                markeredgecolor=PAPER,
                zorder=6,
            )
        axes.set(xscale="log" if thresholds[0] > 0 else "linear", yscale="log")
        axes.set_xlim(thresholds[0], thresholds[-1])
        top = max(float(drawn.max()), *(level.fraction for level in others), 10 * least)
        axes.set_ylim(floor / 1.6, min(2.0 * top, 1.3))
        if chosen is not None:
            axes.axvline(chosen, color=_CHOSEN_COLOR, linewidth=1.4, zorder=3)
            to_right = bool(np.mean(thresholds < chosen) < 0.4)  # where the label has room
            axes.annotate(
                f"recommended {curve.knob} = {format_threshold(chosen)}",
                xy=(chosen, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(5 if to_right else -5, -4),
                textcoords="offset points",
                ha="left" if to_right else "right",
                va="top",
                color=_CHOSEN_COLOR,
                weight="bold",
            )
        _label_fractions(axes, floor, least)
        _label_levels(axes, others, floor)
        _label_points(axes, own, floor)
        axes.set_xlabel(f"{curve.knob} of {curve.type}")
        axes.set_ylabel("fraction of tokens masked")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return canvas

    band = " Band: 95 % interval over sequences." if curve.low else ""
    caption = (
        f"The share of {result.num_tokens:,} tokens that {curve.type} would have masked, counted "
        f"exactly at {len(thresholds)} thresholds.{band} Dots: listed rules of that kind; dashed: "
        f"other listed rules. A share of 0 is drawn as < 1/n."
    )
    ends = ", ".join(
        f"{format_near(curve.thresholds[place])}: {format_fraction(float(shares[place]))}"
        for place in (0, len(thresholds) // 2, -1)
    )
    alt = f"Fraction masked over {curve.knob} of {curve.type}. {ends}."
    if chosen is not None:
        alt += f" Recommended: {format_threshold(chosen)}."
    return _figure(f"curve_{name}", title, caption, alt, draw)


def _split_rules(
    result: ReplayResult, curve: Curve
) -> tuple[Mapping[str, tuple[float, float]], list[_Level]]:
    """Return the listed rules that lie on the curve, as points, and the others, as levels."""
    own: dict[str, tuple[float, float]] = {}
    others = []
    shown = short_labels(result.rules)
    for rule in replayed(result.rules):
        fraction = rule.fraction or 0.0
        is_same = rule.type == curve.type and all(
            rule.knobs.get(knob) == value for knob, value in curve.fixed.items()
        )
        if not is_same:
            others.append(_Level(shown[rule.label], fraction, _OTHER_COLOR))
        elif curve.thresholds[0] <= float(rule.knobs[curve.knob]) <= curve.thresholds[-1]:
            own[rule.label] = (float(rule.knobs[curve.knob]), fraction)
    return own, others


def _chosen(recommendations: Sequence[Recommendation], curve: Curve) -> float | None:
    for item in recommendations:
        if (item.type, item.knob) == (curve.type, curve.knob):
            return item.threshold
    return None


def _label_fractions(axes: Axes, floor: float, least: float) -> None:
    """Write fractions in percent, and `< 1/n` where zeros are drawn."""
    decades = [10.0**exponent for exponent in range(-12, 1)]
    axes.set_yticks([value for value in decades if value > 1.01 * least] + [floor])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: "< 1/n" if value < least else f"{100 * value:g} %")
    )


def _label_levels(axes: Axes, levels: Sequence[_Level], floor: float) -> None:
    """Name the levels beside their right ends, none over another."""
    low, high = np.log(axes.get_ylim())
    at = [(np.log(max(level.fraction, floor)) - low) / (high - low) for level in levels]
    for level, true, place in zip(levels, at, spread(at, 0.055), strict=True):
        axes.annotate(
            f"{level.text}  {format_fraction(level.fraction)}",
            xy=(1.0, true),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=level.color,
            arrowprops={"arrowstyle": "-", "color": level.color, "linewidth": 0.6},
        )


def _label_points(axes: Axes, points: Mapping[str, tuple[float, float]], floor: float) -> None:
    for threshold, fraction in points.values():
        axes.annotate(
            f"{format_knob(threshold)}: {format_fraction(fraction)}",
            xy=(threshold, max(fraction, floor)),
            xytext=(-7, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            color=_CURVE_COLOR,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            zorder=5,
        )


def _figure(name: str, title: str, caption: str, alt: str, draw: Callable[[], Canvas]) -> Figure:
    png, svg = render_pictures(draw)
    return Figure(name, title, caption, alt, png, svg)
