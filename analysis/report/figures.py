"""The figures of a report. The same curves give the same bytes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from analysis.metrics import metric_spec
from analysis.parents import Parent
from analysis.replicates import replicates_of
from analysis.report.decimate import drawable, floor_of
from analysis.report.drawing import (
    INK,
    PAPER,
    Panel,
    draw_middle,
    draw_past,
    draw_seeds,
    finish_axes,
    line_of,
    open_limits,
    prepare_axes,
    render_pictures,
)
from analysis.report.forks import find_parents
from analysis.report.numbers import format_metric
from analysis.report.style import SMOOTHED_STEPS, ArmStyle, arm_styles
from analysis.results import Results
from analysis.summary import ArmSummary, RunSummary

_OUTCOME = (
    Panel("solve_rate", is_smoothed=True),
    Panel("mismatch_kl", is_log=True, is_smoothed=True, middle="median"),
)
_DIAGNOSTICS = (
    Panel("is_masked", is_log=True, is_smoothed=True),
    Panel("entropy", is_smoothed=True),
    Panel("grad_norm", is_log=True, is_smoothed=True, middle="median"),
)
_CAUSES = (
    Panel("token_class_rise", is_log=True, is_smoothed=True),
    Panel("token_class_drop", is_log=True, is_smoothed=True),
    Panel("importance_ratio_max_kept", is_log=True, middle="largest"),
)
_EXPLAINED = ("token_class_rise", "token_class_drop", "importance_ratio_max_kept")
_WIDTH_IN = 9.6
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class Figure:
    """A figure as PNG and as SVG.

    Attributes:
        alt: says in words what it shows.
        metrics: what its panels show.
    """

    name: str
    title: str
    caption: str
    alt: str
    png: bytes
    svg: bytes
    metrics: tuple[str, ...] = ()


def plot_figures(
    results: Results, progress: Callable[[str], None] = lambda message: None
) -> list[Figure]:
    """Return the figures that the logged metrics allow; none where nothing was logged."""
    makers: tuple[tuple[str, Callable[[], Figure | None]], ...] = (
        (
            "curves",
            lambda: _together(results, "curves", "Solve rate and mismatch KL", _OUTCOME, 2.9),
        ),
        ("arms", lambda: _by_arm(results)),
        (
            "causes",
            lambda: _together(results, "causes", "What the masks see", _CAUSES, 2.1),
        ),
        (
            "diagnostics",
            lambda: _together(
                results, "diagnostics", "Masked fraction, entropy, gradient norm", _DIAGNOSTICS, 2.1
            ),
        ),
    )
    figures = []
    for name, make in makers:
        progress(f"drawing {name}")
        figure = make()
        if figure is not None:
            figures.append(figure)
    return figures


def _together(
    results: Results, name: str, title: str, panels: Sequence[Panel], panel_height_in: float
) -> Figure | None:
    """Draw all arms in the same axes, one panel below the other over shared steps."""
    shown = _logged_panels(results, panels)
    if not shown:
        return None
    styles = _styles(results)

    def draw() -> Canvas:
        height = panel_height_in * len(shown) + 0.8
        canvas = Canvas(figsize=(_WIDTH_IN, height), layout="constrained")
        rows = canvas.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, shown, strict=True):
            prepare_axes(axes, panel, _windows(results))
            draw_past(axes, _parents(results.runs), panel)
            for arm in results.arms:
                draw_seeds(axes, arm, panel, styles[arm.arm].color, is_alone=False)
            for arm in results.arms:
                draw_middle(axes, arm, panel, styles[arm.arm])
            open_limits(axes)
            finish_axes(axes, panel)
        rows[-1].set_xlabel("step")
        _add_legend(canvas, styles)
        return canvas

    caption = f"Thin lines: every seed. Bold: {_middles_text(shown)}."
    smoothed = [metric_spec(panel.metric).label for panel in shown if panel.is_smoothed]
    if smoothed:
        names = ", ".join(smoothed)
        caption += f" Drawn as trailing means over {SMOOTHED_STEPS} steps, for the eye: {names}."
    caption += " Shaded: the baseline window and the final window."
    caption += _past_text(results)
    caption += "".join(
        f" {_capital(metric_spec(name).label)}: {metric_spec(name).definition}."
        for name in _EXPLAINED
        if any(panel.metric == name for panel in shown)
    )
    labels = ", ".join(metric_spec(panel.metric).label for panel in shown)
    alt = f"{labels} over steps for {_arm_list(results)}.{_means_text(results, shown)}"
    return _render(name, title, caption, alt, shown, draw)


def _middles_text(panels: Sequence[Panel]) -> str:
    """Return what the bold lines are, such as `the mean over seeds (mismatch KL: the median)`."""
    others = [
        f"{metric_spec(panel.metric).label}: the {panel.middle}"
        for panel in panels
        if panel.middle != "mean"
    ]
    return "the arm's mean over seeds" + (f" ({', '.join(others)})" if others else "")


def _by_arm(results: Results) -> Figure | None:
    """Draw each arm for itself, so that no seed hides behind another arm, with its events."""
    shown = _logged_panels(results, _OUTCOME)
    if not shown:
        return None
    styles = _styles(results)
    num_columns = min(len(results.arms), _MAX_COLUMNS)
    num_rows = -(-len(results.arms) // num_columns) * len(shown)

    def draw() -> Canvas:
        canvas = Canvas(figsize=(_WIDTH_IN, 1.5 * num_rows + 0.5), layout="constrained")
        grid = canvas.subplots(num_rows, num_columns, sharex=True, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for offset, panel in enumerate(shown):
            group: list[Axes] = []
            empty: list[Axes] = []
            for place, arm in enumerate(results.arms):
                band, column = divmod(place, num_columns)
                axes = grid[band * len(shown) + offset, column]
                axes.set_axis_on()
                color = styles[arm.arm].color
                prepare_axes(axes, panel, _windows(results))
                if any(summary.run.curve(panel.metric) for summary in arm.runs):
                    draw_past(axes, _parents(arm.runs), panel)
                    draw_seeds(axes, arm, panel, color, is_alone=True)
                    open_limits(axes)
                    _mark_events(axes, arm, panel)
                    group.append(axes)
                else:
                    axes.text(0.5, 0.5, "not logged", ha="center", transform=axes.transAxes)
                    empty.append(axes)
                axes.set_ylabel(metric_spec(panel.metric).label if column == 0 else "")
                if offset == 0:
                    axes.set_title(_literal(arm.arm), loc="left", color=color, weight="bold")
            _share_limits(group, empty)
            for axes in (*group, *empty):
                finish_axes(axes, panel)
        for column in range(num_columns):
            lowest = max(range(num_rows), key=lambda row: row * grid[row, column].axison)
            grid[lowest, column].set_xlabel("step")
            grid[lowest, column].tick_params(labelbottom=True)
        return canvas

    caption = (
        "One line per seed. On a seed's line, a cross marks where its mismatch KL exploded and a "
        "triangle where its solve rate collapsed."
    )
    caption += _past_text(results)
    if results.runs_beyond:
        caption += f" Events are judged up to step {results.judged_to}."
    events = "; ".join(
        f"{arm.arm}: {len(arm.exploded.steps)} exploded, {len(arm.collapsed.steps)} collapsed of "
        f"{len(arm.judged)} {'finished' if arm.judged == arm.done else 'finished or stopped'}"
        for arm in results.arms
    )
    alt = f"Every seed of {_arm_list(results)}, one column of panels per arm. {events}."
    return _render("by_arm", "Every seed, arm by arm", caption, alt, shown, draw)


def _render(
    name: str,
    title: str,
    caption: str,
    alt: str,
    panels: Sequence[Panel],
    draw: Callable[[], Canvas],
) -> Figure:
    png, svg = render_pictures(draw)
    return Figure(name, title, caption, alt, png, svg, tuple(panel.metric for panel in panels))


def _logged_panels(results: Results, panels: Sequence[Panel]) -> list[Panel]:
    """Return the panels with something to show, those on a log axis with their floor."""
    found = []
    for panel in panels:
        curves = [summary.run.curve(panel.metric) for summary in results.runs]
        logged = [curve for curve in curves if curve is not None]
        pasts = [parent.curves.get(panel.metric) for parent in _parents(results.runs)]
        if any(len(drawable(curve).finite()) for curve in logged):
            floor = floor_of([*logged, *(past for past in pasts if past is not None)])
            found.append(replace(panel, floor=floor if panel.is_log else None))
    return found


def _parents(runs: Sequence[RunSummary]) -> list[Parent]:
    return [parent for parent, _ in find_parents(summary.run for summary in runs)]


def _past_text(results: Results) -> str:
    has_past = any(parent.curves for parent in _parents(results.runs))
    return " Grey and dashed: what the runs start from, up to the fork." if has_past else ""


def _windows(results: Results) -> list[tuple[int, int]]:
    windows = [results.sweep.plan.analysis.baseline_steps]
    if results.window is not None:
        windows.append((results.window.first, results.window.last))
    return windows


def _styles(results: Results) -> Mapping[str, ArmStyle]:
    plan = results.sweep.plan
    return arm_styles([a.arm for a in results.arms], plan.baseline, replicates_of(plan.arms))


def _add_legend(canvas: Canvas, styles: Mapping[str, ArmStyle]) -> None:
    handles = []
    for arm, style in styles.items():
        handle = Line2D([], [], color=style.color, linewidth=1.9, label=_literal(arm))
        if style.dash:
            handle.set_dashes(style.dash)
        handles.append(handle)
    canvas.legend(
        handles=handles,
        loc="outside upper left",
        ncols=min(len(handles), 6),
        handlelength=3.2,
        borderaxespad=0.2,
    )


def _mark_events(axes: Axes, arm: ArmSummary, panel: Panel) -> None:
    for summary in arm.runs:
        step = _event_step(summary, panel.metric)
        curve = summary.run.curve(panel.metric)
        if step is None or curve is None:
            continue
        steps, values = line_of(drawable(curve), panel)
        known = np.flatnonzero((steps <= step) & np.isfinite(values))
        if len(known):
            axes.plot(
                [step],
                [values[known[-1]]],
                marker="X" if panel.metric == "mismatch_kl" else "v",
                markersize=6,
                color=INK,
                markeredgecolor=PAPER,
                markeredgewidth=0.7,
                linestyle="none",
                zorder=5,
            )


def _event_step(summary: RunSummary, metric: str) -> int | None:
    event = summary.exploded if metric == "mismatch_kl" else summary.collapsed
    return event.step


def _share_limits(group: Sequence[Axes], empty: Sequence[Axes]) -> None:
    """Give all axes the limits that hold the lines of `group`."""
    limits = [axes.get_ylim() for axes in group]
    for axes in (*group, *empty):
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _arm_list(results: Results) -> str:
    return ", ".join(arm.arm for arm in results.arms)


def _means_text(results: Results, panels: Sequence[Panel]) -> str:
    text = ""
    for panel in panels:
        means = [
            f"{arm.arm} {format_metric(panel.metric, arm.means[panel.metric].mean)}"
            for arm in results.arms
            if panel.metric in arm.means
        ]
        if means:
            text += f" Final {metric_spec(panel.metric).label}: {', '.join(means)}."
    return text


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _literal(name: str) -> str:
    """Return `name` so that no part of it is set as mathematics."""
    return name.replace("$", r"\$")
