"""A report's Markdown in a trainer's own folders, where its dashboard shows it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from analysis.runs import Run, RunState
from harness.errors import HarnessError, UsageError
from harness.records.files import write_atomic
from harness.records.layout import ReportPaths

REPORTS_DIR = "reports"
"""Folder of a run whose Markdown prime-rl's dashboard shows."""


def check_run_folders(
    runs: Sequence[Run], report_dir: Path, *, are_wanted: bool
) -> tuple[Path, ...]:
    """Return the folders of `runs` that get a copy of the report; none unless `are_wanted`.

    Raises:
        UsageError: the report itself would lie in one of them; or copies are wanted, and a run has
            not finished (a trainer may refuse a folder with a file that it doesn't know) or has no
            folder of its own.
    """
    folders = []
    for run in runs:
        folder = Path(run.source.partition(":")[2] if ":" in run.source else run.source)
        is_folder = bool(run.source) and folder.is_dir()
        if is_folder and report_dir.resolve().is_relative_to(folder.resolve()):
            raise UsageError(
                f"`{report_dir}` lies in the folder of the run {run.run_id}",
                "name another folder with --out; --into-run-folder puts a copy there",
            )
        if not are_wanted:
            continue
        if not is_folder:
            raise UsageError(
                f"{run.run_id}: `{run.source}` is no folder to put a report into",
                "leave --into-run-folder out, or give folders of runs",
            )
        if run.state is not RunState.DONE:
            raise UsageError(
                f"{run.run_id} has not finished ({run.state}), so nothing is put into its folder",
                "leave --into-run-folder out, or say with --max-steps how long runs were to be",
            )
        folders.append(folder)
    return tuple(folders)


def copy_report(paths: ReportPaths, run_dir: Path, name: str) -> Path:
    """Put report.md and its figures into `reports/` of `run_dir`; return the Markdown file.

    Raises:
        HarnessError: it can't be written.
    """
    target = run_dir / REPORTS_DIR / f"{name}.md"
    pictures = target.with_name(f"{name}_figures")
    try:
        text = paths.markdown.read_text(encoding="utf-8")
        pictures.mkdir(parents=True, exist_ok=True)
        for picture in sorted(paths.figures_dir.glob("*.png")):
            shutil.copyfile(picture, pictures / picture.name)
        write_atomic(target, text.replace(f"]({paths.figures_dir.name}/", f"]({pictures.name}/"))
    except OSError as error:
        raise HarnessError(f"`{target}` can't be written: {error.strerror or error}") from error
    return target
