"""What `run` and `retry` share: from runs that are to start to their end and the report."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli import print_error, silence, tell
from harness.cli.report import write_and_show_report
from harness.cli.select import count_states, show_counts
from harness.cli.table import format_gpu_hours
from harness.dispatch.interface import Handle, Order, Result, load_dispatcher
from harness.dispatch.local import count_slots
from harness.dispatch.lock import Lock
from harness.dispatch.progress import format_duration, show_progress
from harness.dispatch.reconcile import reconcile
from harness.errors import HarnessError, UsageError
from harness.printable import one_line, printable
from harness.profile import Profile
from harness.records.layout import FINISH_JOB, SweepPaths
from harness.records.model import Intent, PlannedRun, PlanRecord, Receipt, read_record
from harness.state.model import FINISHED_STATES, SLURM, RunState, RunStatus
from harness.state.status import may_resubmit, read_states
from harness.sweep.estimate import estimate_duration
from harness.sweep.gpu_hours import planned_gpu_hours

SIGNAL_EXIT = 128


@dataclass(frozen=True)
class Manner:
    """How a command starts runs and what it does then.

    Attributes:
        detach: return once a cluster has the runs.
        max_gpu_hours: refuse beyond; None for no limit.
        live_code: run the installed harness, not the frozen copy.
        with_report: end in the report.
        on: what names the profile on a command line; None where nothing does (yet).
    """

    detach: bool = False
    max_gpu_hours: float | None = None
    live_code: bool = False
    with_report: bool = True
    on: str | None = None

    def check(self, profile: Profile, command: str) -> None:
        """Refuse what a profile can't do.

        Args:
            command: what was typed, for the hint.
        """
        if profile.type == SLURM:
            return
        if self.detach:
            raise UsageError(
                f"--detach hands runs to a cluster, and the profile `{profile.name}` runs them in"
                " this command",
                f"name a cluster's profile with --on, or `nohup {command} &`",
            )
        if self.max_gpu_hours is not None:
            raise UsageError(
                f"--max-gpu-hours is for a cluster, and the profile `{profile.name}` sets no limit"
                " to a run's time",
                "leave it out, or name a cluster's profile with --on",
            )


@dataclass(frozen=True)
class Work:
    """What a command has to do.

    Attributes:
        code_hash: of the code to run.
        code_dir: its copy; None for the installed harness.
        missing: runs to start.
        at_work: runs that SLURM has, or may have, in their order.
        left_out: runs that can't be started: damaged records, or at work elsewhere.
        num_stopped: runs that a rule has stopped.
    """

    plan: PlanRecord
    code_hash: str
    code_dir: Path | None
    missing: tuple[PlannedRun, ...]
    at_work: tuple[RunStatus, ...] = ()
    left_out: tuple[RunStatus, ...] = ()
    num_stopped: int = 0


def settle(paths: SweepPaths) -> None:
    """Settle what interrupted submissions left open; the caller holds the sweep's lock.

    Raises:
        UsageError: SLURM would have to be asked and doesn't answer.
    """
    for note in reconcile(paths).notes:
        tell(f"note: {one_line(note)}")


def sort_runs(paths: SweepPaths, plan: PlanRecord, code_dir: Path | None, profile: Profile) -> Work:
    """Return what is to do for `plan`, which is on disk."""
    runs = {run.run_id: run for run in plan.runs}
    planned = [s for s in read_states(paths) if s.is_planned]
    num_stopped = sum(s.state is RunState.STOPPED for s in planned)
    states = [s for s in planned if s.state not in FINISHED_STATES]
    missing = tuple(runs[s.run_id] for s in states if may_resubmit(s))
    rest = [s for s in states if not may_resubmit(s)]
    is_cluster = profile.type == SLURM
    at_work = tuple(s for s in rest if is_cluster and s.profile_type == SLURM and not s.is_damaged)
    left_out = tuple(s for s in rest if s not in at_work)
    return Work(plan, plan.code.hash, code_dir, missing, at_work, left_out, num_stopped)


def see_through(
    work: Work,
    paths: SweepPaths,
    profile: Profile,
    manner: Manner,
    lock: Lock,
    tell_work: Callable[[], None],
) -> int:
    """Start what is missing, follow it and what is at work to the end, report; return the exit
    code. The caller holds `lock`, which is released on the way.

    Args:
        tell_work: says what there is to do. Called first: once that is said, a Ctrl-C leaves the
            runs that SLURM has to SLURM.

    Raises:
        HarnessError: not all runs could be started.
    """
    handle: Handle | None = None
    is_with_slurm = profile.type == SLURM and bool(work.missing or work.at_work)
    try:
        tell_work()
        if work.missing:
            handle = load_dispatcher(profile.type).submit(_order(work, paths, profile), lock)
        if handle is None:
            lock.release()
        elif is_with_slurm:
            _tell_jobs(handle)
        if is_with_slurm:
            handle = _handle_of_all(work, paths, profile, handle)
        if manner.detach and handle is not None:
            tell(f"detached: {_come_back(paths, manner)}")
            return 1 if work.left_out else 0
        result = None if handle is None else _follow(handle, paths.name)
    except KeyboardInterrupt:  # before or after the time in which `follow` takes the signal itself
        if not is_with_slurm or (work.missing and handle is None):
            raise
        return _detach(paths, manner, signal.SIGINT)
    if result is not None and result.is_detached:
        return _detach(paths, manner, result.interrupted_by or signal.SIGINT)
    if result is not None and result.interrupted_by is not None:
        tell(f"stopped; `harness run {paths.name}` goes on from here")
        return SIGNAL_EXIT + result.interrupted_by
    is_all_done = result is None or all(o.state in FINISHED_STATES for o in result.outcomes)
    if manner.with_report and not _report(paths):
        return 1
    return 0 if is_all_done and not work.left_out else 1


def _order(work: Work, paths: SweepPaths, profile: Profile) -> Order:
    resources = work.plan.resources if profile.type == SLURM else {}
    return Order(
        paths,
        work.missing,
        profile,
        work.code_hash,
        work.code_dir,
        resources,
        stop_when=work.plan.stop_when,
        analysis=work.plan.analysis,
    )


def _detach(paths: SweepPaths, manner: Manner, number: int) -> int:
    tell(f"detached, nothing was cancelled: {_come_back(paths, manner)}")
    return SIGNAL_EXIT + number


def announce(work: Work, paths: SweepPaths, profile: Profile) -> None:
    """Say on stderr what there is to do, and what can't be done."""
    plan, missing = work.plan, work.missing
    say = f"{plan.sweep}: {len(plan.runs)} runs = {len(plan.arms)} arms x {len(plan.seeds)} seeds"
    if not missing and work.left_out:
        say += ", none of the others is missing"
    elif not missing:
        ended = "all done" if not work.num_stopped else f"done, {work.num_stopped} of them stopped"
        say += ", none is missing" if work.at_work else f", {ended}"
    elif len(missing) < len(plan.runs):
        say += f", {len(missing)} missing"
    if missing:
        say += expected(work, paths, profile)
    tell(f"{say}; everything goes to {printable(str(paths.root))}" if missing else say)
    if work.at_work:
        tell(f"{_describe(work.at_work)} and not submitted again")
    _tell_left_out(work.left_out, paths.name)


def expected_gpu_hours(plan: PlanRecord, runs: Sequence[PlannedRun], profile: Profile) -> str:
    """Return what `runs` may take, `up to 96 GPU-hours`; empty on a local queue."""
    planned = planned_gpu_hours(plan, profile, runs)
    if planned is None:
        return ""
    if planned.total is None:
        return f"GPU-hours can't be told: {planned.unknown}"
    return f"up to {format_gpu_hours(planned.total) or '0'} GPU-hours"


def expected(work: Work, paths: SweepPaths, profile: Profile) -> str:
    """Return where and how long the missing runs will take, as it goes on after `24 runs`."""
    if profile.type == SLURM:
        return f" on {profile.name}, {expected_gpu_hours(work.plan, work.missing, profile)}"
    slots = count_slots(profile)
    estimate = estimate_duration(work.plan, paths, len(work.missing), slots)
    if estimate is None:
        return f", {slots} at a time"
    clock = time.strftime("%H:%M", time.localtime(time.time() + estimate.duration_s))
    lasts = f"about {format_duration(estimate.duration_s)} (until {clock})"
    return f", {slots} at a time, {lasts}"


def _describe(at_work: Sequence[RunStatus]) -> str:
    counts = show_counts(count_states(at_work))
    one = len(at_work) == 1
    return f"{len(at_work)} {'is' if one else 'are'} with SLURM already ({counts})"


def _tell_left_out(left_out: Sequence[RunStatus], sweep: str) -> None:
    elsewhere = [s for s in left_out if s.profile_type == SLURM and not s.is_damaged]
    if elsewhere:
        counts = show_counts(count_states(elsewhere))
        print_error(
            HarnessError(
                f"{len(elsewhere)} runs can't be run here, SLURM has them ({counts})",
                f"`harness status {sweep} --watch` shows them, `harness cancel {sweep}` ends them",
            )
        )
    for status in left_out:
        if status in elsewhere:
            continue
        reason = f": {status.reason}" if status.reason else ""
        hint = status.hint or f"`harness status {sweep}` shows when it has ended"
        print_error(
            HarnessError(f"{status.run_id} can't be run, it is {status.state}{reason}", hint)
        )


def _come_back(paths: SweepPaths, manner: Manner) -> str:
    name = paths.name
    back = f"`harness run {name} --on {shlex.quote(manner.on)}` comes back, " if manner.on else ""
    return f"`harness status {name} --watch` shows it, {back}`harness cancel {name}` ends it"


def _tell_jobs(handle: Handle) -> None:
    """Say which jobs now hold the runs."""
    intent = read_record(Intent, handle.submission.intent)
    jobs = read_record(Receipt, handle.submission.receipt).jobs
    sizes = {str(array.number): len(array.run_ids) for array in intent.arrays}
    parts = [f"job {job_id} ({sizes[name]})" for name, job_id in jobs.items() if name in sizes]
    shown = ", ".join(parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")
    last = f"; job {jobs[FINISH_JOB]} reports at the end" if FINISH_JOB in jobs else ""
    count = sum(sizes[name] for name in jobs if name in sizes)
    tell(f"SLURM has {count} {'run' if count == 1 else 'runs'}: {shown}{last}")


def _handle_of_all(
    work: Work, paths: SweepPaths, profile: Profile, handle: Handle | None
) -> Handle:
    """Return what follows the runs just started together with those that SLURM had already."""
    from harness.dispatch.follow import SlurmHandle  # noqa: PLC0415 (only on a cluster)

    followed = {run.run_id for run in work.missing} | {s.run_id for s in work.at_work}
    runs = tuple(run for run in work.plan.runs if run.run_id in followed)
    order = Order(paths, runs, profile, work.code_hash)
    if handle is not None:
        submission = handle.submission
    else:
        submission = paths.submission(max(s.submission for s in work.at_work if s.submission))
    return SlurmHandle(order, submission, read_record(Intent, submission.intent))


def _follow(handle: Handle, sweep: str) -> Result:
    with show_progress() as show:
        result = handle.follow(show)
    if result.interrupted_by is None:
        _tell_failures(result, sweep)
    return result


def _tell_failures(result: Result, sweep: str) -> None:
    failed = [o for o in result.outcomes if o.state not in FINISHED_STATES]
    if not failed:
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


def _report(paths: SweepPaths) -> bool:
    """Write and show the report; return whether that worked."""
    try:
        write_and_show_report(paths)
    except HarnessError as error:
        print_error(error)
        return False
    except BrokenPipeError:
        silence(sys.stdout)  # the reader has gone; how the runs ended still counts
    return True
