"""harness run: plan, write the plan, run what is missing, report."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.cli import tell
from harness.cli.display import planning_progress
from harness.cli.preview import print_dry_run, refuse_beyond, unfinished
from harness.cli.start import Manner, Work, announce, see_through, settle, sort_runs
from harness.dispatch.interface import Order, load_dispatcher
from harness.dispatch.local import count_slots
from harness.dispatch.lock import hold_lock
from harness.doctor.slurm import LOGIN_TODO
from harness.errors import UsageError
from harness.printable import one_line
from harness.profile import Profile, load_profile
from harness.scheduler.commands import SlurmError, max_array_size
from harness.state.model import LOCAL, SLURM
from harness.sweep.code_copy import freeze_code
from harness.sweep.finished import find_earlier, refuse_other_code
from harness.sweep.needs import check_needs, needs_of
from harness.sweep.prepare import Prepared, prepare
from harness.sweep.store import reconcile, write_plan
from harness.sweep.validate import validate


def run_sweep_command(
    *,
    sweep: str,
    overrides: Sequence[str],
    conf_dirs: Sequence[Path],
    as_name: str | None,
    profile_name: str,
    slots: int | None,
    detach: bool,
    max_gpu_hours: float | None,
    live_code: bool,
    reuse_across_code: bool,
    with_report: bool,
    dry_run: bool,
) -> int:
    """Run what is missing of a sweep; return 0 when all is done, 1 when runs failed."""
    manner = Manner(detach, max_gpu_hours, live_code, with_report, profile_name)
    profile = _load_profile(profile_name, slots)
    manner.check(profile, f"harness run {sweep}")
    with planning_progress() as progress:
        prepared = prepare(
            sweep, overrides=overrides, conf_dirs=conf_dirs, as_name=as_name, progress=progress
        )
    refuse_beyond(prepared, profile, max_gpu_hours)
    warnings = (*prepared.warnings, *_check_needs(prepared, profile))
    with planning_progress("validating") as progress:
        prepared, said = validate(prepared, progress)
    for text in (*warnings, *said):
        tell(f"warning: {one_line(text)}")
    if dry_run:
        return print_dry_run(prepared, profile, live_code=live_code)
    paths = prepared.paths
    _check_cluster(prepared, profile, manner)
    with hold_lock(paths) as lock:
        settle(paths)
        work = _write_work(prepared, profile, manner, reuse_across_code=reuse_across_code)
        tell_work = partial(announce, work, paths, profile)
        return see_through(work, paths, profile, manner, lock, tell_work)


def _check_needs(prepared: Prepared, profile: Profile) -> tuple[str, ...]:
    """Refuse a profile that doesn't give the runs what they need; return what else they lack."""
    paths, plan = prepared.paths, prepared.plan
    runs = unfinished(paths, plan.record)
    needs = needs_of(plan.configs, runs)
    return check_needs(plan.record, needs, profile, paths, num_runs=len(runs))


def _check_cluster(prepared: Prepared, profile: Profile, manner: Manner) -> None:
    """Refuse before anything is written what couldn't be handed to a cluster afterwards.

    Raises:
        UsageError: SLURM doesn't answer, or the runs don't fit the profile.
    """
    paths, plan = prepared.paths, prepared.plan.record
    runs = tuple(unfinished(paths, plan))
    if profile.type != SLURM or not runs:
        return
    if shutil.which("sbatch") is None:
        raise UsageError("`sbatch` is not on the PATH", LOGIN_TODO)
    try:
        max_array_size()
    except SlurmError as error:
        raise UsageError(error.message, error.hint or "`scontrol ping` says more") from error
    code_dir = None if manner.live_code else paths.code_dir(plan.code.hash)
    order = Order(paths, runs, profile, plan.code.hash, code_dir, plan.resources)
    load_dispatcher(profile.type).preview(order)


def _write_work(
    prepared: Prepared, profile: Profile, manner: Manner, *, reuse_across_code: bool
) -> Work:
    """Write code and plan, and return what is to do. The caller holds the sweep's lock.

    The code comes first: should it not fit on the disk, the plan stays what it was.
    """
    paths = prepared.paths
    # Once more: before the lock was taken, another command may have run here.
    plan = reconcile(prepared.plan, paths)
    if not reuse_across_code:
        earlier = find_earlier(paths, plan.record.runs, plan.record.stop_when)
        refuse_other_code(earlier, prepared.code.record, paths)
    # With live code, too: the program of a command trainer starts in its copy.
    code_dir = freeze_code(prepared.code, paths)
    write_plan(plan, paths, prepared.source.path.read_bytes())
    return sort_runs(paths, plan.record, None if manner.live_code else code_dir, profile)


def _load_profile(name: str, slots: int | None) -> Profile:
    profile = load_profile(name)
    if slots is not None:
        if profile.type != LOCAL:
            raise UsageError(
                f"--slots {slots} is for a local queue, and `{name}` is {profile.type}",
                "leave --slots out; `parallelism` of the profile says how many run at once",
            )
        settings = dataclasses.replace(profile.settings, slots=slots)
        profile = dataclasses.replace(profile, settings=settings)
    if profile.type == LOCAL:
        count_slots(profile)  # refused now, or after the plan has been written
    return profile
