"""`harness status` of 1,000 runs on a development cluster: python tests/benchmarks/status.py

Prints the CPU seconds of the whole command with all that it starts (goal: below 1.5 s), and how
often it calls SLURM, which must not depend on the number of runs. The jobs are held; then each run
gets an attempt that was cut off, which takes the records of all attempts to tell.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.slurm.handmade import SLEEP, SlurmSweep, make_slurm_sweep

FEW, MANY = 10, 1_000
GOAL_S = 1.5
COMMANDS = ("squeue", "sacct", "scontrol", "sinfo", "scancel")


def measure(sweep: SlurmSweep) -> tuple[float, list[str]]:
    """Return the CPU seconds of one `harness status` and SLURM's commands that it called."""
    calls = sweep.shims_dir / "calls"
    calls.write_text("")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {
        **sweep.cluster.env,
        "HARNESS_OUTPUTS": str(sweep.disk.paths.root.parent),
        "PATH": f"{sweep.shims_dir}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(
        [sys.executable, "-m", "harness", "status", sweep.disk.paths.name],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, calls.read_text().split()


def make_counting_sweep(folder: Path, cluster: Cluster, num_runs: int) -> SlurmSweep:
    """Make a sweep whose jobs are held, and put wrappers before SLURM's commands that log calls."""
    shims_dir = folder / f"wrappers-{num_runs}"
    sweep = make_slurm_sweep(folder / f"runs-{num_runs}", cluster, num_runs, shims_dir)
    for name in COMMANDS:
        sweep.shim(name, f'echo {name} >> "{shims_dir}/calls"; exec {shutil.which(name)} "$@"')
    sweep.sbatch(SLEEP, "--hold")
    return sweep


def compare(few: SlurmSweep, many: SlurmSweep, what: str) -> None:
    """Print what both cost."""
    results = [measure(sweep) for sweep in (few, many)]
    for number, (cpu_s, calls) in zip((FEW, MANY), results, strict=True):
        print(f"{number} runs, {what}: {cpu_s:.2f} s of CPU, calls: {' '.join(calls) or 'none'}")
    is_same = results[0][1] == results[1][1]
    print(f"goal: below {GOAL_S} s, and as many calls: {'the same' if is_same else 'NOT the same'}")


def main() -> None:
    cluster = Cluster.start(f"status-benchmark-{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory() as name:
            few, many = (make_counting_sweep(Path(name), cluster, n) for n in (FEW, MANY))
            compare(few, many, "all jobs held")
            long_ago = time.time() - 86_400
            for sweep, number in ((few, FEW), (many, MANY)):
                for index in range(number):
                    sweep.claim(index, time=long_ago)
                    sweep.disk.run(f"a{index}").attempt(1).heartbeat.unlink()
            compare(few, many, "each with an attempt that was cut off")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
