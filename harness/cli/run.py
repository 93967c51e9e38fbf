"""harness run: plan, write the plan, run what is missing, report."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.cli import print_error
from harness.cli.display import planning_progress
from harness.cli.report import write_and_show_report
from harness.dispatch.interface import Order, Result, load_dispatcher
from harness.dispatch.lock import require_no_live_lock
from harness.dispatch.progress import format_duration, show_progress
from harness.errors import HarnessError, UsageError
from harness.profile import Profile, load_profile
from harness.records.model import PlannedRun
from harness.state.status import FINISHED_STATES, LIVE_STATES, RunState, read_states
from harness.sweep.code_copy import freeze_code
from harness.sweep.estimate import estimate_duration
from harness.sweep.finished import find_done, refuse_other_code
from harness.sweep.prepare import Prepared, prepare
from harness.sweep.store import write_plan

SIGNAL_EXIT = 128


def run_sweep_command(
    *,
    sweep: str,
    overrides: Sequence[str],
    conf_dirs: Sequence[Path],
    as_name: str | None,
    profile_name: str,
    slots: int | None,
    reuse_across_code: bool,
    with_report: bool,
) -> int:
    """Run what is missing of a sweep; return 0 when all is done, 1 when runs failed."""
    profile = _load_profile(profile_name, slots)
    with planning_progress() as progress:
        prepared = prepare(
            sweep, overrides=overrides, conf_dirs=conf_dirs, as_name=as_name, progress=progress
        )
    plan, paths = prepared.plan.record, prepared.paths
    require_no_live_lock(paths)
    done = find_done(paths, plan.runs)
    if not reuse_across_code:
        refuse_other_code(done, prepared.code.record.hash, plan.sweep)
    write_plan(prepared.plan, paths, prepared.source.path.read_bytes())
    code_dir = freeze_code(prepared.code, paths)
    missing = _find_missing(prepared)
    _announce(prepared, profile, missing)
    result = None
    if missing:
        order = Order(paths, missing, profile, prepared.code.record.hash, code_dir)
        handle = load_dispatcher(profile.type).submit(order)
        with show_progress() as show:
            result = handle.follow(show)
        _tell_failures(result, plan.sweep)
        if result.interrupted_by is not None:
            print(f"stopped; `harness run {plan.sweep}` goes on from here", file=sys.stderr)
            return SIGNAL_EXIT + result.interrupted_by
    if with_report:
        try:
            write_and_show_report(paths)
        except HarnessError as error:
            print_error(error)
            return 1
    return 0 if result is None or result.is_all_done else 1


def _load_profile(name: str, slots: int | None) -> Profile:
    profile = load_profile(name)
    if slots is None:
        return profile
    if profile.type != "local":
        raise UsageError(f"--slots {slots} is for a local queue, and `{name}` is {profile.type}")
    return dataclasses.replace(profile, settings=dataclasses.replace(profile.settings, slots=slots))


def _find_missing(prepared: Prepared) -> tuple[PlannedRun, ...]:
    states = {status.run_id: status.state for status in read_states(prepared.paths)}
    settled = FINISHED_STATES | LIVE_STATES
    return tuple(
        run
        for run in prepared.plan.record.runs
        if states.get(run.run_id, RunState.PLANNED) not in settled
    )


def _announce(prepared: Prepared, profile: Profile, missing: Sequence[PlannedRun]) -> None:
    from harness.dispatch.local import count_slots  # noqa: PLC0415 (a local queue only)

    plan = prepared.plan.record
    say = f"{plan.sweep}: {len(plan.runs)} runs = {len(plan.arms)} arms x {len(plan.seeds)} seeds"
    if not missing:
        print(f"{say}, all done", file=sys.stderr)
        return
    if len(missing) < len(plan.runs):
        say += f", {len(missing)} missing"
    if profile.type == "local":
        slots = count_slots(profile)
        estimate = estimate_duration(plan, prepared.paths, len(missing), slots)
        say += f", {slots} at a time"
        if estimate is not None:
            clock = time.strftime("%H:%M", time.localtime(time.time() + estimate.duration_s))
            say += f", about {format_duration(estimate.duration_s)} (until {clock})"
    print(f"{say}; everything goes to {prepared.paths.root}", file=sys.stderr)


def _tell_failures(result: Result, sweep: str) -> None:
    failed = [o for o in result.outcomes if o.state not in FINISHED_STATES]
    if not failed or result.interrupted_by is not None:
        return
    counts: dict[str, int] = {}
    for outcome in failed:
        counts[outcome.state] = counts.get(outcome.state, 0) + 1
    shown = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    last = next((o for o in reversed(failed) if o.error), failed[-1])
    error = HarnessError(
        f"{shown} of {len(result.outcomes)} runs; last: {last.run.run_id}: {last.error}",
        f"harness why {sweep} {last.run.arm}/{last.run.seed}",
    )
    print_error(error)
