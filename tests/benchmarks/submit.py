"""1,000 runs handed to SLURM against submitit's bare map_array: python tests/benchmarks/submit.py

Prints the ratio of the median wall times (goal: at most 2) and the calls of sbatch. Both sides
submit held jobs to a development cluster of this script's own, in turns, each in a process of its
own. Ours begins when the plan has been written and ends with the last receipt: earlier submissions
are reconciled, states read, the intent written, the array and the finishing job handed over.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUM_ARMS, NUM_SEEDS, NUM_ROUNDS = 10, 100, 5
CLUSTER = f"bench-{os.getpid()}"
DEVCLUSTER = Path(__file__).parents[2] / "slurm" / "devcluster"

SWEEP = f"""
baseline: arm_0
seeds: {list(range(NUM_SEEDS))}
common: [trainer=command, task=external, model=external, "trainer.argv=['{{python}}', -c, pass]"]
arms: {{{", ".join(f"arm_{i}: [trainer.native.batch_size={i}]" for i in range(NUM_ARMS))}}}
may_differ: [trainer]
"""
PROFILE = "type: slurm\npartition: gpu\ntime: 10\nmem: 100M\nsbatch: {hold: true}\n"


def write_plan(folder: Path) -> None:
    """Plan the sweep and write the plan below `folder`."""
    from harness.sweep.prepare import prepare  # noqa: PLC0415
    from harness.sweep.store import write_plan as write  # noqa: PLC0415

    file = folder / "many.yaml"
    file.write_text(SWEEP)
    (folder / "bench.yaml").write_text(PROFILE)
    os.environ["HARNESS_OUTPUTS"] = str(folder)
    prepared = prepare(str(file))
    write(prepared.plan, prepared.paths, file.read_bytes())


def submit_ours(folder: Path) -> float:
    """Hand the planned sweep over and return the seconds that took."""
    start = time.perf_counter()
    from harness.dispatch.cluster import DISPATCHER  # noqa: PLC0415
    from harness.dispatch.interface import Order  # noqa: PLC0415
    from harness.dispatch.lock import acquire_lock  # noqa: PLC0415
    from harness.dispatch.reconcile import reconcile  # noqa: PLC0415
    from harness.profile import load_profile  # noqa: PLC0415
    from harness.records.layout import SweepPaths  # noqa: PLC0415
    from harness.records.model import PlanRecord, read_record  # noqa: PLC0415
    from harness.state.status import may_resubmit, read_states  # noqa: PLC0415

    sweep = SweepPaths(folder / "many")
    lock = acquire_lock(sweep)
    reconcile(sweep)
    plan = read_record(PlanRecord, sweep.plan)
    missing = {status.run_id for status in read_states(sweep) if may_resubmit(status)}
    runs = tuple(run for run in plan.runs if run.run_id in missing)
    assert len(runs) == NUM_ARMS * NUM_SEEDS
    profile = load_profile(str(folder / "bench.yaml"))
    DISPATCHER.submit(Order(sweep, runs, profile, plan.code.hash), lock)
    return time.perf_counter() - start


def submit_bare(folder: Path) -> float:
    """Submit as many functions by map_array and return the seconds that took."""
    start = time.perf_counter()
    from submitit import SlurmExecutor  # noqa: PLC0415

    executor = SlurmExecutor(folder / "submitit")
    executor.update_parameters(
        partition="gpu", time=10, mem="100M", additional_parameters={"hold": True}
    )
    executor.map_array(time.sleep, [0.0] * (NUM_ARMS * NUM_SEEDS))
    return time.perf_counter() - start


def time_side(side: str, env: dict[str, str]) -> float:
    """Return the seconds of one submission by a fresh process; its jobs are cancelled after."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    command = [sys.executable, __file__, side, str(folder)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    subprocess.run(["scancel", "--user", str(os.getuid())], env=env, check=True)
    shutil.rmtree(folder)
    return float(done.stdout)


def count_sbatch(folder: Path) -> dict[str, str]:
    """Return an environment in which a shim counts the calls of sbatch in `folder`."""
    shim = folder / "sbatch"
    shim.write_text(
        "#!/bin/sh\n# This is a shim that counts.\n"
        f"echo >> '{folder}/calls'\nexec {shutil.which('sbatch')} \"$@\"\n"
    )
    shim.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    start = [str(DEVCLUSTER / "start"), "--name", CLUSTER, "--nodes", "1"]
    line = subprocess.run(start, check=True, capture_output=True, text=True).stdout
    os.environ["SLURM_CONF"] = line.strip().partition("=")[2]
    try:
        with tempfile.TemporaryDirectory() as folder:
            counting = count_sbatch(Path(folder))
            time_side("ours", counting)
            calls = len((Path(folder) / "calls").read_text().splitlines())
        times: dict[str, list[float]] = {"ours": [], "bare": []}
        for _ in range(NUM_ROUNDS):
            for side, taken in times.items():
                taken.append(time_side(side, dict(os.environ)))
    finally:
        subprocess.run([str(DEVCLUSTER / "stop"), "--name", CLUSTER], check=True)
    ours_s, bare_s = (statistics.median(times[side]) for side in ("ours", "bare"))
    print(f"{NUM_ARMS * NUM_SEEDS:,} runs: harness {ours_s:.2f} s, map_array {bare_s:.2f} s")
    print(f"ratio {ours_s / bare_s:.2f} (goal: at most 2)")
    print(f"{calls} calls of sbatch: {calls - 1} for the runs, 1 for the finishing job")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        side, path = sys.argv[1], Path(sys.argv[2])
        if side == "ours":
            write_plan(path)
            print(submit_ours(path))
        else:
            print(submit_bare(path))
