"""harness report: compare the arms, write every form of the report, show the summary."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.cli import tell
from harness.cli.display import open_console
from harness.printable import printable
from harness.records.files import read_json
from harness.records.layout import SweepPaths
from harness.sweep.locate import find_planned


def report_command(*, sweep: str, as_json: bool) -> int:
    """Write the report of a sweep; print its summary, or report.json with --json."""
    paths = find_planned(sweep)
    write_and_show_report(paths, as_json=as_json)
    return 0


def write_and_show_report(paths: SweepPaths, *, as_json: bool = False) -> None:
    """Write the report of the sweep in `paths`, print the summary to stdout and name the files.

    Raises:
        HarnessError: the records can't be read.
    """
    import analysis  # noqa: PLC0415 (pandas and matplotlib load only for a report)

    console = open_console(stderr=True)
    if console.is_terminal:
        with console.status("report") as status:
            written = analysis.write_report(paths.root, progress=status.update)
    else:
        written = analysis.write_report(paths.root)
    if as_json:
        sys.stdout.write(written.json.read_text(encoding="utf-8"))
        return
    text = analysis.render_terminal(read_json(written.json), width=open_console().width)
    print(printable(text, keep="\n"), flush=True)
    tell(f"report: {_shown(written.html)}")


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
