"""report.html: one file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.report import background, tables
from analysis.report.cells import Report
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure
from analysis.report.method import describe_command, describe_method
from analysis.report.numbers import format_time
from analysis.report.style import arm_styles

_TEMPLATES_DIR = Path(__file__).parent / "templates"


def _show_controls_in(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return show_controls(value) if is_text else value


def render_html(report: Report, figures: Sequence[Figure]) -> str:
    """Return the report as one page. Every string from a run or a user is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES_DIR),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_controls_in,
    )
    template = environment.get_template("report.html.j2")
    return template.render(
        report=report,
        styles=arm_styles([arm["name"] for arm in report["arms"]], report["baseline"]),
        verdicts=tables.verdict_table(report),
        changes=tables.change_table(report),
        comparisons=tables.comparison_table(report),
        events=tables.event_table(report),
        seeds=tables.seed_table(report),
        time=background.time_table(report),
        differences=background.difference_table(report),
        metrics=background.metric_table(report),
        files=background.file_table(report),
        method=describe_method(report),
        command=describe_command(report),
        newest_record=format_time(report["newest_record"]),
        figures=[
            {
                "title": figure.title,
                "caption": figure.caption,
                "alt": figure.alt,
                "data": base64.b64encode(figure.png).decode(),
            }
            for figure in figures
        ],
    )
