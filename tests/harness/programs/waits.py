"""Trains like trains.py, but stays at step 2 until a file exists.

python waits.py METRICS_FILE GATE_FILE
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(metrics_file: str, gate_file: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = Path(metrics_file)
    done = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as file:
        for step in range(done + 1, int(os.environ["HARNESS_MAX_STEPS"]) + 1):
            while step > 2 and not Path(gate_file).exists():
                time.sleep(0.02)
            row = {"step": step, "attempt": int(os.environ["HARNESS_ATTEMPT"])}
            print(json.dumps(row), file=file, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
