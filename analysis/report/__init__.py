"""Writes a report: report.json and its renderings, all from the same results."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.records.files import to_json, write_atomic
from harness.records.layout import ReportPaths, SweepPaths

if TYPE_CHECKING:
    from analysis.foreign import ArmSource, ComparisonSpec
    from analysis.report.cells import Table
    from analysis.results import Results
    from analysis.runs import Sweep

Say = Callable[[str], None]


@dataclass(frozen=True)
class WrittenReport:
    """What was written; `report` is the content of report.json.

    Attributes:
        copies: Markdown files in folders of runs, where they were asked for.
    """

    paths: ReportPaths
    figures: tuple[Path, ...]
    report: Mapping[str, Any]
    copies: tuple[Path, ...] = ()

    @property
    def json(self) -> Path:
        return self.paths.json

    @property
    def html(self) -> Path:
        return self.paths.html


def write_report(
    sweep_dir: Path, *, noise_from: Sequence[Path] = (), progress: Say | None = None
) -> WrittenReport:
    """Write `report/` of the sweep in `sweep_dir`.

    Records are only read. The same records give the same bytes; each file is replaced whole.
    Whatever the runs left behind gives a report that says so; libraries' warnings are kept back.

    Args:
        noise_from: folders of sweeps whose seeds tell how far single runs lie apart.
        progress: called with a few words before each stage.

    Raises:
        UsageError: a folder holds no sweep.
        HarnessError: a plan.json can't be read, or the report can't be written.
    """
    from analysis.load import load_sweep  # noqa: PLC0415  (pandas stays unloaded)

    say = progress or _say_nothing
    with quiet_libraries():
        say("reading runs")
        sweep = load_sweep(sweep_dir)
    return _analyze_and_write(sweep, SweepPaths(sweep_dir).report, noise_from, say)


def compare_runs(
    sources: Sequence[ArmSource],
    spec: ComparisonSpec,
    folder: Path,
    *,
    into_run_folders: bool = False,
    noise_from: Sequence[Path] = (),
    progress: Say | None = None,
) -> WrittenReport:
    """Write the report of foreign runs into `folder`.

    Args:
        into_run_folders: also put report.md into `reports/` of every run's own folder.

    Raises:
        UsageError: a source is no run; or `into_run_folders`, and one of them has not finished or
            has no folder. Nothing is written then.
        HarnessError: the report can't be written.
    """
    from analysis.foreign import load_runs  # noqa: PLC0415  (pandas stays unloaded)
    from analysis.report.into_run_folders import check_run_folders, copy_report  # noqa: PLC0415

    say = progress or _say_nothing
    with quiet_libraries():
        sweep = load_runs(sources, spec, root=folder, progress=say)
    folders = check_run_folders(sweep.runs, folder, are_wanted=into_run_folders)
    written = _analyze_and_write(sweep, ReportPaths(folder), noise_from, say)
    copies = tuple(copy_report(written.paths, place, spec.name) for place in folders)
    return replace(written, copies=copies)


def _analyze_and_write(
    sweep: Sweep, paths: ReportPaths, noise_from: Sequence[Path], say: Say
) -> WrittenReport:
    from analysis.results import analyze, noise_of  # noqa: PLC0415

    with quiet_libraries():
        say("comparing arms")
        results = analyze(sweep, noise=noise_of(noise_from, sweep.plan.analysis))
    return write_results(results, paths, progress=say)


def write_results(
    results: Results, paths: ReportPaths, *, progress: Say | None = None
) -> WrittenReport:
    """Write every form of the report of `results` into the folder of `paths`.

    Raises:
        HarnessError: it can't be written.
    """
    from analysis.replay.report import replay_section  # noqa: PLC0415
    from analysis.report.comparisons_csv import render_comparisons_csv  # noqa: PLC0415
    from analysis.report.curves_parquet import render_curves  # noqa: PLC0415  (pyarrow)
    from analysis.report.figures import plot_figures  # noqa: PLC0415  (matplotlib)
    from analysis.report.html import render_html  # noqa: PLC0415
    from analysis.report.markdown import render_markdown  # noqa: PLC0415
    from analysis.report.model import build_report  # noqa: PLC0415
    from analysis.report.page_data import build_page_data  # noqa: PLC0415
    from analysis.report.replayed import replay_of  # noqa: PLC0415
    from analysis.report.runs_csv import render_runs_csv  # noqa: PLC0415

    say = progress or _say_nothing
    with quiet_libraries():
        say("replaying tokens")
        replayed, notices = replay_of(results.sweep)
        report = build_report(results, notices)
        figures = plot_figures(results, say)
        replay_tables: Sequence[Table] = ()
        if replayed is not None:
            replay_tables, pictures_of_it = replay_section(replayed)
            figures = [*figures, *pictures_of_it]
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
        pictures: dict[Path, str | bytes] = {}
        for figure in figures:
            pictures[paths.figures_dir / f"{figure.name}.png"] = figure.png
            pictures[paths.figures_dir / f"{figure.name}.svg"] = figure.svg
        written: dict[Path, str | bytes] = {
            **pictures,
            paths.curves: render_curves(results),
            paths.runs_csv: render_runs_csv(report),
            paths.comparisons_csv: render_comparisons_csv(report),
            paths.markdown: render_markdown(report, figures, paths.figures_dir.name),
            paths.html: render_html(report, figures, build_page_data(results), replay_tables),
            paths.json: to_json(report),
        }
    try:
        for path, content in written.items():
            write_atomic(path, content)
        for path in paths.figures_dir.glob("*.*"):
            if path.suffix in (".png", ".svg") and path not in pictures:
                path.unlink()
    except OSError as error:
        raise HarnessError(
            f"`{paths.root}` can't be written: {error.strerror or error}",
            "make room or see to that folder, and try again",
        ) from error
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
