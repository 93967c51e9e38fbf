"""Sweeps on disk that tests hand over to a cluster, by processes of their own."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records.files import write_json
from harness.records.layout import FINISH_JOB, SubmissionPaths, SweepPaths
from harness.records.model import (
    Intent,
    JobReceipt,
    PlanRecord,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.scheduler.commands import squeue_jobs
from harness.scheduler.jobs import Job
from harness.scheduler.words import Phase, phase_of
from tests.harness.conftest import write_sweep
from tests.slurm.cluster import Cluster

PROGRAM = Path(__file__).parent / "programs" / "submit.py"
PROFILE: dict[str, Any] = {
    "type": "slurm",
    "partition": "gpu",
    "gpus_per_node": 1,
    "cpus_per_task": 1,
    "mem": "200M",
    "time": 10,
    "grace_s": 3,
    "signal_delay_s": 30,
    "heartbeat_limit_s": 5,
    "poll_s": 0.5,
}
HELD = {"sbatch": {"hold": True}}
"""Jobs that stay in the queue until the test ends."""
TRAINS = ("trains", "METRICS", "0")
OTHER_SHAPE = {"b": {"gpus_per_node": 2}}
"""Makes the runs of arm `b` an array of their own."""


@dataclass
class Submitting:
    """A planned sweep, and what hands it over to a cluster.

    Attributes:
        shims: folder whose programs come first on the PATH of submitters.
    """

    cluster: Cluster
    paths: SweepPaths
    profile: Path
    shims: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a submitter; see tests/slurm/programs/submit.py."""
        return [
            sys.executable,
            "-P",
            str(PROGRAM),
            str(self.paths.root),
            str(self.profile),
            *arguments,
        ]

    def env(self) -> dict[str, str]:
        """Return the environment of a submitter: the shims come first on the PATH."""
        path = f"{self.shims}{os.pathsep}{os.environ['PATH']}"
        return {**self.cluster.env, "PATH": path}

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*arguments),
            env={**self.env(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def submit(self, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Run a submitter to its end; returns exit code, stdout and stderr."""
        process = self.start(*arguments, env=env)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err

    def shim(self, name: str, text: str) -> None:
        """Put a program before the real one of that name, which `text` calls as `$real`."""
        real = self.cluster.run("bash", "-c", f"command -v {name}").stdout.strip()
        path = self.shims / name
        header = (
            f"#!/bin/bash\n# This is a shim of `{name}`, made by a test.\nreal={real}\n"
            # the submitter is above `timeout`, which runs sbatch
            "submitter() { ps -o ppid= -p $PPID | tr -d ' '; }\n"
            f"count() {{ echo >> '{self.shims}/calls'; wc -l < '{self.shims}/calls'; }}\n"
        )
        path.write_text(header + text)
        path.chmod(0o755)

    def remove_shims(self) -> None:
        for path in self.shims.iterdir():
            path.unlink()

    def replan(
        self,
        *,
        resources: Mapping[str, Mapping[str, Any]],
        arms: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        """Write the plan with other resources, and with other `arms` and `seeds`."""
        if arms is not None:
            write_sweep(self.paths, arms, **options)
        plan = read_record(PlanRecord, self.paths.plan)
        plan = dataclasses.replace(plan, resources={k: dict(v) for k, v in resources.items()})
        write_json(self.paths.plan, to_record(plan))

    def submissions(self) -> list[SubmissionPaths]:
        return self.paths.submissions()

    def intent(self, number: int = -1) -> Intent:
        return read_record(Intent, self.submissions()[number].intent)

    def receipts(self, number: int = -1) -> dict[str, tuple[str, bool]]:
        """Return name -> state and whether it was adopted, of one submission's jobs."""
        found: dict[str, tuple[str, bool]] = {}
        names = [*(str(array.number) for array in self.intent(number).arrays), FINISH_JOB]
        for name in names:
            receipt = self.receipt(name, number)
            if receipt is not None:
                found[name] = (receipt.state, receipt.is_adopted)
        return found

    def receipt(self, name: str, number: int = -1) -> JobReceipt | None:
        path = self.submissions()[number].job_receipt(name)
        return read_record_if_there(JobReceipt, path)

    def live_jobs(self) -> list[Job]:
        """Return the sweep's jobs that SLURM hasn't ended."""
        jobs = [job for job in squeue_jobs("root") if job.name.startswith(self.paths.name)]
        return [job for job in jobs if phase_of(job.state) is not Phase.ENDED]

    def live_runs(self) -> Counter[str]:
        """Return run -> number of live jobs that would work on it."""
        counts: Counter[str] = Counter()
        intents = [read_record(Intent, paths.intent) for paths in self.submissions()]
        arrays = {(i.nonce, str(a.number)): a for i in intents for a in i.arrays}
        for job in self.live_jobs():
            nonce, _, name = job.name.rpartition("@")[2].partition(".")
            if (nonce, name) in arrays and job.index is not None:
                counts[arrays[nonce, name].run_ids[job.index]] += 1
        return counts

    def finishing_jobs(self) -> list[Job]:
        return [job for job in self.live_jobs() if job.name.endswith(f".{FINISH_JOB}")]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def make_submitting(
    cluster: Cluster,
    folder: Path,
    arms: Mapping[str, Sequence[str]],
    *,
    seeds: Sequence[int] = (0, 1),
    max_steps: int = 3,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
    **profile: Any,
) -> Submitting:
    """Plan a sweep `toy` below `folder`, for jobs of `cluster`."""
    paths = SweepPaths(folder / "outputs" / "toy")
    write_sweep(paths, arms, seeds=seeds, max_steps=max_steps)
    profile_file = folder / "site.yaml"
    write_json(profile_file, {**PROFILE, **profile})  # JSON is YAML
    shims = folder / "shims"
    shims.mkdir(parents=True)
    submitting = Submitting(cluster, paths, profile_file, shims)
    submitting.replan(resources=resources or {})
    return submitting
