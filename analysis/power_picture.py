"""The picture of a power analysis: what is detected by the number of seeds and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis.curve import FloatArray
from analysis.drafts import widest
from analysis.metrics import metric_spec
from analysis.power import COLLAPSED, PowerTable
from analysis.power_report import Answer, format_hours, format_level_of
from analysis.report.drawing import INK, render_pictures
from analysis.report.numbers import TIMES, format_level

_WIDTH_IN = 9.6
_PANEL_HEIGHT_IN = 2.7
_COLORS = ("#222222", "#0072B2")
_TARGET_COLOR = "#D55E00"
_DASHES = ((), (5.0, 1.6))
_BEYOND = 1e300  # Drawn in place of an infinite end of a band.
_MOST_RATIO = 100.0
_RATIOS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


def plot_power(answer: Answer) -> tuple[bytes, bytes]:
    """Return the picture as PNG and as SVG, one panel per table of `answer`."""

    def draw() -> Canvas:
        height = _PANEL_HEIGHT_IN * len(answer.tables) + 0.9
        canvas = Canvas(figsize=(_WIDTH_IN, height), layout="constrained")
        grid = canvas.subplots(len(answer.tables), 1, sharex=True, squeeze=False)
        panels = list(grid[:, 0])
        for axes, table in zip(panels, answer.tables, strict=True):
            _draw_table(axes, answer, table)
        _label_seeds(panels, answer)
        _add_legend(canvas, answer)
        return canvas

    return render_pictures(draw)


def _draw_table(axes: Axes, answer: Answer, table: PowerTable) -> None:
    seeds = np.array([row.n for row in table.rows])
    middles = []
    for place, (color, dash) in enumerate(zip(_COLORS, _DASHES, strict=True)):
        found = [row.found[place] if row.can_decide[place] else None for row in table.rows]
        shown = [(math.nan,) * 3 if f is None else (f.shift, f.low, f.high) for f in found]
        middle, low, high = _on_axis(table.name, np.array(shown, dtype=np.float64).T)
        if np.any(high > low):
            axes.fill_between(
                seeds,
                low,
                np.minimum(high, _BEYOND),
                where=np.isfinite(low),
                color=color,
                alpha=0.13,
                linewidth=0,
            )
        middle[np.isinf(middle)] = np.nan
        [line] = axes.plot(seeds, middle, color=color, linewidth=1.9, marker="o", markersize=3)
        if dash:
            line.set_dashes(dash)
        middles += [value for value in middle if np.isfinite(value)]
    if table.target is not None:
        target = float(_on_axis(table.name, np.array(table.target)))
        axes.axhline(target, color=_TARGET_COLOR, linewidth=1.0, zorder=1)
        middles.append(target)
    if table.name == COLLAPSED:
        axes.set_ylim(0.0, 1.03)
        axes.set_ylabel("difference in share collapsed")
    else:
        _scale_metric(axes, table.name, middles or [1.0])


def _on_axis(name: str, values: FloatArray) -> FloatArray:
    """Return differences as they are, and ratios as their logs."""
    if name == COLLAPSED or metric_spec(name).scale == "difference":
        return values
    return np.asarray(np.log(values), dtype=np.float64)


def _scale_metric(axes: Axes, name: str, shown: Sequence[float]) -> None:
    """Make the axis one of logs, on which what is detected falls almost straight."""
    metric = metric_spec(name)
    is_ratio = metric.scale == "ratio"
    most = math.log(_MOST_RATIO) if is_ratio else widest(metric) or math.inf
    low, high = min(shown) / 1.4, min(1.4 * max(shown), most)
    axes.set_yscale("log")
    axes.set_ylim(low, max(high, 1.5 * low))
    axes.yaxis.set_minor_locator(NullLocator())
    if is_ratio:
        axes.set_yticks([math.log(ratio) for ratio in _RATIOS if low <= math.log(ratio) <= high])
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{TIMES}{math.exp(value):.4g}")
        )
        axes.set_ylabel(f"ratio of {metric.label}")
        return
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    unit = f" ({metric.unit})" if metric.unit else ""
    axes.set_ylabel(f"difference in {metric.label}{unit}")


def _label_seeds(panels: Sequence[Axes], answer: Answer) -> None:
    seeds = [row.n for row in answer.tables[0].rows]
    ticks = _with_room(seeds, [str(n) for n in seeds])
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlim(seeds[0] / 1.05, seeds[-1] * 1.05)
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    panels[-1].set_xlabel("seeds per arm")
    if answer.cost is None:
        return
    hours = [format_hours(n * answer.cost.per_seed) for n in seeds]
    ticks = _with_room(seeds, hours)
    top = panels[0].twiny()
    top.set_xscale("log")
    top.set_xlim(panels[0].get_xlim())
    top.set_xticks(ticks, [text for n, text in zip(seeds, hours, strict=True) if n in ticks])
    top.xaxis.set_minor_locator(NullLocator())
    top.grid(visible=False)
    top.set_xlabel(f"{answer.cost.unit} of all arms")


def _with_room(seeds: Sequence[int], labels: Sequence[str]) -> list[int]:
    """Return the seeds whose labels don't touch on an axis of logs."""
    per_log = 62.0 * _WIDTH_IN / max(math.log(seeds[-1] / seeds[0]), 0.1)
    apart = math.exp((5.5 * max(map(len, labels)) + 6.0) / per_log)
    kept = [seeds[0]]
    for n in seeds[1:]:
        if n >= apart * kept[-1]:
            kept.append(n)
    return kept


def _add_legend(canvas: Canvas, answer: Answer) -> None:
    design = answer.design
    alone, strictest = (format_level_of(level) for level in design.levels)
    texts = (
        f"at {alone}, unadjusted",
        f"at {strictest}, the strictest of Holm over {design.family}",
    )
    handles: list[Line2D | Patch] = []
    for color, dash, text in zip(_COLORS, _DASHES, texts, strict=True):
        line = Line2D([], [], color=color, linewidth=1.9, marker="o", markersize=3, label=text)
        if dash:
            line.set_dashes(dash)
        handles.append(line)
    if any(_has_band(table) for table in answer.tables):
        level = format_level(design.alpha)
        handles.append(
            Patch(facecolor=INK, alpha=0.13, label=f"{level} interval of noise or share")
        )
    if any(table.target is not None for table in answer.tables):
        handles.append(Line2D([], [], color=_TARGET_COLOR, linewidth=1.0, label="asked for"))
    name = answer.sweep.replace("$", r"\$")  # no part of it is mathematics
    canvas.legend(
        handles=handles,
        loc="outside upper left",
        ncols=4,
        handlelength=3.2,
        borderaxespad=0.2,
        title=f"The smallest differences that {name} detects with power {design.power:g}",
        alignment="left",
    )


def _has_band(table: PowerTable) -> bool:
    return any(found.high > found.low for row in table.rows for found in row.found)
