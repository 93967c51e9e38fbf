"""harness retry: starts failed, lost and cancelled runs again, as they were planned.

The plan on disk is all that it needs: no sweep file is read, and nothing is planned anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.cli import tell
from harness.cli.preview import print_runs_to_start
from harness.cli.select import count_states, select_runs, show_counts
from harness.cli.start import Manner, Work, expected, see_through, settle
from harness.dispatch.lock import hold_lock
from harness.errors import HarnessError, UsageError
from harness.printable import printable
from harness.profile import DEFAULT_PROFILE, PROFILE_TYPES, Profile, load_profile, profile_names
from harness.records.files import read_json
from harness.records.layout import SweepPaths
from harness.records.model import (
    Intent,
    PlannedRun,
    PlanRecord,
    RunRecord,
    from_record,
    read_record,
)
from harness.runner.start import find_start
from harness.runner.stopping import spent_rules
from harness.state.model import RunState, RunStatus
from harness.state.status import may_resubmit, read_states
from harness.sweep.code_copy import Code, freeze_code, read_code
from harness.sweep.gpu_hours import planned_gpu_hours
from harness.sweep.locate import find_planned
from harness.sweep.needs import check_needs, needs_of
from harness.trainers.registry import load_trainer

RETRIED_STATES = frozenset(
    {
        RunState.FAILED,
        RunState.TIMEOUT,
        RunState.OUT_OF_MEMORY,
        RunState.PREEMPTED,
        RunState.CANCELLED,
        RunState.LOST,
    }
)
"""A run that a rule has stopped is started again only where it is named itself."""


def retry_command(
    *,
    sweep: str,
    target: str | None,
    profile_name: str | None,
    detach: bool,
    max_gpu_hours: float | None,
    live_code: bool,
    with_report: bool,
    dry_run: bool,
) -> int:
    """Start runs again that ended without being done; return 0 when all of them are done."""
    paths = find_planned(sweep)
    manner = Manner(detach, max_gpu_hours, live_code, with_report, profile_name)
    if dry_run:
        retry = _plan_retry(paths, target, manner)
        if retry is None:
            return _nothing_to_retry(paths, target)
        work, code_dir = retry.work, retry.work.code_dir
        print_runs_to_start(paths, work.plan, work.missing, retry.profile, code_dir)
        return 0
    with hold_lock(paths) as lock:
        settle(paths)
        retry = _plan_retry(paths, target, manner)
        if retry is None:
            return _nothing_to_retry(paths, target)
        if live_code:
            freeze_code(_live_code(paths, retry.work.missing), paths)
        counts = show_counts(count_states(retry.chosen))
        of = f"{len(retry.chosen)} of {len(retry.work.plan.runs)} runs start again ({counts})"
        facts = expected(retry.work, paths, retry.profile)
        where = printable(str(paths.root))
        tell_work = partial(tell, f"{paths.name}: {of}{facts}; everything goes to {where}")
        return see_through(retry.work, paths, retry.profile, retry.manner, lock, tell_work)


def choose(states: Sequence[RunStatus], paths: SweepPaths, target: str | None) -> list[RunStatus]:
    """Return the planned runs to start again, of those that `target` names.

    Raises:
        UsageError: it names none.
    """
    is_run = target is not None and "/" in target
    return [
        status
        for status in select_runs(paths, states, target)
        if status.is_planned
        and (
            (status.state in RETRIED_STATES and may_resubmit(status))
            or (status.state is RunState.STOPPED and is_run)
        )
    ]


@dataclass(frozen=True)
class _Retry:
    work: Work
    chosen: list[RunStatus]
    profile: Profile
    manner: Manner


def _plan_retry(paths: SweepPaths, target: str | None, manner: Manner) -> _Retry | None:
    """Return what to start again, where and by which code; None where there is nothing.

    Raises:
        UsageError: it can't be, or may not.
    """
    plan = read_record(PlanRecord, paths.plan)
    chosen = choose(read_states(paths), paths, target)
    if not chosen:
        return None
    wanted = {status.run_id for status in chosen}
    runs = tuple(run for run in plan.runs if run.run_id in wanted)
    profile, name = find_profile(paths, chosen, manner.on)
    manner = replace(manner, on=name)
    manner.check(profile, f"harness retry {paths.name}")
    planned = planned_gpu_hours(plan, profile, runs)
    if planned is not None and manner.max_gpu_hours is not None:
        planned.refuse_beyond(manner.max_gpu_hours)
    configs = {run.run_id: read_json(paths.run(run.arm, run.seed).config) for run in runs}
    needs = needs_of(configs, runs)
    for text in check_needs(plan, needs, profile, paths, num_runs=len(runs)):
        tell(f"warning: {text}")
    _tell_spent_rules(paths, plan, chosen)
    if plan.start_from:
        _check_starts(paths, runs)
    code_hash, code_dir = _find_code(paths, plan, runs, live_code=manner.live_code)
    work = Work(plan, code_hash, None if manner.live_code else code_dir, runs)
    return _Retry(work, chosen, profile, manner)


def _tell_spent_rules(paths: SweepPaths, plan: PlanRecord, chosen: Sequence[RunStatus]) -> None:
    """Say which runs go on without the rule that stopped them: it would stop them at once."""
    for status in chosen:
        spent = spent_rules(paths.run(status.arm, status.seed))
        rules = [f"`{rule.text}`" for rule in plan.stop_when if rule.text in spent]
        if rules:
            tell(f"note: {status.run_id} goes on without {', '.join(rules)}, which stopped it")


def find_profile(
    paths: SweepPaths, chosen: Sequence[RunStatus], name: str | None
) -> tuple[Profile, str | None]:
    """Return where to run, and what names it on a command line (None where nothing does).

    Without a `name` that is where the runs were submitted last: the profile of that name as it is
    now, or with the settings that were recorded where it was a file.

    Raises:
        UsageError: they were submitted to several.
    """
    if name is not None:
        return load_profile(name), name
    ids = {status.submission for status in chosen if status.submission is not None}
    intents = [read_record(Intent, paths.submission(i).intent) for i in sorted(ids)]
    names = sorted({intent.profile for intent in intents})
    if len(names) > 1:
        shown = ", ".join(f"`{each}`" for each in names)
        raise UsageError(f"these runs were submitted to {shown}", "name one with --on PROFILE")
    if not names:
        return load_profile(DEFAULT_PROFILE), DEFAULT_PROFILE
    if names[0] in profile_names():
        return load_profile(names[0]), names[0]
    newest = intents[-1]
    tell(f"profile `{newest.profile}` as submission {newest.id} recorded it; --on names another")
    where = str(paths.submission(newest.id).intent)
    kind = PROFILE_TYPES[str(newest.settings["type"])]
    return Profile(newest.profile, from_record(kind, newest.settings, where=where)), None


def _find_code(
    paths: SweepPaths, plan: PlanRecord, runs: Sequence[PlannedRun], *, live_code: bool
) -> tuple[str, Path]:
    """Return the hash and the copy of the code to run: the plan's, or today's.

    Raises:
        UsageError: the plan's copy is gone.
    """
    if live_code:
        code_hash = _live_code(paths, runs).record.hash
        return code_hash, paths.code_dir(code_hash)
    folder = paths.code_dir(plan.code.hash)
    if not folder.is_dir():
        raise UsageError(
            f"`{folder}` is gone, the copy of the code that the plan was made with",
            f"--live-code runs the installed harness; `harness run {paths.name}` plans anew",
        )
    _check_stamp(paths, plan, runs)
    return plan.code.hash, folder


def _check_starts(paths: SweepPaths, runs: Sequence[PlannedRun]) -> None:
    """Refuse forks whose parent's checkpoint is gone: every one of them would fail."""
    for run in runs:
        folder = paths.run(run.arm, run.seed)
        try:
            find_start(folder, read_record(RunRecord, folder.record))
        except HarnessError as error:
            raise UsageError(f"{run.run_id}: {error.message}", error.hint) from error


def _check_stamp(paths: SweepPaths, plan: PlanRecord, runs: Sequence[PlannedRun]) -> None:
    """Refuse a trainer's checkout that changed since the plan: every run would refuse it, too."""
    if plan.code.program_stamp is None or not runs:
        return
    config = read_json(paths.run(runs[0].arm, runs[0].seed).config)
    now = load_trainer(config["trainer"]["type"]).stamp(config)
    if now is not None and now.text != plan.code.program_stamp:
        raise UsageError(
            f"the checkout of the trainer `{plan.trainer}` is at {(now.commit or '')[:10]}, and the"
            f" plan was made at {(plan.code.program_commit or '')[:10]}"
            + (", with other changes" if now.commit == plan.code.program_commit else ""),
            f"take the change back, or --live-code, or `harness run {paths.name}`: it plans anew",
        )


def _live_code(paths: SweepPaths, runs: Sequence[PlannedRun]) -> Code:
    """Return today's code, with the trainer's own program, which the runs of a sweep share."""
    for run in runs:
        config = read_json(paths.run(run.arm, run.seed).config)
        trainer = load_trainer(config["trainer"]["type"])
        folder, stamp = trainer.code_dir(config), trainer.stamp(config)
        if folder is not None or stamp is not None:
            return read_code(None if folder is None else Path(folder), stamp)
    return read_code()


def _nothing_to_retry(paths: SweepPaths, target: str | None) -> int:
    what = paths.name if target is None else f"{paths.name} {target}"
    print(f"nothing to retry in {what}: no such run has ended without being done")
    return 0
