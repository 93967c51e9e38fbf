"""Has the trainer itself look at the arms of a plan before anything is queued."""

from __future__ import annotations

from dataclasses import replace

from harness.sweep.finished import find_earlier
from harness.sweep.plan import Plan, Progress
from harness.sweep.prepare import Prepared
from harness.sweep.replicates import judged_arms
from harness.sweep.store import read_stored
from harness.trainers.interface import Candidate, RunName
from harness.trainers.registry import load_trainer


def validate(
    prepared: Prepared, progress: Progress | None = None
) -> tuple[Prepared, tuple[str, ...]]:
    """Return `prepared` with its plan validated, and warnings; one that has nothing left to run
    keeps what was said of it.

    Raises:
        UsageError: as `validate_plan`.
    """
    record = prepared.plan.record
    stored = read_stored(prepared.paths).plan
    earlier = find_earlier(prepared.paths, record.runs, record.stop_when)
    done = {run.run_id for run in earlier if run.is_done}
    if stored is not None and all(run.run_id in done for run in record.runs):
        said = {arm.name: arm.resolved for arm in stored.arms}
        arms = tuple(replace(arm, resolved=said.get(arm.name, ())) for arm in record.arms)
        kept = replace(record, arms=arms, remarks=stored.remarks)
        return replace(prepared, plan=replace(prepared.plan, record=kept)), ()
    plan, warnings = validate_plan(prepared.plan, progress)
    return replace(prepared, plan=plan), warnings


def validate_plan(plan: Plan, progress: Progress | None = None) -> tuple[Plan, tuple[str, ...]]:
    """Return `plan` with what its trainer said of the arms, each looked at with its first seed,
    and what of it is a warning.

    A replicate is what its arm is, and not looked at.

    Raises:
        UsageError: the trainer refuses an arm, or finds differences that were not declared.
    """
    record = plan.record
    seed = record.seeds[0]
    candidates = []
    looked_at = {arm.name for arm in judged_arms(record.arms)}
    for run in record.runs:
        is_asked = plan.configs[run.run_id]["trainer"]["type"] == record.trainer
        if run.seed == seed and run.arm in looked_at and is_asked:
            name = RunName(record.sweep, run.arm, run.seed, run.identity)
            candidates.append(Candidate(name, plan.configs[run.run_id], run.max_steps))
    trainer = load_trainer(record.trainer)
    said = trainer.validate(
        candidates, record.baseline, record.may_differ, progress or (lambda _done, _total: None)
    )
    remarks = dict.fromkeys(
        remark for candidate in candidates for remark in trainer.remarks(candidate.config)
    )
    remarks |= dict.fromkeys((*said.remarks, *said.warnings))
    arms = tuple(
        replace(arm, resolved=tuple(said.differs.get(arm.replicate_of or arm.name, ())))
        for arm in record.arms
    )
    judged = replace(plan, record=replace(record, arms=arms, remarks=tuple(remarks)))
    return judged, said.warnings
