"""replay.html: one file that needs nothing else, not even a network or a script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from analysis import report
from analysis.replay.method import describe_method
from analysis.replay.result import ReplayResult
from analysis.replay.tables import detail_tables, loss_text, main_tables, source_tables
from analysis.replay.wording import describe_findings, has_alarm
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure

_TEMPLATES_DIR = Path(__file__).parent / "templates"
_STYLE = Path(report.__file__).parent / "templates" / "report.css"


def render_page(result: ReplayResult, figures: Sequence[Figure]) -> str:
    """Return the replay as one page in the look of a sweep's report.

    Every string from a file or a user is escaped. Nothing is loaded and no script runs: the page's
    own policy names the hash of its one style.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES_DIR),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_controls_in,
    )
    style = _STYLE.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("replay.html.j2").render(
        label=result.label,
        loss=loss_text(result),
        num_tokens=f"{result.num_tokens:,}",
        num_files=f"{len(result.files):,}",
        policy=(
            f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        style=Markup(style),
        findings=describe_findings(result),
        has_alarm=has_alarm(result),
        warnings=result.warnings,
        main=main_tables(result),
        figures=[_picture(figure) for figure in figures],
        detail=detail_tables(result),
        method=describe_method(result),
        sources=source_tables(result),
    )


def _picture(figure: Figure) -> dict[str, str]:
    return {
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "data": base64.b64encode(figure.png).decode(),
    }


def _show_controls_in(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return show_controls(value) if is_text else value
