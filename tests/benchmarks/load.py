"""Reading metrics files against pandas.read_json: python tests/benchmarks/load.py

Writes files like prime-rl's (24 runs x 10,000 steps x 60 keys; five trainer rows and one or two
orchestrator rows per step), then reads each by pandas.read_json(lines=True) and by our reader, in
turns, and once more by our reader from its cache. Prints the ratios; exits 1 where ours takes more
than a fifth of pandas' time. `--runs 4 --steps 2000` is a short version.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from analysis.metrics import is_metric_key
from analysis.sources.cache import cached
from analysis.sources.interface import MetricsFile
from analysis.sources.prime_rl import read_prime_rl

GOAL = 0.20
STATISTICS = ("mean", "std", "min", "max")
TRAINER_ROWS = (
    (
        *("perf/throughput", "perf/throughput_per_gpu", "perf/mfu", "perf/peak_memory"),
        *("perf/seq_len", "progress/tokens", "progress/samples"),
    ),
    ("optim/lr", "optim/grad_norm", "optim/zero_grad_ratio", "optim/update_norm"),
    (
        *(f"loss/{name}" for name in STATISTICS),
        *(f"entropy/all/{name}" for name in STATISTICS),
        *(f"mismatch_kl/all/{name}" for name in STATISTICS),
        *("mismatch_kl/sampled/mean", "masked_mismatch_kl/mean", "unmasked_mismatch_kl/mean"),
        *("is_masked/mean", "is_masked/max", "importance_ratio/mean", "importance_ratio/max"),
    ),
    (
        *("time/step", "time/wait_for_batch", "time/load_data", "time/save_ckpt"),
        *("time/broadcast_weights", "time/forward_backward"),
    ),
    ("disk/used", "disk/free", "disk/total", "system/cpu", "system/ram"),
)
ORCHESTRATOR_ROWS = (
    (
        *(f"train/agg/all/agent/reward/{name}" for name in STATISTICS),
        *(f"train/agg/all/agent/seq_len/{name}" for name in STATISTICS),
        *("train/agg/all/agent/solved_none", "train/agg/all/agent/solved_all"),
        *("train/agg/effective/agent/reward/mean", "off_policy/mean", "off_policy/max"),
    ),
    (
        *("batch/size", "batch/groups", "batch/dropped", "dispatcher/inflight"),
        *("dispatcher/queued", "dispatcher/cancelled"),
    ),
)
NUM_KEYS = sum(len(row) for row in TRAINER_ROWS + ORCHESTRATOR_ROWS)


def write_run(path: Path, num_steps: int, seed: int) -> None:
    """Write the metrics of a run in which every second step has a second orchestrator row."""
    draw = random.Random(seed)
    now = 1.79e9
    with path.open("w") as file:
        for step in range(num_steps):
            num_orchestrator_rows = 1 + draw.randrange(2)
            for keys in (*TRAINER_ROWS, *ORCHESTRATOR_ROWS[:num_orchestrator_rows]):
                now += draw.random()
                values = {key: draw.random() for key in keys}
                file.write(json.dumps({"step": step, "time": now, **values}) + "\n")


def read(path: Path) -> MetricsFile:
    """Read a run without the cache."""
    return read_prime_rl(path, wanted=is_metric_key, step_key="step")


def read_cached(path: Path) -> MetricsFile:
    """Read a run by way of the cache."""
    return cached(lambda: read(path), path, "prime_rl", step_key="step", wanted=is_metric_key)


def time_of(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(folder: Path, num_runs: int, num_steps: int) -> float:
    """Print how long everybody takes, and return our share of pandas' time."""
    paths = [folder / f"{seed}.jsonl" for seed in range(num_runs)]
    for seed, path in enumerate(paths):
        write_run(path, num_steps, seed)
        os.utime(path, (1.79e9, 1.79e9))  # A file that was written just now isn't cached.
    found = read(paths[0])
    size_mb = sum(path.stat().st_size for path in paths) / 1e6
    print(f"{num_runs} runs x {num_steps} steps x {NUM_KEYS} keys, {size_mb:.0f} MB", end="; ")
    print(f"{len(found.series)} keys wanted")
    plain = ours = first = second = 0.0
    for path in paths:
        plain += time_of(lambda path=path: pd.read_json(path, lines=True))  # type: ignore[misc]
        ours += time_of(lambda path=path: read(path))  # type: ignore[misc]
        first += time_of(lambda path=path: read_cached(path))  # type: ignore[misc]
        second += time_of(lambda path=path: read_cached(path))  # type: ignore[misc]
    print(f"pandas.read_json {plain:.2f} s, ours {ours:.2f} s, ", end="")
    print(f"with the cache {first:.2f} s at first, {second:.3f} s then")
    print(f"ratio {ours / plain:.3f} (goal: at most {GOAL:.2f}), cached {second / plain:.4f}")
    return ours / plain


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=10_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["HARNESS_CACHE_DIR"] = str(Path(name) / "cache")
        share = compare(Path(name), chosen.runs, chosen.steps)
    sys.exit(share > GOAL)
