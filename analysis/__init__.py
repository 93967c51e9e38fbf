"""From records, or foreign runs, to tables, comparisons and a report.

A library: it imports neither Hydra, OmegaConf nor submitit, and of `harness` only the contract on
disk. `import analysis` itself loads no third-party package; its functions load what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.foreign import ArmSource, ComparisonSpec
    from analysis.report import WrittenReport
    from analysis.runs import Sweep

__all__ = ["compare_runs", "load_runs", "load_sweep", "render_terminal", "write_report"]


def load_sweep(sweep_dir: Path) -> Sweep:
    """Return the plan, the runs and the long table of the sweep in `sweep_dir`.

    Raises:
        UsageError: the folder holds no sweep.
    """
    from analysis.load import load_sweep as load  # noqa: PLC0415  (pandas stays unloaded)

    return load(sweep_dir)


def load_runs(sources: Sequence[ArmSource], spec: ComparisonSpec) -> Sweep:
    """Return runs that something else launched as the arms of one sweep.

    See `analysis.foreign.load_runs`, whose errors it raises.
    """
    from analysis.foreign import load_runs as load  # noqa: PLC0415  (pandas stays unloaded)

    return load(sources, spec)


def write_report(
    sweep_dir: Path,
    *,
    noise_from: Sequence[Path] = (),
    progress: Callable[[str], None] | None = None,
) -> WrittenReport:
    """Write `report/` of the sweep in `sweep_dir`; see `analysis.report.write_report`."""
    from analysis.report import write_report as write  # noqa: PLC0415  (matplotlib stays unloaded)

    return write(sweep_dir, noise_from=noise_from, progress=progress)


def compare_runs(
    sources: Sequence[ArmSource],
    spec: ComparisonSpec,
    folder: Path,
    *,
    into_run_folders: bool = False,
    noise_from: Sequence[Path] = (),
    progress: Callable[[str], None] | None = None,
) -> WrittenReport:
    """Compare foreign runs and write the report; see `analysis.report.compare_runs`."""
    from analysis.report import compare_runs as compare  # noqa: PLC0415

    return compare(
        sources,
        spec,
        folder,
        into_run_folders=into_run_folders,
        noise_from=noise_from,
        progress=progress,
    )


def render_terminal(report: Mapping[str, Any], *, width: int = 100) -> str:
    """Return the summary of a report.json as plain text of at most `width` columns."""
    from analysis.report.terminal import render_terminal as render  # noqa: PLC0415

    return render(report, width=width)
