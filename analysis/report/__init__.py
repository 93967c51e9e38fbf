"""Writes a report: report.json and its renderings, all from the same results."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.records.files import to_json, write_atomic
from harness.records.layout import ReportPaths, SweepPaths

if TYPE_CHECKING:
    from analysis.results import Results

Say = Callable[[str], None]


@dataclass(frozen=True)
class WrittenReport:
    """What was written; `report` is the content of report.json."""

    paths: ReportPaths
    figures: tuple[Path, ...]
    report: Mapping[str, Any]

    @property
    def json(self) -> Path:
        return self.paths.json

    @property
    def html(self) -> Path:
        return self.paths.html


def write_report(sweep_dir: Path, *, progress: Say | None = None) -> WrittenReport:
    """Write `report/` of the sweep in `sweep_dir`.

    Records are only read. The same records give the same bytes; each file is replaced whole.
    Whatever the runs left behind gives a report that says so; libraries' warnings are kept back.

    Args:
        progress: called with a few words before each stage.

    Raises:
        UsageError: the folder holds no sweep.
        HarnessError: plan.json can't be read, or the report can't be written.
    """
    from analysis.load import load_sweep  # noqa: PLC0415  (pandas stays unloaded)
    from analysis.results import analyze  # noqa: PLC0415

    say = progress or _say_nothing
    with quiet_libraries():
        say("reading runs")
        sweep = load_sweep(sweep_dir)
        say("comparing arms")
        return write_results(analyze(sweep), SweepPaths(sweep_dir).report, progress=say)


def write_results(
    results: Results, paths: ReportPaths, *, progress: Say | None = None
) -> WrittenReport:
    """Write every form of the report of `results` into the folder of `paths`.

    Raises:
        HarnessError: it can't be written.
    """
    from analysis.report.figures import plot_figures  # noqa: PLC0415  (matplotlib)
    from analysis.report.html import render_html  # noqa: PLC0415
    from analysis.report.markdown import render_markdown  # noqa: PLC0415
    from analysis.report.model import build_report  # noqa: PLC0415
    from analysis.report.runs_csv import render_runs_csv  # noqa: PLC0415

    say = progress or _say_nothing
    with quiet_libraries():
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
            paths.markdown: render_markdown(report, figures, paths.figures_dir.name),
            paths.html: render_html(report, figures),
            paths.json: to_json(report),
        }
    try:
        for path, content in written.items():
            write_atomic(path, content)
        for path in paths.figures_dir.glob("*.png"):
            if path not in pictures:
                path.unlink()
    except OSError as error:
        raise HarnessError(f"`{paths.root}` can't be written: {error.strerror or error}") from error
    return WrittenReport(paths, tuple(pictures), report)


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
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


def _say_nothing(message: str) -> None:
    pass
