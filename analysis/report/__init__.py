"""Writes `report/` of a sweep: report.json and its renderings, all from the same records."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.files import to_json, write_atomic
from harness.records.layout import SweepPaths


@dataclass(frozen=True)
class ReportPaths:
    """What was written; `report` is the content of report.json."""

    json: Path
    markdown: Path
    html: Path
    runs_csv: Path
    figures: tuple[Path, ...]
    report: Mapping[str, Any]


def write_report(sweep_dir: Path, *, progress: Callable[[str], None] | None = None) -> ReportPaths:
    """Write report.json, report.md, report.html, runs.csv and figures/ of the sweep.

    Records are only read. The same records give the same bytes; each file is replaced whole.
    Whatever the runs left behind gives a report that says so; libraries' warnings are kept back.

    Args:
        progress: called with a few words before each stage.

    Raises:
        UsageError: the folder holds no sweep.
        HarnessError: plan.json can't be read, or the report can't be written.
    """
    with _quiet_libraries():
        return _write_report(sweep_dir, progress or (lambda message: None))


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep back what libraries warn of: a reader can do nothing about it, and whatever is odd about
    a sweep is in the report's own warnings."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _write_report(sweep_dir: Path, say: Callable[[str], None]) -> ReportPaths:
    from analysis.load import load_sweep  # noqa: PLC0415  (pandas stays unloaded)
    from analysis.report.figures import plot_figures  # noqa: PLC0415  (matplotlib)
    from analysis.report.html import render_html  # noqa: PLC0415
    from analysis.report.markdown import render_markdown  # noqa: PLC0415
    from analysis.report.model import build_report  # noqa: PLC0415
    from analysis.report.runs_csv import render_runs_csv  # noqa: PLC0415
    from analysis.results import analyze  # noqa: PLC0415

    paths = SweepPaths(sweep_dir)
    say("reading runs")
    sweep = load_sweep(sweep_dir)
    say("comparing arms")
    results = analyze(sweep)
    report = build_report(results)
    figures = plot_figures(results, say)
    report["figures"] = [
        {
            "file": f"{paths.figures_dir.name}/{figure.name}.png",
            "title": figure.title,
            "caption": figure.caption,
            "alt": figure.alt,
        }
        for figure in figures
    ]
    say("writing")
    pictures = {paths.figures_dir / f"{figure.name}.png": figure.png for figure in figures}
    written: dict[Path, str | bytes] = {
        **pictures,
        paths.runs_csv: render_runs_csv(report),
        paths.report_md: render_markdown(report, figures, paths.figures_dir.name),
        paths.report_html: render_html(report, figures),
        paths.report_json: to_json(report),
    }
    try:
        for path, content in written.items():
            write_atomic(path, content)
        for path in paths.figures_dir.glob("*.png"):
            if path not in pictures:
                path.unlink()
    except OSError as error:
        raise HarnessError(
            f"`{paths.report_dir}` can't be written: {error.strerror or error}"
        ) from error
    return ReportPaths(
        json=paths.report_json,
        markdown=paths.report_md,
        html=paths.report_html,
        runs_csv=paths.runs_csv,
        figures=tuple(pictures),
        report=report,
    )
