"""harness run: plan, write the plan, run what is missing, report."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli import print_error, silence, tell
from harness.cli.display import planning_progress
from harness.cli.report import write_and_show_report
from harness.dispatch.interface import Order, Result, load_dispatcher
from harness.dispatch.local import count_slots
from harness.dispatch.lock import Lock, hold_lock
from harness.dispatch.progress import format_duration, show_progress
from harness.errors import HarnessError, UsageError
from harness.printable import printable
from harness.profile import Profile, load_profile
from harness.records.layout import SweepPaths
from harness.records.model import PlannedRun, PlanRecord
from harness.state.status import FINISHED_STATES, LIVE_STATES, RunStatus, read_states
from harness.sweep.code_copy import freeze_code
from harness.sweep.estimate import estimate_duration
from harness.sweep.finished import find_earlier, refuse_other_code
from harness.sweep.prepare import Prepared, prepare
from harness.sweep.store import reconcile, write_plan

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
    paths = prepared.paths
    with hold_lock(paths) as lock:
        work = _write_work(prepared, reuse_across_code=reuse_across_code)
        _announce(work, paths, profile)
        result = _follow(work, paths, profile, lock) if work.missing else None
    if result is not None and result.interrupted_by is not None:
        tell(f"stopped; `harness run {paths.name}` goes on from here")
        return SIGNAL_EXIT + result.interrupted_by
    is_all_done = not work.left_out and (result is None or result.is_all_done)
    if with_report:
        try:
            write_and_show_report(paths)
        except HarnessError as error:
            print_error(error)
            return 1
        except BrokenPipeError:
            silence(sys.stdout)  # the reader has gone; how the runs ended still counts
    return 0 if is_all_done else 1


@dataclass(frozen=True)
class _Work:
    """What a command has to do.

    Attributes:
        missing: runs to start.
        left_out: runs that aren't done and can't be started: damaged records, or still at work.
    """

    plan: PlanRecord
    code_dir: Path
    missing: tuple[PlannedRun, ...]
    left_out: tuple[RunStatus, ...]


def _write_work(prepared: Prepared, *, reuse_across_code: bool) -> _Work:
    """Write code and plan, and return what is to do. The caller holds the sweep's lock.

    The code comes first: should it not fit on the disk, the plan stays what it was.
    """
    paths = prepared.paths
    # Once more: before the lock was taken, another command may have run here.
    plan = reconcile(prepared.plan, paths)
    if not reuse_across_code:
        earlier = find_earlier(paths, plan.record.runs)
        refuse_other_code(earlier, prepared.code.record.hash, plan.record.sweep)
    code_dir = freeze_code(prepared.code, paths)
    write_plan(plan, paths, prepared.source.path.read_bytes())
    runs = {run.run_id: run for run in plan.record.runs}
    states = [s for s in read_states(paths) if s.is_planned and s.state not in FINISHED_STATES]
    left_out = tuple(s for s in states if s.is_damaged or s.state in LIVE_STATES)
    missing = tuple(runs[s.run_id] for s in states if s not in left_out)
    return _Work(plan.record, code_dir, missing, left_out)


def _follow(work: _Work, paths: SweepPaths, profile: Profile, lock: Lock) -> Result:
    """Run what is missing to its end; the lock goes with it."""
    order = Order(paths, work.missing, profile, work.plan.code.hash, work.code_dir)
    handle = load_dispatcher(profile.type).submit(order, lock)
    with show_progress() as show:
        result = handle.follow(show)
    _tell_failures(result, paths.name)
    return result


def _load_profile(name: str, slots: int | None) -> Profile:
    profile = load_profile(name)
    if slots is not None:
        if profile.type != "local":
            raise UsageError(
                f"--slots {slots} is for a local queue, and `{name}` is {profile.type}",
                "leave --slots out",
            )
        settings = dataclasses.replace(profile.settings, slots=slots)
        profile = dataclasses.replace(profile, settings=settings)
    if profile.type == "local":
        count_slots(profile)  # refused now, or after the plan has been written
    return profile


def _announce(work: _Work, paths: SweepPaths, profile: Profile) -> None:
    plan, missing = work.plan, work.missing
    say = f"{plan.sweep}: {len(plan.runs)} runs = {len(plan.arms)} arms x {len(plan.seeds)} seeds"
    if not missing:
        say += ", none of the others is missing" if work.left_out else ", all done"
    elif len(missing) < len(plan.runs):
        say += f", {len(missing)} missing"
    if missing and profile.type == "local":
        slots = count_slots(profile)
        estimate = estimate_duration(plan, paths, len(missing), slots)
        say += f", {slots} at a time"
        if estimate is not None:
            clock = time.strftime("%H:%M", time.localtime(time.time() + estimate.duration_s))
            say += f", about {format_duration(estimate.duration_s)} (until {clock})"
    tell(f"{say}; everything goes to {printable(str(paths.root))}" if missing else say)
    for status in work.left_out:
        reason = f": {status.reason}" if status.reason else ""
        hint = status.hint or f"`harness status {plan.sweep}` shows when it has ended"
        print_error(
            HarnessError(f"{status.run_id} can't be run, it is {status.state}{reason}", hint)
        )


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
        f"{shown} of {len(result.outcomes)} runs; last: {last.run.run_id}:"
        f" {last.error or last.state}",
        f"harness why {sweep} {last.run.arm}/{last.run.seed}",
    )
    print_error(error)
