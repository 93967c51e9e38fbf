"""What stands in the record files: frozen dataclasses with exact JSON forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.records.convert import from_record as from_record
from harness.records.convert import read_record as read_record
from harness.records.convert import read_record_if_there as read_record_if_there
from harness.records.convert import to_record as to_record

SCHEMA_VERSION = 1


REPLICATE_KEY = "replicate"
"""Of a run's configuration: 1, 2, … for the replicates of an arm; other runs lack it."""


@dataclass(frozen=True)
class KeyDifference:
    """A key whose resolved value in an arm is not the baseline's. None where a side lacks it."""

    key: str
    baseline: Any
    arm: Any


@dataclass(frozen=True)
class PlannedArm:
    """One named configuration: what was asked for and what it really changes.

    Attributes:
        overrides: as in the sweep file, after axes were expanded.
        differs: resolved keys that differ from the baseline's; empty for the baseline.
        restated: overrides that set what already held.
        loss: the resolved `loss` group.
        resolved: where the configuration differs from the baseline's as the trainer itself resolved
            both, in the trainer's own keys; empty where it was not asked.
        replicate_of: the arm whose configuration it has, with noise of its own; None for others.
    """

    name: str
    overrides: tuple[str, ...]
    differs: tuple[KeyDifference, ...]
    restated: tuple[str, ...]
    loss: dict[str, Any]
    resolved: tuple[KeyDifference, ...] = ()
    replicate_of: str | None = None


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed. `identity` is the hash of what it computes."""

    arm: str
    seed: int
    identity: str
    max_steps: int

    @property
    def run_id(self) -> str:
        return f"{self.arm}/seed_{self.seed}"


@dataclass(frozen=True)
class AnalysisSpec:
    """How the sweep will be judged, declared before any data exist.

    Attributes:
        primary: metrics that the verdicts are about.
        last_steps: length in steps of the final window.
        baseline_steps: first and last step (inclusive) of the window that a run's own baselines
            are taken from.
        explode_factor, explode_hold: exploded = mismatch KL above factor x the median of the
            baseline window for `hold` consecutive logged steps.
        collapse_window, collapse_fraction: collapsed = the mean solve rate over `window` steps
            falls below fraction x its mean in the baseline window and is still there at the end.
        margin: difference in solve rate that matters.
        alpha: two-sided error rate of intervals and tests.
        exploratory: metrics that are compared, too, outside Holm's family and without a verdict
            of better or worse.
        max_left_out: share of an arm's planned runs that may have failed before the arm counts as
            incomplete.
        onset_false_alarm: probability that an onset is found in a run whose mismatch KL only
            fluctuates.
        entropy_fraction: entropy collapse = the mean entropy over `collapse_window` steps falls
            below fraction x its mean in the baseline window and is still there at the end.
        spike_factor: gradient spike = a gradient norm above factor x the median of the baseline
            window.
        mask_floor, mask_ceiling: masked fractions between which a mask is at work: below the floor
            while the KL has risen it doesn't push back, above the ceiling with falling entropy it
            takes too much.
    """

    primary: tuple[str, ...] = ("solve_rate", "mismatch_kl")
    last_steps: int = 100
    baseline_steps: tuple[int, int] = (1, 30)
    explode_factor: float = 20.0
    explode_hold: int = 3
    collapse_window: int = 20
    collapse_fraction: float = 0.5
    margin: float = 0.02
    alpha: float = 0.05
    exploratory: tuple[str, ...] = ()
    max_left_out: float = 0.1
    onset_false_alarm: float = 0.05
    entropy_fraction: float = 0.2
    spike_factor: float = 20.0
    mask_floor: float = 1e-4
    mask_ceiling: float = 0.2


STOP_EVENTS = ("exploded", "collapsed", "non_finite", "entropy_collapsed")
"""Events of the analysis that a stop rule may name."""


@dataclass(frozen=True)
class StopRule:
    """When a run is stopped before its last step: an event, or a predicate on a metric.

    Attributes:
        event: one of STOP_EVENTS; empty for a predicate.
        metric: canonical name; empty for an event.
        above, below: what every value must be beyond. Beside an event: of its own metric, on the
            side that it is about.
        hold_steps: for how many logged steps in a row it must hold.
        after_step: steps up to this one don't count.
    """

    event: str = ""
    metric: str = ""
    above: float | None = None
    below: float | None = None
    hold_steps: int = 1
    after_step: int = 0

    @property
    def text(self) -> str:
        """The rule in one word: `collapsed:hold_steps=40`, `mismatch_kl:above=0.5`."""
        keys = {"above": self.above, "below": self.below}
        shown = [f"{k}={v!r}".removesuffix(".0") for k, v in keys.items() if v is not None]
        shown += [f"hold_steps={self.hold_steps}"] if self.hold_steps != 1 else []
        shown += [f"after_step={self.after_step}"] if self.after_step else []
        name = self.event or self.metric
        return f"{name}:{','.join(shown)}" if shown else name


@dataclass(frozen=True)
class CodeRecord:
    """Which code runs. `hash` covers the content of every frozen file.

    Attributes:
        commit, is_dirty: of the harness; None outside a git checkout.
        program_commit, program_is_dirty: of the program of a command trainer, where it is frozen,
            or of the checkout that a trainer runs from.
        program_stamp: differs wherever the code of such a checkout may differ; it isn't copied.
    """

    hash: str
    commit: str | None
    is_dirty: bool | None
    versions: dict[str, str]
    program_commit: str | None = None
    program_is_dirty: bool | None = None
    program_stamp: str | None = None


@dataclass(frozen=True)
class StartRecord:
    """The checkpoint that runs start from, in place of a start from scratch.

    Paths are relative to the sweep's folder where both lie below one folder of outputs.

    Attributes:
        seed: of the runs that start there; None for all of the sweep.
        asked: `start_from` of the sweep file.
        step: that the checkpoint is of; the runs' own steps begin after it.
        sha256: of its content, see `harness.checkpoint.hash_content`.
        stamp: of its files' names, sizes and times; where it holds, so does `sha256`.
        parent: `sweep/arm/seed_n` of the run that made it; empty where no run of this project did.
        parent_dir: that run's folder; None where there is none.
        parent_identity: that run's.
    """

    seed: int | None
    asked: dict[str, Any]
    step: int
    sha256: str
    stamp: str
    checkpoint: str
    parent: str = ""
    parent_dir: str | None = None
    parent_identity: str | None = None


@dataclass(frozen=True)
class PlanRecord:
    """plan.json: everything that was decided before anything ran.

    Attributes:
        runs: seed-major (all arms of a seed stand together).
        left: runs on disk that this plan no longer holds.
        overrides: of the command line, after `common`.
        earlier_analysis: analysis specs that were in force when data already existed.
        note: what a reader of the report must know about the design.
        resources: arm -> keys of a SLURM profile that the sweep overrides; `time` in minutes. They
            say where runs execute, so that no run's identity and no difference holds them.
        remarks: what the trainer said of the arms when they were planned: how they were validated,
            what of their files gave way.
        stop_when: any of them stops a run, judged by `analysis`; part of no run's identity.
        start_from: where the runs are forks, what they start from: one checkpoint for all, or one
            per seed.
    """

    schema_version: int
    sweep: str
    question: str
    baseline: str
    pairing: str
    may_differ: tuple[str, ...]
    common: tuple[str, ...]
    overrides: tuple[str, ...]
    conf_dirs: tuple[str, ...]
    trainer: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    runs: tuple[PlannedRun, ...]
    left: tuple[str, ...]
    analysis: AnalysisSpec
    earlier_analysis: tuple[AnalysisSpec, ...]
    code: CodeRecord
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""
    remarks: tuple[str, ...] = ()
    stop_when: tuple[StopRule, ...] = ()
    start_from: tuple[StartRecord, ...] = ()

    def arm(self, name: str) -> PlannedArm:
        return next(arm for arm in self.arms if arm.name == name)


@dataclass(frozen=True)
class RunRecord:
    """run.json: who a run is and where its files are.

    Attributes:
        trainer: name of the trainer.
        metrics, tokens, checkpoints: paths relative to the run folder; None where there are none.
        metrics_format: name of the reader in `analysis`, such as `prime_rl`.
        metrics_keys: canonical name -> key, where the trainer logs under names of its own.
        nonce: drawn when the run's folder was made: another execution of an equal run has another.
        logs: name of a part of the trainer -> its log, relative to the run folder, beside what the
            trainer itself prints.
        start_from: what the run starts from, where it is a fork.
    """

    schema_version: int
    sweep: str
    arm: str
    seed: int
    identity: str
    trainer: str
    metrics: str
    metrics_format: str
    metrics_keys: dict[str, str] = field(default_factory=dict)
    tokens: str | None = None
    tokens_format: str | None = None
    checkpoints: str | None = None
    checkpoints_format: str | None = None
    logs: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    start_from: StartRecord | None = None


@dataclass(frozen=True)
class ArrayPlan:
    """One job array of a submission, decided before anything is handed over.

    Attributes:
        number: 0, 1, … within the submission.
        job_name: `<sweep>@<nonce>.<number>`: no other job ever bears it.
        run_ids: element `i` of the array is the run `run_ids[i]`.
        settings: the profile's, with what the sweep overrides for these runs.
        parallelism: elements that may run at once; None for all.
        after: number of an array that must have ended before; None where it may start at once.
    """

    number: int
    job_name: str
    run_ids: tuple[str, ...]
    settings: dict[str, Any]
    parallelism: int | None = None
    after: int | None = None


@dataclass(frozen=True)
class JobReceipt:
    """submissions/<id>/jobs/<name>.json: what became of one `sbatch`.

    Attributes:
        name: the array's number as text, or FINISH_JOB.
        state: `accepted` (there is a job), `refused` (SLURM said no) or `not_submitted` (found
            nowhere when an interrupted submission was reconciled).
        job_id: the array's id; None unless accepted.
        cluster: where SLURM named one.
        error: SLURM's words where it refused, in one line.
        is_adopted: whether it was found by name instead of being answered by `sbatch`.
    """

    schema_version: int
    submission: str
    name: str
    job_name: str
    state: str
    job_id: str | None
    cluster: str | None
    error: str
    is_adopted: bool
    time: float


@dataclass(frozen=True)
class Intent:
    """submissions/<id>/intent.json: what a submitter set out to start, written before it starts.

    Attributes:
        nonce: proves to a runner that it belongs to this submission.
        profile: name of the profile; `settings` its values.
        runs: with the `max_steps` to reach.
        pid, pid_started: of the submitting process (local queue), see `process_start`.
        arrays: that hold the runs; empty on a local queue.
        user: who submits, as SLURM knows them; empty on a local queue.
        planned_gpu_hours: what the runs may take, to their time limits; None where the profile
            doesn't tell.
        stop_when: the plan's, with the `analysis` that its events are judged by.
    """

    schema_version: int
    id: str
    nonce: str
    profile: str
    settings: dict[str, Any]
    runs: tuple[PlannedRun, ...]
    code_hash: str
    code_dir: str | None
    host: str
    pid: int
    pid_started: str
    time: float
    arrays: tuple[ArrayPlan, ...] = ()
    user: str = ""
    planned_gpu_hours: float | None = None
    stop_when: tuple[StopRule, ...] = ()
    analysis: AnalysisSpec | None = None


@dataclass(frozen=True)
class Receipt:
    """submissions/<id>/receipt.json: how the submission ended or that it was handed over.

    Attributes:
        jobs: on SLURM, number of an array (or FINISH_JOB) -> job id.
        outcomes: run -> state, of runs that won't be started by it any more.
    """

    schema_version: int
    id: str
    jobs: dict[str, str]
    outcomes: dict[str, str]
    start: float
    end: float


@dataclass(frozen=True)
class Claim:
    """attempts/<k>/claim.json: who works on the run. Created exclusively, never changed.

    Attributes:
        job_id: `<array>_<index>` on SLURM; `node` the name that SLURM gives the machine.
        gpus: indices or ids that the run holds on each of `num_nodes` nodes.
        stop_when: the rules that may stop the attempt, as text.
    """

    schema_version: int
    attempt: int
    submission: str
    nonce: str
    host: str
    pid: int
    pid_started: str
    time: float
    max_steps: int
    code_hash: str
    machine: dict[str, Any]
    job_id: str | None = None
    node: str | None = None
    gpus: tuple[str, ...] = ()
    num_nodes: int = 1
    stop_when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heartbeat:
    """attempts/<k>/heartbeat.json: rewritten while the runner lives.

    `step`, `tokens`, `mismatch_kl` and `solve_rate` are the latest that the trainer logged.

    Attributes:
        first_step: the first that this attempt logged; None before.
        stalled_since: when the trainer last logged a step, once that is longer ago than the
            profile's `stall_limit_s`; else None.
    """

    schema_version: int
    attempt: int
    time: float
    step: int | None
    max_steps: int
    tokens: int | None
    mismatch_kl: float | None
    solve_rate: float | None
    steps_per_s: float | None
    trainer_pid: int | None
    first_step: int | None = None
    stalled_since: float | None = None


@dataclass(frozen=True)
class Exit:
    """attempts/<k>/exit.json: written last; an attempt without one was cut off.

    Attributes:
        reason: `done`, `failed`, `cancelled`, `superseded` or `stopped`; on SLURM also `timeout`,
            `preempted` (SLURM took the node, and starts the job again) and `out_of_memory`.
        code, signal: of the trainer; at most one is not None.
        error: the last line that explains a failure; empty otherwise.
        last_step: the newest step in the metrics.
        nodes: host names; gpus: indices or ids that the run held on each.
        first_step: the first that this attempt logged; None where it logged none.
        requeue: whether the runner had its job started again.
        rule, rule_step: where a stop rule ended it: the rule as text, and the step from which on
            it says so.
        unspent_gpu_hours: what the steps up to `max_steps` would have taken at its speed then;
            None where that isn't known.
    """

    schema_version: int
    attempt: int
    reason: str
    code: int | None
    signal: int | None
    error: str
    last_step: int | None
    max_steps: int
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    start: float
    end: float
    first_step: int | None = None
    requeue: bool = False
    rule: str = ""
    rule_step: int | None = None
    unspent_gpu_hours: float | None = None
