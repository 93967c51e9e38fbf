"""A trainer whose solve rate falls to 0 after a while, and which goes on regardless.

python dies_slowly.py METRICS_FILE FALLS_AT SECONDS_PER_STEP
Resumes after the last row, and stops on SIGTERM with exit code 143 once it has "saved".
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(metrics_file: str, falls_at: str, seconds_per_step: str) -> int:
    path = Path(metrics_file)

    def save(*_: object) -> None:
        (path.parent / "saved").touch()
        sys.exit(143)

    signal.signal(signal.SIGTERM, save)
    done = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as file:
        for step in range(done + 1, int(os.environ["HARNESS_MAX_STEPS"]) + 1):
            row = {
                "step": step,
                "attempt": int(os.environ["HARNESS_ATTEMPT"]),
                "mismatch_kl/all/mean": 0.001,
                "train/toy/all/agent/reward/mean": 0.8 if step < int(falls_at) else 0.0,
            }
            print(json.dumps(row), file=file, flush=True)
            time.sleep(float(seconds_per_step))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
