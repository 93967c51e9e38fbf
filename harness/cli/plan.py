"""harness plan: what would run, and what each arm really changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.display import open_console, planning_progress
from harness.cli.preview import print_preview, refuse_beyond, unfinished
from harness.cli.start import Manner
from harness.dispatch.interface import Order, load_dispatcher
from harness.dispatch.local import count_slots
from harness.dispatch.progress import format_duration
from harness.printable import one_line
from harness.profile import DEFAULT_PROFILE, Profile, load_profile
from harness.records.files import to_json
from harness.records.model import PlanRecord, to_record
from harness.state.model import SLURM
from harness.sweep.estimate import estimate_duration
from harness.sweep.finished import count_done, find_earlier, find_other_code
from harness.sweep.needs import check_needs, needs_of
from harness.sweep.prepare import Prepared, prepare
from harness.sweep.replicates import describe_replicates
from harness.sweep.start_from import describe_starts
from harness.sweep.stop_rules import earliest_step
from harness.sweep.validate import validate


def plan_command(
    *,
    sweep: str,
    overrides: Sequence[str],
    conf_dirs: Sequence[Path],
    as_name: str | None,
    profile_name: str | None,
    max_gpu_hours: float | None,
    as_json: bool,
) -> int:
    """Print the plan to stdout; nothing is written."""
    profile = load_profile(profile_name or DEFAULT_PROFILE)
    Manner(max_gpu_hours=max_gpu_hours).check(profile, f"harness plan {sweep}")
    with planning_progress() as progress:
        prepared = prepare(
            sweep,
            overrides=overrides,
            conf_dirs=conf_dirs,
            as_name=as_name,
            progress=progress,
        )
    refuse_beyond(prepared, profile, max_gpu_hours)
    runs = unfinished(prepared.paths, prepared.plan.record)
    warnings = prepared.warnings
    if profile_name is not None:
        plan = prepared.plan
        warnings += check_needs(
            plan.record,
            needs_of(plan.configs, runs),
            profile,
            prepared.paths,
            num_runs=len(runs),
        )
    with planning_progress("validating") as progress:
        prepared, said = validate(prepared, progress)
    if as_json:
        sys.stdout.write(to_json(to_record(prepared.plan.record)))
        return 0
    print_plan(prepared, profile, (*warnings, *said))
    return 0


def print_plan(prepared: Prepared, profile: Profile, warnings: Sequence[str] = ()) -> None:
    """Print a plan for people to stdout, with what `profile` makes of it.

    Args:
        warnings: what runs would lack on it, and what of the plan's remarks is a warning.

    Raises:
        UsageError: the plan doesn't fit the profile.
    """
    from rich.table import Table  # noqa: PLC0415 (only where a table is shown)

    plan = prepared.plan.record
    console = open_console()
    steps = sorted({run.max_steps for run in plan.runs})
    console.print(f"[bold]{plan.sweep}[/bold]  {_escape(plan.question)}".rstrip())
    console.print(
        f"{len(plan.runs)} runs = {len(plan.arms)} arms x {len(plan.seeds)} seeds, "
        f"{'-'.join(str(s) for s in (steps if len(steps) < 3 else [steps[0], steps[-1]]))} steps,"
        f" trainer {plan.trainer}, {'paired by seed' if plan.pairing == 'seed' else 'not paired'}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", no_wrap=True)
    table.add_column(f"differs from {plan.baseline} in")
    table.add_column("notes")
    for arm in plan.arms:
        is_baseline = arm.name == plan.baseline
        shown = [d for d in arm.differs if d.baseline is not None or d.arm is not None]
        differs = ", ".join(f"{d.key}: {_show(d.baseline)} -> {_show(d.arm)}" for d in shown)
        notes = f"restates {', '.join(arm.restated)}" if arm.restated else ""
        if arm.replicate_of is not None:
            notes = f"replicate of {arm.replicate_of} (A/A)"
        table.add_row(arm.name, "(baseline)" if is_baseline else _escape(differs), _escape(notes))
    console.print(table)
    for remark in plan.remarks:
        if remark not in warnings:
            console.print(_escape(f"note: {remark}"))
    starts = describe_starts(plan.start_from)
    if starts:
        console.print(_escape(starts))
    for line in (*_notes(plan), *(f"warning: {text}" for text in warnings)):
        console.print(_escape(line), style="yellow")
    console.print(_escape(_analysis_line(plan)))
    if plan.stop_when:
        console.print(_escape(f"stopped early by {' or '.join(r.text for r in plan.stop_when)}"))
    console.print(_escape(_code(plan)))
    console.print(_escape(_progress_line(prepared, profile)))
    runs = unfinished(prepared.paths, plan)
    if profile.type == SLURM and runs:
        order = Order(prepared.paths, tuple(runs), profile, plan.code.hash, None, plan.resources)
        preview = load_dispatcher(profile.type).preview(order)
        console.print(f"\non [bold]{profile.name}[/bold]:")
        print_preview(preview, plan, runs, profile, console)


def _progress_line(prepared: Prepared, profile: Profile) -> str:
    plan = prepared.plan.record
    earlier = find_earlier(prepared.paths, plan.runs, plan.stop_when)
    done = count_done(earlier)
    missing = len(plan.runs) - done
    where = f"{prepared.paths.root}: {done} of {len(plan.runs)} runs done"
    other = find_other_code(earlier, plan.code.hash)
    if other:
        where += f", {len(other)} made or begun by other code (run wants --reuse-across-code)"
    if missing == 0 or profile.type == SLURM:
        return where
    slots = count_slots(profile)
    estimate = estimate_duration(plan, prepared.paths, missing, slots)
    if estimate is None:
        return f"{where}; no finished run here yet to estimate the time from"
    return (
        f"{where}; the rest takes about {format_duration(estimate.duration_s)} on {slots} slots"
        f" (from {estimate.num_finished_runs} finished runs)"
    )


def _notes(plan: PlanRecord) -> list[str]:
    notes = []
    replicates = describe_replicates(plan)
    if replicates:
        notes.append(replicates)
    if plan.overrides:
        notes.append(f"on every arm: {' '.join(plan.overrides)}")
    if plan.left:
        notes.append(f"left the plan, kept on disk: {', '.join(plan.left)}")
    first, last = plan.analysis.baseline_steps
    fewest = min(run.max_steps for run in plan.runs)
    if last >= fewest:
        notes.append(
            f"warning: the baseline steps {first}-{last} leave none of the {fewest} steps of a run;"
            " exploded and collapsed will not be decidable"
        )
    if plan.analysis.last_steps > fewest:
        notes.append(
            f"warning: the final window of {plan.analysis.last_steps} steps is longer than the"
            f" {fewest} steps of a run; all of them will be used"
        )
    notes += [
        f"warning: {rule.text} can't stop a run of {fewest} steps"
        for rule in plan.stop_when
        if earliest_step(rule, plan.analysis) >= fewest
    ]
    if plan.earlier_analysis:
        notes.append("warning: the analysis changed after data existed; the report will say so")
    return notes


def _analysis_line(plan: PlanRecord) -> str:
    spec = plan.analysis
    first, last = spec.baseline_steps
    return (
        f"judged by {', '.join(spec.primary)} over the last {spec.last_steps} common steps, "
        f"alpha {spec.alpha:g}, margin {spec.margin:g}; exploded above {spec.explode_factor:g} x"
        f" the median of steps {first}-{last} for {spec.explode_hold} steps; collapsed below"
        f" {spec.collapse_fraction:g} x its own baseline over {spec.collapse_window} steps"
    )


def _code(plan: PlanRecord) -> str:
    code = plan.code
    parts = [show_commit("commit", code.commit, is_dirty=code.is_dirty)]
    parts.append(
        show_commit(f"{plan.trainer} at", code.program_commit, is_dirty=code.program_is_dirty)
    )
    shown = "; ".join(part for part in parts if part)
    return f"code {code.hash} ({shown})" if shown else f"code {code.hash}"


def show_commit(what: str, commit: str | None, *, is_dirty: bool | None) -> str:
    """Return `commit 0123456789, uncommitted changes`; empty where there is none."""
    if commit is None:
        return ""
    return f"{what} {commit[:10]}" + (", uncommitted changes" if is_dirty else "")


def _show(value: Any) -> str:
    return "unset" if value is None else str(value)


def _escape(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415

    return escape(one_line(text))
