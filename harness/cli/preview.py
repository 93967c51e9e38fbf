"""What `run`, `retry` and `plan` would hand to a cluster, shown before anything happens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.display import open_console
from harness.cli.select import count_states, show_counts
from harness.cli.start import expected_gpu_hours
from harness.cli.table import format_gpu_hours
from harness.dispatch.interface import Order, Preview, load_dispatcher
from harness.dispatch.local import count_slots
from harness.printable import printable
from harness.profile import Profile
from harness.records.layout import FINISH_JOB, SweepPaths
from harness.records.model import ArrayPlan, PlannedRun, PlanRecord
from harness.slurm_profile import SlurmProfile, count_gpus
from harness.slurm_time import show_minutes
from harness.state.model import FINISHED_STATES, SLURM
from harness.state.status import may_resubmit, read_states
from harness.sweep.finished import find_earlier
from harness.sweep.gpu_hours import planned_gpu_hours
from harness.sweep.prepare import Prepared

if TYPE_CHECKING:
    from rich.console import Console

ALLOCATION_ENV = "SLURM_JOB_ID"
_MAX_ARMS = 6


def refuse_beyond(prepared: Prepared, profile: Profile, max_gpu_hours: float | None) -> None:
    """Refuse runs that could take more GPU-hours than they may. Done ones take none.

    Raises:
        UsageError: they could, or what they could take can't be told.
    """
    if max_gpu_hours is None:
        return
    plan = prepared.plan.record
    planned = planned_gpu_hours(plan, profile, unfinished(prepared.paths, plan))
    if planned is not None:
        planned.refuse_beyond(max_gpu_hours)


def unfinished(paths: SweepPaths, plan: PlanRecord) -> list[PlannedRun]:
    """Return the runs that haven't reached what `plan` asks for; it may not be on disk yet."""
    done = {run.run_id for run in find_earlier(paths, plan.runs, plan.stop_when) if run.is_done}
    return [run for run in plan.runs if run.run_id not in done]


def print_dry_run(prepared: Prepared, profile: Profile, *, live_code: bool) -> int:
    """Print what `harness run` would start, with the batch scripts; write nothing."""
    paths, plan = prepared.paths, prepared.plan.record
    missing = _foresee(paths, plan)
    code_dir = None if live_code else paths.code_dir(plan.code.hash)
    print_runs_to_start(paths, plan, missing, profile, code_dir)
    return 0


def print_runs_to_start(
    paths: SweepPaths,
    plan: PlanRecord,
    runs: Sequence[PlannedRun],
    profile: Profile,
    code_dir: Path | None,
) -> None:
    """Print which runs would be started, and on a cluster by which arrays and scripts.

    Raises:
        UsageError: the dispatcher would refuse them.
    """
    console = open_console()
    say = f"{plan.sweep}: would start {len(runs)} of {len(plan.runs)} runs on {profile.name}"
    if not runs:
        console.print(f"{say}: nothing is missing", markup=False)
        return
    if profile.type != SLURM:
        console.print(f"{say}, {count_slots(profile)} at a time", markup=False)
        for run in runs:
            console.print(f"  {run.run_id}", markup=False)
        return
    order = Order(paths, tuple(runs), profile, plan.code.hash, code_dir, plan.resources)
    preview = load_dispatcher(profile.type).preview(order)
    arrays = len(preview.arrays)
    jobs = f"{arrays} {'array' if arrays == 1 else 'arrays'} and a finishing job"
    console.print(f"{say} in {jobs}", markup=False)
    print_preview(preview, plan, runs, profile, console)
    for script in preview.scripts:
        what = "the finishing job" if script.name == FINISH_JOB else f"array {script.name}"
        console.print(f"\n[bold]script of {what}[/bold]")
        console.file.write(printable(script.text, keep="\n\t").rstrip() + "\n")


def print_preview(
    preview: Preview,
    plan: PlanRecord,
    runs: Sequence[PlannedRun],
    profile: Profile,
    console: Console,
) -> None:
    """Print arrays with their resources, GPU-hours, and what of the shell is ignored."""
    from rich.table import Table  # noqa: PLC0415 (only where a table is shown)

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("array", "runs", "at once", "nodes", "GPUs", "CPUs", "memory", "time", "GPU-h")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("arms")
    for array in preview.arrays:
        table.add_row(*_array_cells(array))
    console.print(table)
    console.print(_sentence(expected_gpu_hours(plan, runs, profile)), markup=False)
    for line in _notes(preview):
        console.print(printable(line), markup=False, style="yellow")


def _array_cells(array: ArrayPlan) -> list[str]:
    settings = SlurmProfile(**array.settings)
    gpus = count_gpus(settings)
    hours = None if gpus is None or settings.time is None else gpus * settings.time / 60
    at_once = str(array.parallelism or "all")
    if array.after is not None:
        at_once += f", after {array.after}"
    memory = settings.mem
    if settings.mem_per_cpu is not None:
        memory = f"{settings.mem_per_cpu}/CPU"
    if settings.mem_per_gpu is not None:
        memory = f"{settings.mem_per_gpu}/GPU"
    arms = list(dict.fromkeys(run_id.rpartition("/")[0] for run_id in array.run_ids))
    shown = ", ".join(arms[:_MAX_ARMS])
    return [
        str(array.number),
        str(len(array.run_ids)),
        at_once,
        str(settings.nodes),
        _or_dash(settings.gpus_per_node if gpus is None else gpus),
        _or_dash(settings.cpus_per_task),
        _or_dash(memory),
        _or_dash(None if settings.time is None else show_minutes(settings.time)),
        "-" if hours is None else format_gpu_hours(hours * len(array.run_ids)) or "0",
        shown + (f" and {len(arms) - _MAX_ARMS} more" if len(arms) > _MAX_ARMS else ""),
    ]


def _notes(preview: Preview) -> list[str]:
    notes = []
    for variable in preview.ignored_variables:
        instead = f"; set {variable.key} in the profile" if variable.key else ""
        notes.append(f"{variable.name} of this shell is ignored{instead}")
    job_id = os.environ.get(ALLOCATION_ENV)
    if job_id:
        notes.append(
            f"submitting from inside allocation {job_id}; its SLURM_* variables don't reach runs"
        )
    if preview.max_array_size is None:
        notes.append("SLURM can't be asked here: its limit on arrays (MaxArraySize) is a guess")
    return notes


def _foresee(paths: SweepPaths, plan: PlanRecord) -> list[PlannedRun]:
    """Return the runs of a plan that may not be on disk yet which `harness run` would start."""
    wanted = unfinished(paths, plan)
    if not paths.plan.is_file():
        return wanted
    states = {status.run_id: status for status in read_states(paths)}
    found = [states[run.run_id] for run in wanted if run.run_id in states]
    # A run that did fewer steps than the new plan asks for is done by the old one, and one whose
    # rule the new plan lacks is stopped.
    kept = [s for s in found if not may_resubmit(s) and s.state not in FINISHED_STATES]
    if kept:
        console = open_console()
        counts = show_counts(count_states(kept))
        console.print(f"{plan.sweep}: {len(kept)} runs stay as they are ({counts})", markup=False)
    left = {status.run_id for status in kept}
    return [run for run in wanted if run.run_id not in left]


def _or_dash(value: object) -> str:
    return "-" if value is None else printable(str(value))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
