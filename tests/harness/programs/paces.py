"""Logs a step every so often, and the rest of them at once when a file appears.

python paces.py METRICS_FILE GATE_FILE SECONDS_PER_STEP
Resumes after the last row, and stops on SIGTERM with exit code 143. The last step waits for the
file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(metrics_file: str, gate_file: str, seconds_per_step: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path, gate = Path(metrics_file), Path(gate_file)
    done = len(path.read_text().splitlines()) if path.exists() else 0
    max_steps = int(os.environ["HARNESS_MAX_STEPS"])
    with path.open("a") as file:
        for step in range(done + 1, max_steps + 1):
            due = time.monotonic() + float(seconds_per_step)
            while not gate.exists() and (time.monotonic() < due or step == max_steps):
                time.sleep(0.02)
            attempt = int(os.environ["HARNESS_ATTEMPT"])
            row = {"step": step, "attempt": attempt, "time": time.time()}
            print(json.dumps(row), file=file, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
