"""Faults at seeded random moments into a sweep of the built-in trainer, on a development cluster.

tests/slurm/test_chaos.py injects five, tests/benchmarks/faults.py twenty.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records.files import write_json
from harness.records.layout import OUTPUTS_ENV, RunPaths, SweepPaths
from harness.records.model import PlanRecord, read_record
from harness.runner.process import send_signal
from tests.slurm.cluster import Cluster

ARMS = ("ipo", "icepop", "none")
DEADLINE_S = 900.0
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
FAULTS = (
    "kill_submitter",
    "kill_runner",
    "kill_node_daemon",
    "kill_controller",
    "preempt",
    "scancel",
)
SWEEP = """
question: Does every run end, whatever happens?
baseline: none
seeds: {seeds}
common:
  - experiment=stress
  - max_steps={max_steps}
  - trainer.checkpoints.every=10
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
  none: [loss=none]
analysis: {{last_steps: 20, baseline_steps: [9, 14]}}
"""


@dataclass
class Tally:
    """What was done to a sweep and what came of it.

    Attributes:
        faults: injected, by kind; a fault that found nothing to hit isn't counted.
        states: of the runs at the end.
        num_attempts: of all runs together.
        wrong: what must not be: a step that lacks or stands twice, attempts that wrote at the
            same time, processes and jobs that were left.
    """

    faults: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    num_attempts: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(f"{n} {kind}" for kind, n in sorted(self.faults.items()))
        states = ", ".join(f"{n} {state}" for state, n in sorted(self.states.items()))
        return (
            f"{sum(self.faults.values())} faults ({shown}); {states} in {self.num_attempts}"
            f" attempts; {len(self.wrong)} things wrong"
        )


class Chaos:
    """A sweep on a cluster, a submitter that follows it, and faults into both."""

    def __init__(
        self, cluster: Cluster, folder: Path, *, num_seeds: int, max_steps: int, seed: int
    ) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.tally = Tally()
        self.folder = folder
        self.sweep = SweepPaths(folder / "outputs" / "chaos")
        text = SWEEP.format(seeds=list(range(num_seeds)), max_steps=max_steps)
        (folder / "chaos.yaml").write_text(text)
        profile = {
            "type": "slurm",
            "partition": "low",
            "gpus_per_node": 1,
            "cpus_per_task": 1,
            "mem": "500M",
            "time": 15,
            "parallelism": 4,
            "signal_delay_s": 30,
            "grace_s": 4,
            "heartbeat_limit_s": 8,
            "quick_failure_s": 1,
            "poll_s": 1,
        }
        write_json(folder / "chaos_profile.yaml", profile)  # JSON is YAML
        self._env = {**cluster.env, OUTPUTS_ENV: str(folder / "outputs")}
        self._submitter: subprocess.Popen[bytes] | None = None

    def run(self, num_faults: int) -> Tally:
        """Inject `num_faults`, let the sweep come to its end, and judge what it left.

        Once all runs are done, nothing more is injected.
        """
        end = time.monotonic() + DEADLINE_S
        kinds = [*FAULTS, *self.random.choices(FAULTS, k=max(0, num_faults - len(FAULTS)))]
        first, *rest = kinds[:num_faults]
        self.random.shuffle(rest)
        try:
            for kind in (first, *rest):
                self._keep_submitter()
                time.sleep(self.random.uniform(0.3, 6.0))
                while not (has_hit := getattr(self, f"_{kind}")()) and not self._is_done():
                    assert time.monotonic() < end, f"{kind} found nothing to hit"
                    self._keep_submitter()
                    time.sleep(0.5)
                if not has_hit:
                    break
                self.tally.faults[kind] += 1
                print(f"{time.strftime('%X')} {kind}: {dict(self._states())}", file=sys.stderr)
            while not self._is_done():
                assert time.monotonic() < end, f"the sweep did not end: {self._states()}"
                self._keep_submitter()
                self._mend()
                time.sleep(1)
        finally:
            if self._submitter is not None:
                self._submitter.kill()
                self._submitter.wait()
        self._judge()
        return self.tally

    def harness(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "harness", *arguments]
        return subprocess.run(
            argv, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False
        )

    def _keep_submitter(self) -> None:
        """Type the command again where it has ended: that must always be safe."""
        if self._submitter is None or self._submitter.poll() is not None:
            argv = [sys.executable, "-m", "harness", "run", "chaos.yaml"]
            with (self.folder / "submitter.log").open("ab") as log:
                self._submitter = subprocess.Popen(
                    [*argv, "--on", "./chaos_profile.yaml", "--no-report"],
                    cwd=self.folder,
                    env=self._env,
                    stdout=log,
                    stderr=log,
                )

    def _mend(self) -> None:
        """Do what an administrator and a user would: nodes that SLURM took out of service come
        back, and for a run that it holds the command is typed again."""
        drained = self.cluster.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N", check=False)
        for node in set(drained.stdout.split()):
            self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        if "stalled" in self._states():
            command = ("run", "chaos.yaml", "--on", "./chaos_profile.yaml", "--detach")
            self.harness(*command, "--no-report")

    def _kill_submitter(self) -> bool:
        assert self._submitter is not None
        self._submitter.kill()
        self._submitter.wait()
        return True

    def _kill_runner(self) -> bool:
        runners = [
            pid
            for pid, line in _processes()
            if "harness.runner.element" in line and not line.startswith("srun")
        ]
        runners = [pid for pid in runners if str(self.sweep.root) in _environ(pid)]
        if not runners:
            return False
        send_signal(self.random.choice(runners), signal.SIGKILL)
        return True

    def _kill_node_daemon(self) -> bool:
        node = self.random.choice(NODES)
        self.cluster.kill_node(node, with_jobs=self.random.random() < 0.5)
        time.sleep(self.random.choice((1.0, 25.0)))  # comes back before or after SLURM notices
        self.cluster.start_node(node)
        return True

    def _kill_controller(self) -> bool:
        self.cluster.kill_controller()
        time.sleep(self.random.uniform(0.5, 5.0))
        self.cluster.start_controller()
        return True

    def _preempt(self) -> bool:
        nodes = {job["NodeList"] for job in self._running()}
        if not nodes:
            return False
        node = self.random.choice(sorted(nodes))
        self.cluster.sbatch("-p", "high", "-w", node, "--exclusive", script="sleep 4")
        return True

    def _scancel(self) -> bool:
        running = self._running()
        if not running:
            return False
        job_id = self.random.choice(running)["JobId"]
        self.cluster.run("scancel", job_id)
        time.sleep(3)
        self.harness("retry", "chaos", "--on", "./chaos_profile.yaml", "--detach")
        return True

    def _running(self) -> list[dict[str, str]]:
        shown = self.cluster.run("squeue", "-h", "-t", "R", "-p", "low", "-o", "%i %N", check=False)
        pairs = [line.split() for line in shown.stdout.splitlines()]
        return [{"JobId": p[0], "NodeList": p[1]} for p in pairs if len(p) == 2 and "_" in p[0]]

    def _states(self) -> Counter[str]:
        shown = self.harness("status", "chaos", "--json")
        if shown.returncode != 0:
            return Counter()
        return Counter(run["state"] for run in json.loads(shown.stdout))

    def _is_done(self) -> bool:
        states = self._states()
        return bool(states) and set(states) == {"done"}

    def _judge(self) -> None:
        self.tally.states = self._states()
        plan = read_record(PlanRecord, self.sweep.plan)
        for run in plan.runs:
            paths = self.sweep.run(run.arm, run.seed)
            self.tally.num_attempts += len(paths.attempts())
            self.tally.wrong += [
                f"{run.run_id}: {text}" for text in _find_wrong(paths, run.max_steps)
            ]
        left = [line for pid, line in _processes() if str(self.sweep.root) in _environ(pid)]
        self.tally.wrong += [f"left: {line}" for line in left if "harness.dispatch" not in line]


def _find_wrong(paths: RunPaths, max_steps: int) -> Iterator[str]:
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in paths.metrics.read_text().splitlines()
    ]
    attempts = [row["attempt"] for row in rows]
    if attempts != sorted(attempts):
        yield f"attempts wrote in turns: {attempts}"
    steps = [row["step"] for row in rows]
    live = [
        row["step"]
        for place, row in enumerate(rows)
        if not any(later["step"] <= row["step"] for later in rows[place + 1 :])
    ]
    if live != list(range(1, max_steps + 1)):
        yield f"live steps are {live}"
    for attempt in sorted(set(attempts)):
        own = [s for s, a in zip(steps, attempts, strict=True) if a == attempt]
        if own != list(range(own[0], own[0] + len(own))):
            yield f"attempt {attempt} logged {own}"
    ends: dict[int, float] = {}
    starts: dict[int, float] = {}
    for row in rows:
        ends[row["attempt"]] = row["time"]
        starts.setdefault(row["attempt"], row["time"])
    numbers = sorted(starts)
    for earlier, later in itertools.pairwise(numbers):
        if starts[later] < ends[earlier]:
            yield f"attempts {earlier} and {later} wrote at the same time"


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            yield int(entry.name), line


def _environ(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return ""
