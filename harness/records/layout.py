"""Where everything of a sweep lies on disk. No other module spells one of these names.

Each file has exactly one writer:

    outputs/<sweep>/
      sweep.yaml, plan.json, plans/<n>.json         the planner
      submissions/<id>/{intent,receipt}.json        the submitter
      submissions/<id>/jobs/<name>.json             the submitter, or who reconciles after it
      submissions/<id>/slurm/                       submitit (scripts) and SLURM (logs of jobs)
      submissions/<id>/totals.json                  the finishing job
      submissions/<id>/requests/cancel-<nonce>.json the cancelling command
      shared/warm_start-<key>/                      the trainer that made it first
      code/<hash>/                                  the planner
      runs/<arm>/seed_<n>/{config,run}.json         the planner
      runs/<arm>/seed_<n>/attempts/<k>/*            the runner of attempt k
      runs/<arm>/seed_<n>/trainer/                  the trainer
      replay/<part>.json                            who asks a replay of jobs
      report/*                                      the report
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

OUTPUTS_ENV = "HARNESS_OUTPUTS"
"""Environment variable that names the folder of all sweeps; `./outputs` without it."""
RUN_DIR_ENV = "HARNESS_RUN_DIR"
SUBMISSION_ENV = "HARNESS_SUBMISSION"
ATTEMPT_ENV = "HARNESS_ATTEMPT"
MAX_STEPS_ENV = "HARNESS_MAX_STEPS"
SHARED_DIR_ENV = "HARNESS_SHARED_DIR"
START_CHECKPOINT_ENV = "HARNESS_START_CHECKPOINT"
"""Set for the built-in trainer where the run is a fork: the checkpoint that it starts from."""
SUBMISSION_DIR_ENV = "HARNESS_SUBMISSION_DIR"
"""Set by a batch script: the folder of its submission."""
ARRAY_ENV = "HARNESS_ARRAY"
"""Set by a batch script: the number of its array in the intent."""
FINISH_JOB = "finish"
"""Name of the job that ends a submission with the report."""

PROGRAM_DIR = "program"
"""Folder in a code copy that holds what `trainer.code_dir` held."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a sweep, arm or profile may be called: it becomes a folder and part of a job name."""
MAX_NAME_LENGTH = 64

_SEED_PREFIX = "seed_"
_SEED_DIR = re.compile(r"seed_(0|[1-9][0-9]*)")
_ATTEMPT_DIR = re.compile(r"[1-9][0-9]*")


def outputs_root() -> Path:
    """Return the folder that holds one folder per sweep (`HARNESS_OUTPUTS` or `./outputs`)."""
    return Path(os.environ.get(OUTPUTS_ENV) or "outputs")


def is_valid_name(name: str) -> bool:
    """Whether `name` can be a folder on any file system and a word in a job name."""
    return (
        NAME_PATTERN.fullmatch(name) is not None
        and len(name) <= MAX_NAME_LENGTH
        and not name.endswith(".")
    )


def repair_hint(path: Path) -> str:
    """Return what to do about a record file that is damaged: which file to delete or restore."""
    hint = _REPAIRS.get(path.name, "restore it from a copy, or delete it")
    return hint.format(folder=path.parent)


_REPAIRS = {
    "plan.json": "copy the newest of `{folder}/plans` over it, or delete it, and `harness run`"
    " writes it again",
    "run.json": "restore it from a copy, or delete the run `{folder}` to compute it anew",
    "config.json": "delete it, and the next `harness run` writes it again",
    "claim.json": "delete the folder `{folder}`, and the next `harness run` continues the run",
    "exit.json": "restore it, or delete it, and the next `harness run` continues the run",
    "heartbeat.json": "delete it: a runner that lives writes it again",
    "intent.json": "delete the folder `{folder}` once nothing of that submission runs",
    "submit.lock": "delete it once no `harness run` of the sweep is alive",
    "report.json": "`harness report` writes it again",
}
"""Record file -> what a person does when it can't be read. Each entry was chosen so that no
attempt ever meets the records of another."""


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep under its root folder."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def sweep_file(self) -> Path:
        return self.root / "sweep.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def earlier_plans_dir(self) -> Path:
        return self.root / "plans"

    def earlier_plan(self, number: int) -> Path:
        return self.earlier_plans_dir / f"{number}.json"

    @property
    def submissions_dir(self) -> Path:
        return self.root / "submissions"

    def submission(self, submission_id: str) -> SubmissionPaths:
        return SubmissionPaths(self.submissions_dir / submission_id)

    def submissions(self) -> list[SubmissionPaths]:
        """Submissions that have an intent, oldest first (their ids sort by number)."""
        if not self.submissions_dir.is_dir():
            return []
        folders = sorted(p for p in self.submissions_dir.iterdir() if p.is_dir())
        return [s for s in map(SubmissionPaths, folders) if s.intent.is_file()]

    @property
    def shared_dir(self) -> Path:
        return self.root / "shared"

    def warm_start_dir(self, key: str) -> Path:
        return self.shared_dir / f"warm_start-{key}"

    @property
    def code_root(self) -> Path:
        return self.root / "code"

    def code_dir(self, code_hash: str) -> Path:
        return self.code_root / code_hash

    def code(self, code_hash: str) -> CodePaths:
        return CodePaths(self.code_dir(code_hash))

    @property
    def runs_dir(self) -> Path:
        return self.root / "runs"

    def run(self, arm: str, seed: int) -> RunPaths:
        return RunPaths(self.runs_dir / arm / f"{_SEED_PREFIX}{seed}")

    def runs(self) -> list[RunPaths]:
        """Every run folder on disk that was planned, sorted by arm, then seed."""
        found: list[RunPaths] = []
        if not self.runs_dir.is_dir():
            return found
        for arm_dir in sorted(p for p in self.runs_dir.iterdir() if p.is_dir()):
            seeds = [RunPaths(p) for p in arm_dir.iterdir() if _SEED_DIR.fullmatch(p.name)]
            seeds = [r for r in seeds if r.record.is_file()]
            found.extend(sorted(seeds, key=lambda r: r.seed))
        return found

    @property
    def report(self) -> ReportPaths:
        return ReportPaths(self.root / "report")

    @property
    def report_html(self) -> Path:
        return self.report.html

    def replay_part(self, name: str) -> Path:
        """What one job of a replay is to count."""
        return self.root / "replay" / f"{name}.json"

    @property
    def lock(self) -> Path:
        return self.root / "submit.lock"


@dataclass(frozen=True)
class ReportPaths:
    """A report: `json` is the product, the other files are renderings of it."""

    root: Path

    @property
    def json(self) -> Path:
        return self.root / "report.json"

    @property
    def markdown(self) -> Path:
        return self.root / "report.md"

    @property
    def html(self) -> Path:
        return self.root / "report.html"

    @property
    def runs_csv(self) -> Path:
        return self.root / "runs.csv"

    @property
    def comparisons_csv(self) -> Path:
        return self.root / "comparisons.csv"

    @property
    def curves(self) -> Path:
        """Every logged value with its flag."""
        return self.root / "curves.parquet"

    @property
    def figures_dir(self) -> Path:
        return self.root / "figures"


@dataclass(frozen=True)
class CodePaths:
    """A frozen copy of the code that runs: `harness/`, and the program of a command trainer."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "code.json"

    @property
    def diff(self) -> Path:
        """What differed from the last commits when the copy was made."""
        return self.root / "uncommitted.diff"

    @property
    def program_dir(self) -> Path:
        return self.root / PROGRAM_DIR


@dataclass(frozen=True)
class SubmissionPaths:
    """The files of one submission."""

    root: Path

    @property
    def id(self) -> str:
        return self.root.name

    @property
    def sweep(self) -> SweepPaths:
        return SweepPaths(self.root.parent.parent)

    @property
    def intent(self) -> Path:
        return self.root / "intent.json"

    @property
    def receipt(self) -> Path:
        return self.root / "receipt.json"

    @property
    def jobs_dir(self) -> Path:
        return self.root / "jobs"

    def job_receipt(self, name: str) -> Path:
        """What became of one `sbatch`: `name` is an array's number, or FINISH_JOB."""
        return self.jobs_dir / f"{name}.json"

    @property
    def slurm_dir(self) -> Path:
        return self.root / "slurm"

    def element_log(self, array_job_id: str, index: int) -> Path:
        """What the batch script and the runner of one array element printed."""
        return self.slurm_dir / f"{array_job_id}_{index}_0_log.out"

    @property
    def totals(self) -> Path:
        return self.root / "totals.json"

    @property
    def requests_dir(self) -> Path:
        return self.root / "requests"

    def cancel_request(self, nonce: str) -> Path:
        return self.requests_dir / f"cancel-{nonce}.json"

    def cancel_requests(self) -> list[Path]:
        return sorted(self.requests_dir.glob("cancel-*.json"))


@dataclass(frozen=True)
class RunPaths:
    """The files of one run (one arm, one seed)."""

    root: Path

    @property
    def arm(self) -> str:
        return self.root.parent.name

    @property
    def seed(self) -> int:
        return int(self.root.name.removeprefix(_SEED_PREFIX))

    @property
    def sweep(self) -> SweepPaths:
        return SweepPaths(self.root.parent.parent.parent)

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def record(self) -> Path:
        return self.root / "run.json"

    @property
    def attempts_dir(self) -> Path:
        return self.root / "attempts"

    def attempt(self, number: int) -> AttemptPaths:
        return AttemptPaths(self.attempts_dir / str(number))

    def attempts(self) -> list[AttemptPaths]:
        """Attempts that were claimed, oldest first."""
        if not self.attempts_dir.is_dir():
            return []
        names = [p.name for p in self.attempts_dir.iterdir()]
        numbers = [int(name) for name in names if _ATTEMPT_DIR.fullmatch(name)]
        return [a for a in map(self.attempt, sorted(numbers)) if a.claim.is_file()]

    @property
    def trainer_dir(self) -> Path:
        return self.root / "trainer"

    @property
    def metrics(self) -> Path:
        """Metrics of the built-in trainer; other trainers' stand where run.json says."""
        return self.trainer_dir / "metrics.jsonl"

    @property
    def checkpoints_dir(self) -> Path:
        return self.trainer_dir / "checkpoints"

    @property
    def tokens_dir(self) -> Path:
        return self.trainer_dir / "tokens"

    def tokens_file(self, step: int) -> Path:
        return self.tokens_dir / f"step_{step:06d}.parquet"


@dataclass(frozen=True)
class AttemptPaths:
    """The files of one attempt; all are written by its runner."""

    root: Path

    @property
    def number(self) -> int:
        return int(self.root.name)

    @property
    def claim(self) -> Path:
        return self.root / "claim.json"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat.json"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def inputs_dir(self) -> Path:
        """Files that the trainer of this attempt was started with."""
        return self.root / "inputs"
