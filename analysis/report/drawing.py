"""How curves are drawn: lines, axes, the bytes of pictures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatterSciNotation
from PIL import Image

from analysis.curve import Curve, FloatArray, IntArray, trailing_means
from analysis.metrics import metric_spec
from analysis.parents import Parent
from analysis.report.decimate import decimate, drawable
from analysis.report.style import SMOOTHED_STEPS, ArmStyle
from analysis.summary import ArmSummary

_DPI = 144
_MAX_COLUMNS = 500  # under three pixels each
_LABEL_HEIGHT_PT = 11.0

PAPER = "#FFFFFF"
INK = "#333333"
_GRID = "#E6E6E3"
_SHADE = "#F3F2EC"
_PAST = "#8C8C88"


_SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.edgecolor": _GRID,
    "axes.facecolor": PAPER,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.minor.size": 0.0,
    "legend.frameon": False,
    "svg.hashsalt": "ablation report",  # The ids of its parts are random otherwise.
}


@dataclass(frozen=True)
class Panel:
    """What one pair of axes shows.

    Attributes:
        is_log: on a log axis; `floor` is where a 0 is drawn on it, None where there is none.
        is_smoothed: as a trailing mean over `SMOOTHED_STEPS`.
        middle: what the bold line is over seeds: mean, median or largest.
    """

    metric: str
    is_log: bool = False
    is_smoothed: bool = False
    middle: str = "mean"
    floor: float | None = None


def render_pictures(draw: Callable[[], Canvas]) -> tuple[bytes, bytes]:
    """Return what `draw` drew as PNG and as SVG.

    Settings of the user's matplotlib have no say in it, nor has the time of day.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the font lacks becomes boxes here; the tables spell it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        canvas = draw()
        FigureCanvasAgg(canvas)
        png, svg = io.BytesIO(), io.BytesIO()
        canvas.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
        canvas.savefig(svg, format="svg", metadata={"Date": None})
    return _with_palette(png), svg.getvalue()


def _with_palette(png: io.BytesIO) -> bytes:
    """Return the picture with 256 colours: a third of the bytes, and no difference to the eye."""
    small = io.BytesIO()
    with Image.open(png) as picture:
        few = picture.convert("RGB").quantize(
            256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        few.save(small, format="png", optimize=True)
    return small.getvalue()


def prepare_axes(axes: Axes, panel: Panel, windows: Sequence[tuple[int, int]]) -> None:
    """Set scale and label of `axes`, and shade `windows` (first and last step)."""
    spec = metric_spec(panel.metric)
    axes.set_ylabel(f"{spec.label} ({spec.unit})" if spec.unit else spec.label)
    axes.margins(x=0.01)
    if panel.is_log:
        axes.set_yscale("log")
    for first, last in windows:
        axes.axvspan(first, last, color=_SHADE, linewidth=0, zorder=0)


def finish_axes(axes: Axes, panel: Panel) -> None:
    """Set limits once the lines are there, and write 0 where it is drawn on a log axis."""
    if panel.metric.startswith("solve_rate"):
        axes.set_ylim(-0.03, 1.03)
    if panel.floor is not None:
        axes.set_ylim(bottom=panel.floor / 1.4)
        axes.yaxis.set_major_formatter(_FormatterAbove(panel.floor))
        axes.yaxis.set_minor_formatter(_FormatterAbove(panel.floor))
        axes.annotate(
            "0",
            xy=(0.0, panel.floor),
            xycoords=("axes fraction", "data"),
            xytext=(-7, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=INK,
        )


def open_limits(axes: Axes) -> None:
    """Give the y axis a height where its lines are constant, but for rounding.

    Before anything asks for the limits: matplotlib's own would be one number, on a log axis.
    """
    low_high = _nearly_constant(axes)
    if low_high is not None:
        axes.set_autoscaley_on(False)  # Setting limits would let what is pending run first.
        axes.set_ylim(low_high)


def _nearly_constant(axes: Axes) -> tuple[float, float] | None:
    """Return limits around the lines of `axes` where these are as good as constant, else None."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines])
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    if axes.get_yscale() == "log":
        return (low / 3, high * 3) if 0 < high < 1.01 * low else None
    half = 0.1 * max(abs(low), abs(high))
    return (low - half, high + half) if 0 < high - low < 1e-5 * half else None


class _FormatterAbove(LogFormatterSciNotation):
    """Labels a log axis, but for what lies below the place of 0 or where its label stands."""

    def __init__(self, floor: float) -> None:
        super().__init__(labelOnlyBase=False, minor_thresholds=(1.0, 0.4))
        self._floor = floor

    def __call__(self, x: float, pos: int | None = None) -> str:
        return (
            "" if self._points_above_floor(x) < _LABEL_HEIGHT_PT else str(super().__call__(x, pos))
        )

    def _points_above_floor(self, x: float) -> float:
        axes = getattr(self.axis, "axes", None)
        if x <= self._floor or not isinstance(axes, Axes):
            return 0.0
        ends = axes.transData.transform([(0.0, self._floor), (0.0, x)])
        return float(ends[1, 1] - ends[0, 1]) * 72.0 / axes.figure.dpi


def draw_seeds(axes: Axes, arm: ArmSummary, panel: Panel, color: str, *, is_alone: bool) -> None:
    """Draw one line per run of `arm`; fainter where other arms share the axes."""
    width, alpha = (0.9, 0.8) if is_alone else (0.6, 0.3)
    for curve in _logged(arm, panel):
        steps, values = line_of(curve, panel)
        axes.plot(steps, values, color=color, linewidth=width, alpha=alpha)


def draw_past(axes: Axes, parents: Sequence[Parent], panel: Panel) -> None:
    """Draw what forks share, each past once."""
    for parent in parents:
        curve = parent.curves.get(panel.metric)
        if curve is not None and len(curve):
            steps, values = line_of(drawable(curve), panel)
            axes.plot(steps, values, color=_PAST, linewidth=1.2, linestyle=(0, (4, 2)))


def draw_middle(axes: Axes, arm: ArmSummary, panel: Panel, style: ArmStyle) -> None:
    """Draw what the seeds of `arm` have in the middle (or at most) as a bold line."""
    curves = _logged(arm, panel)
    if not curves:
        return
    steps, values = line_of(middle_of(curves, panel.middle), panel)
    [line] = axes.plot(steps, values, color=style.color, linewidth=1.9)
    if style.dash:
        line.set_dashes(style.dash)


def line_of(curve: Curve, panel: Panel) -> tuple[IntArray, FloatArray]:
    """Return the points of a drawable `curve`: a value that is not finite breaks the line."""
    values = curve.values.copy()
    if panel.is_smoothed:
        smooth = trailing_means(curve, SMOOTHED_STEPS)
        values[np.isin(curve.steps, smooth.steps)] = smooth.values
        if len(curve) > 3 * SMOOTHED_STEPS:  # The first means are over too few steps.
            values[: SMOOTHED_STEPS - 1] = np.nan
    values[~np.isfinite(values)] = np.nan
    steps, values = decimate(curve.steps, values, _MAX_COLUMNS)
    if panel.floor is not None:
        values = np.where(values < panel.floor, panel.floor, values)
    return steps, values


def middle_of(curves: Sequence[Curve], middle: str) -> Curve:
    """Return mean, median or largest over runs, at the steps where at least half have a value."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    table = np.full((len(curves), len(steps)), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[np.searchsorted(steps, curve.steps)] = curve.values
    table[~np.isfinite(table)] = np.nan
    is_shared = np.isfinite(table).sum(axis=0) * 2 >= len(curves)
    kept = table[:, is_shared]
    over_runs: dict[str, Callable[..., Any]] = {
        "mean": np.nanmean,
        "median": np.nanmedian,
        "largest": np.nanmax,
    }
    return Curve(steps[is_shared], np.asarray(over_runs[middle](kept, axis=0), dtype=np.float64))


def _logged(arm: ArmSummary, panel: Panel) -> list[Curve]:
    curves = [summary.run.curve(panel.metric) for summary in arm.runs]
    return [drawable(curve) for curve in curves if curve is not None]
