"""report.html: one file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.report import background, event_tables, tables
from analysis.report.cells import Column, Report, Table, make_arm_cell, make_cell
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure
from analysis.report.forks import describe_forks
from analysis.report.method import describe_command, describe_method, describe_trainer
from analysis.report.numbers import NONE, format_mean, format_time
from analysis.report.page_data import expand, survival_panel
from analysis.report.style import ArmStyle, arm_styles

_TEMPLATES_DIR = Path(__file__).parent / "templates"
_SCRIPT_PARTS = ("state", "numbers", "lines", "drawing", "cursor", "page")
_NUM_STEPS_IN_TABLE = 6


@dataclass(frozen=True)
class Section:
    """A part of the page that is made of tables; left out where it has none."""

    anchor: str
    title: str
    tables: tuple[Table, ...]
    has_alarm: bool = False


def render_html(
    report: Report,
    figures: Sequence[Figure],
    page_data: Mapping[str, Any] | None = None,
    replay_tables: Sequence[Table] = (),
) -> str:
    """Return the report as one page. Every string from a run or a user is escaped.

    Nothing is loaded and no other script runs: the page's own policy names the hashes of its one
    style and its one script.

    Args:
        page_data: what the charts are drawn from, see `build_page_data`; without it the figures
            stand in their place.
        replay_tables: of a replay of the sweep's token records, where there are any.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES_DIR),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_controls_in,
    )
    styles = arm_styles(
        [arm["name"] for arm in report["arms"]],
        report["baseline"],
        {arm["name"]: arm["replicate_of"] for arm in report["arms"] if arm.get("replicate_of")},
    )
    style = _read("report.css") + _arm_css(list(styles.values()))
    script = _script()
    charts = _with_survival(page_data, report)
    covered = {panel["name"] for panel in charts["panels"]} if charts else set()
    drawn = [figure for figure in figures if charts and _is_covered(figure, covered)]
    notices = sorted(report["notices"], key=lambda notice: notice.get("severity") != "error")
    before, after, last = _sections(report)
    if replay_tables:
        after.append(Section("replay", "Replay of recorded tokens", tuple(replay_tables)))
    return environment.get_template("report.html.j2").render(
        report=report,
        policy=_policy(style, script if charts else None),
        style=Markup(style),
        script=Markup(script) if charts else None,
        data=_to_script(charts) if charts else None,
        panels=_shown_panels(charts, report) if charts else [],
        level=charts["level"] if charts else "",
        places={name: place for place, name in enumerate(styles)},
        styles=styles,
        notices=notices,
        has_error=any(notice.get("severity") == "error" for notice in notices),
        verdicts=tables.verdict_table(report),
        before=before,
        after=after,
        last=last,
        method=describe_method(report),
        forks=describe_forks(report),
        command=describe_command(report),
        trainer=describe_trainer(report),
        newest_record=format_time(report["newest_record"]),
        fallbacks=[_picture(figure) for figure in drawn],
        figures=[_picture(figure) for figure in figures if figure not in drawn],
    )


def _sections(report: Report) -> tuple[list[Section], list[Section], list[Section]]:
    """Return the tables before the charts, those after them, and those behind the method."""
    differences = background.difference_table(report)
    is_same = [row[0].lines == ("same",) for row in differences.rows]
    differing = [row for row, same in zip(differences.rows, is_same, strict=True) if not same]
    same = [row for row, same in zip(differences.rows, is_same, strict=True) if same]
    shown = [tables.change_table(report), dataclasses.replace(differences, rows=tuple(differing))]
    if same:
        columns = differences.columns
        shown.append(Table("same", "The same in every run", columns, tuple(same), "", True))
    before = [
        Section(
            "differences",
            "What differs between the arms",
            tuple(shown),
            has_alarm=any(not item["is_declared"] for item in report["differences"]),
        )
    ]
    after = [
        Section("comparisons", "Comparisons", (tables.comparison_table(report),)),
        Section(
            "events",
            "Events",
            (
                tables.event_table(report),
                event_tables.parting_table(report),
                event_tables.happening_table(report),
            ),
        ),
        Section("seeds", "Every run", (tables.seed_table(report),)),
        Section(
            "time", "Time and cost", (background.cost_table(report), background.time_table(report))
        ),
    ]
    last = [
        Section("metrics", "Metrics and keys", (background.metric_table(report),)),
        Section("files", "Files", (background.file_table(report),)),
    ]
    return before, after, last


def _shown_panels(charts: Mapping[str, Any], report: Report) -> list[dict[str, Any]]:
    """Return the panels with the definitions that their runs follow, and with their tables."""
    followed = {item["name"]: item.get("definitions", {}) for item in report["metrics"]}
    found = []
    for panel in charts["panels"]:
        definitions = "; ".join(followed.get(panel["name"], {}).values()) or panel["definition"]
        found.append({**panel, "definition": definitions, "table": _means_table(panel, charts)})
    return found


def _means_table(panel: Mapping[str, Any], charts: Mapping[str, Any]) -> Table:
    """Return the arms' means of a chart at a few of its columns, for who can't see the lines."""
    steps = expand(panel["columns"]["first"])
    last = _NUM_STEPS_IN_TABLE - 1
    places = sorted({round(i * (len(steps) - 1) / last) for i in range(_NUM_STEPS_IN_TABLE)})
    rows = []
    for arm, means in zip(charts["arms"], panel["means"], strict=True):
        if means is not None:
            cells = [make_cell(_mean_text(panel, means, place)) for place in places]
            rows.append((make_arm_cell(arm["name"]), *cells))
    width = panel["columns"]["width"]
    note = f"Each column is a mean over up to {width} steps from that one on." if width > 1 else ""
    columns = (Column("arm"), *(Column(f"step {steps[place]}", True) for place in places))
    return Table("means", f"Means of {panel['label']}", columns, tuple(rows), note)


def _mean_text(panel: Mapping[str, Any], means: Mapping[str, Any], place: int) -> str:
    mean = means["mean"][place]
    if mean is None:
        return NONE
    low, high = (means[end][place] if end in means else None for end in ("low", "high"))
    name = "solve_rate" if panel["name"] == "survival" else panel["name"]
    return format_mean(name, mean, low, high)


def _with_survival(page_data: Mapping[str, Any] | None, report: Report) -> Mapping[str, Any] | None:
    if page_data is None or not page_data["panels"]:
        return None
    survival = survival_panel(report)
    if survival is None:
        return page_data
    panels = page_data["panels"]
    place = sum(panel["name"] in ("solve_rate", "mismatch_kl") for panel in panels)
    return {**page_data, "panels": [*panels[:place], survival, *panels[place:]]}


def _is_covered(figure: Figure, covered: set[str]) -> bool:
    # The figures of a replay show no metric: no chart stands for them.
    return figure.name != "by_arm" and bool(figure.metrics) and set(figure.metrics) <= covered


def _picture(figure: Figure) -> dict[str, str]:
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "data": base64.b64encode(figure.png).decode(),
    }


def _arm_css(styles: Sequence[ArmStyle]) -> str:
    """Return the colours of arms as variables; names of arms have no part in it."""
    light = " ".join(f"--arm-{i}: {style.color};" for i, style in enumerate(styles))
    dark = " ".join(f"--arm-{i}: {style.dark_color};" for i, style in enumerate(styles))
    strokes = "\n".join(
        f".arm-{i} {{ stroke: var(--arm-{i}); fill: var(--arm-{i}); }}" for i in range(len(styles))
    )
    return (
        f":root {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root:not(.printing) {{ {dark} }} }}\n"
        f"{strokes}\n"
    )


def _policy(style: str, script: str | None) -> str:
    parts = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script is not None:
        parts.append(f"script-src {_hash(script)}")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _to_script(data: Mapping[str, Any]) -> Markup:
    """Return `data` as JSON that no parser of HTML takes for the end of its element."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return show_controls(value)
    # Only names are strings: long lists of numbers are left as they are.
    if isinstance(value, list) and any(isinstance(item, (str, Mapping)) for item in value):
        return [_plain(item) for item in value]
    return value


def _script() -> str:
    """Return the parts of the script as one, with names that nothing else on the page can see."""
    parts = "\n".join(_read(f"charts/{name}.js") for name in _SCRIPT_PARTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _show_controls_in(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return show_controls(value) if is_text else value


def _read(name: str) -> str:
    return (_TEMPLATES_DIR / name).read_text(encoding="utf-8")
