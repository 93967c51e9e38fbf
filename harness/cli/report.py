"""harness report: compare the arms, write every form of the report, show the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import tell
from harness.cli.display import open_console
from harness.cli.gates import check_gates, judge
from harness.printable import printable
from harness.records.files import read_json
from harness.records.layout import SweepPaths
from harness.records.model import PlanRecord, read_record
from harness.sweep.locate import find_planned

if TYPE_CHECKING:
    from analysis.report import WrittenReport

_OPEN_STATES = ("planned", "unfinished", "preempted")


def report_command(
    *,
    sweep: str,
    watch: bool,
    every: float,
    gates: Sequence[str],
    noise_from: Sequence[str],
    wandb_project: str | None,
    as_json: bool,
) -> int:
    """Write the report of a sweep; print its summary, or report.json with --json.

    Returns 3 where a predicate of `gates` holds, 4 where one can't be decided, else 0.
    """
    paths = find_planned(sweep)
    plan = read_record(PlanRecord, paths.plan)
    replicates = {arm.name: arm.replicate_of for arm in plan.arms if arm.replicate_of is not None}
    check_gates(gates, tuple(arm.name for arm in plan.arms), plan.baseline, replicates)
    noise_dirs = find_noise(noise_from)
    while watch:
        written = _write(paths, noise_dirs)
        states = [run["state"] for run in written.report["runs"]]
        num_open = sum(state in _OPEN_STATES for state in states)
        if not num_open:
            break
        now = time.strftime("%H:%M:%S")
        tell(f"{now} {num_open} of {len(states)} runs are still to finish: {shown(written.html)}")
        time.sleep(every)
    written = write_and_show_report(paths, as_json=as_json, noise_dirs=noise_dirs)
    if wandb_project is not None:
        log_to_wandb(written, wandb_project, paths.name)
    return judge(gates, written.report)


def write_and_show_report(
    paths: SweepPaths, *, as_json: bool = False, noise_dirs: Sequence[Path] = ()
) -> WrittenReport:
    """Write the report of the sweep in `paths`, print the summary to stdout and name the files.

    Raises:
        HarnessError: the records can't be read.
    """
    written = _write(paths, noise_dirs)
    show_report(written, as_json=as_json)
    return written


def find_noise(names: Sequence[str]) -> list[Path]:
    """Return the folders of the sweeps that `--noise-from` names.

    Raises:
        UsageError: one of them hasn't been run.
    """
    return [find_planned(name).root for name in names]


def with_status(work: Callable[[Callable[[str], None]], WrittenReport]) -> WrittenReport:
    """Call `work` with a callback that shows what it does, on a terminal."""
    console = open_console(stderr=True)
    if not console.is_terminal:
        return work(lambda message: None)
    with console.status("report") as status:
        return work(status.update)


def show_report(written: WrittenReport, *, as_json: bool) -> None:
    """Print the summary of a report, or report.json, to stdout; name the page on stderr."""
    import analysis  # noqa: PLC0415 (pandas and matplotlib load only for a report)

    if as_json:
        sys.stdout.write(written.json.read_text(encoding="utf-8"))
        return
    text = analysis.render_terminal(read_json(written.json), width=open_console().width)
    print(printable(text, keep="\n"), flush=True)
    tell(f"report: {shown(written.html)}")


def log_to_wandb(written: WrittenReport, project: str, name: str) -> None:
    """Log a report and its tables to W&B, and say where.

    Raises:
        HarnessError: W&B doesn't take it.
    """
    from harness.trackers.wandb import log_report  # noqa: PLC0415 (wandb)

    tell(f"W&B: {log_report(written.paths, project, name)}")


def shown(path: Path) -> str:
    """Return `path` from the working folder, where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _write(paths: SweepPaths, noise_dirs: Sequence[Path]) -> WrittenReport:
    import analysis  # noqa: PLC0415 (pandas and matplotlib load only for a report)

    return with_status(
        lambda say: analysis.write_report(paths.root, progress=say, noise_from=noise_dirs)
    )
