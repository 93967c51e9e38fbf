"""Sweeps on disk whose runs are small real programs, started by the trainer `command`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.interface import Order
from harness.dispatch.submission import Submission, open_submission
from harness.profile import LocalProfile, Profile
from harness.records.files import write_json
from harness.records.layout import RUN_DIR_ENV, SUBMISSION_ENV, RunPaths, SweepPaths
from harness.records.model import (
    SCHEMA_VERSION,
    AnalysisSpec,
    Claim,
    CodeRecord,
    Exit,
    Heartbeat,
    PlannedArm,
    PlannedRun,
    PlanRecord,
    RunRecord,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.trainers.command import TRAINER, CommandConfig
from harness.trainers.interface import RunName

PROGRAMS_DIR = Path(__file__).parent / "programs"
METRICS_ARGUMENT = "METRICS"
"""Stands for the path of the metrics file in the arguments of a program."""
DEADLINE_S = 30.0


def wait_until(condition: Callable[[], Any], what: str = "the condition") -> None:
    """Poll until `condition` holds; fail after a generous deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {DEADLINE_S:.0f} s")
        time.sleep(0.01)


@dataclass
class DiskSweep:
    """A planned sweep on disk, and what a test starts from it."""

    paths: SweepPaths
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def plan(self) -> PlanRecord:
        return read_record(PlanRecord, self.paths.plan)

    def replan(self, arms: Mapping[str, Sequence[str]], **options: Any) -> None:
        """Write the plan anew."""
        write_sweep(self.paths, arms, **options)

    def claim(self, arm: str, attempt: int = 1) -> Claim:
        return read_record(Claim, self.run(arm).attempt(attempt).claim)

    def heartbeat(self, arm: str, attempt: int = 1) -> Heartbeat | None:
        return read_record_if_there(Heartbeat, self.run(arm).attempt(attempt).heartbeat)

    def exit(self, arm: str, attempt: int = 1) -> Exit:
        return read_record(Exit, self.run(arm).attempt(attempt).exit)

    def run(self, arm: str, seed: int = 0) -> RunPaths:
        return self.paths.run(arm, seed)

    def submit(self, arms: Sequence[str] | None = None, **settings: Any) -> Submission:
        """Write the intent of a submission for the runs of some arms (default: all)."""
        runs = tuple(r for r in self.plan.runs if arms is None or r.arm in arms)
        profile = Profile("test", LocalProfile(**{"grace_s": 5.0, **settings}))
        return open_submission(Order(self.paths, runs, profile, code_hash="0" * 64))

    def start_runner(self, arm: str, submission: Submission, seed: int = 0) -> RunnerProcess:
        """Start a runner as a dispatcher does."""
        env = {
            **os.environ,
            RUN_DIR_ENV: str(self.run(arm, seed).root),
            SUBMISSION_ENV: submission.paths.id,
        }
        return self._start([sys.executable, "-P", "-m", "harness.runner"], env)

    def start_queue(self, profile: Mapping[str, Any] | None = None) -> RunnerProcess:
        """Start a local queue over the whole plan in a process of its own."""
        settings = {"type": "local", "grace_s": 5, **(profile or {})}
        path = self.paths.root.parent / "test_profile.yaml"
        write_json(path, settings)  # JSON is YAML
        script = str(PROGRAMS_DIR / "run_queue.py")
        return self._start([sys.executable, "-P", script, str(self.paths.root), str(path)], None)

    def _start(self, argv: list[str], env: dict[str, str] | None) -> RunnerProcess:
        process = subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return RunnerProcess(process)

    def end(self) -> None:
        """Kill what a failed test may have left; a runner kills its trainer when it dies."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


@dataclass
class RunnerProcess:
    """A started runner or queue."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err


def write_sweep(
    paths: SweepPaths,
    arms: Mapping[str, Sequence[str]],
    *,
    seeds: Sequence[int] = (0,),
    max_steps: int = 3,
    trainer: Mapping[str, Any] | None = None,
) -> None:
    """Write the plan and the runs of a sweep (again, with other steps).

    Args:
        arms: name -> a program of this folder and its arguments.
        trainer: keys of the `trainer` group beside `argv`.
    """
    runs = tuple(
        PlannedRun(arm, seed, f"identity-{arm}-{seed}", max_steps) for seed in seeds for arm in arms
    )
    plan = PlanRecord(
        schema_version=SCHEMA_VERSION,
        sweep=paths.name,
        question="Do programs end?",
        baseline=next(iter(arms)),
        pairing="seed",
        may_differ=("trainer",),
        common=(),
        overrides=(),
        conf_dirs=(),
        trainer="command",
        seeds=tuple(seeds),
        arms=tuple(PlannedArm(arm, (), (), (), {}) for arm in arms),
        runs=runs,
        left=(),
        analysis=AnalysisSpec(),
        earlier_analysis=(),
        code=CodeRecord("0" * 64, None, None, {}),
    )
    write_json(paths.plan, to_record(plan))
    for run in runs:
        config = CommandConfig(argv=program(*arms[run.arm]), **(trainer or {}))
        resolved = {"trainer": json.loads(json.dumps(asdict(config))), "seed": run.seed}
        record = RunRecord(
            schema_version=SCHEMA_VERSION,
            sweep=paths.name,
            arm=run.arm,
            seed=run.seed,
            identity=run.identity,
            trainer="command",
            **asdict(TRAINER.files(resolved, RunName(paths.name, run.arm, run.seed, run.identity))),
        )
        write_json(paths.run(run.arm, run.seed).config, resolved)
        write_json(paths.run(run.arm, run.seed).record, to_record(record))


def program(name: str, *arguments: str) -> tuple[str, ...]:
    """Return the argv template of one of the programs."""
    shown = ["{trainer_dir}/metrics.jsonl" if a == METRICS_ARGUMENT else a for a in arguments]
    return ("{python}", str(PROGRAMS_DIR / f"{name}.py"), *shown)


@pytest.fixture
def make_sweep(tmp_path: Path) -> Iterator[Callable[..., DiskSweep]]:
    """Make a sweep on disk: `make_sweep({"arm": ("trains", "METRICS", "0")}, max_steps=3)`."""
    made: list[DiskSweep] = []

    def make(arms: Mapping[str, Sequence[str]], **options: Any) -> DiskSweep:
        sweep = DiskSweep(SweepPaths(tmp_path / "outputs" / "toy"))
        write_sweep(sweep.paths, arms, **options)
        made.append(sweep)
        return sweep

    yield make
    for sweep in made:
        sweep.end()


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return wait_until
