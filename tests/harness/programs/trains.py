"""A well-behaved trainer: resumes, logs a row per step, stops on SIGTERM with exit code 143.

python trains.py METRICS_FILE SECONDS_PER_STEP
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(metrics_file: str, seconds_per_step: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = Path(metrics_file)
    done = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as file:
        for step in range(done + 1, int(os.environ["HARNESS_MAX_STEPS"]) + 1):
            row = {
                "step": step,
                "attempt": int(os.environ["HARNESS_ATTEMPT"]),
                "mismatch_kl/all/mean": step / 1000,
                "train/toy/all/agent/reward/mean": 0.5,
                "progress/tokens": 10 * step,
            }
            print(json.dumps(row), file=file, flush=True)
            print(f"step {step}", flush=True)
            time.sleep(float(seconds_per_step))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
