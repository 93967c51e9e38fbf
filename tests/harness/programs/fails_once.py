"""Waits for a file and fails on the run's first attempt; any later attempt logs the last step.

python fails_once.py METRICS_FILE GATE_FILE
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(metrics_file: str, gate_file: str) -> int:
    path = Path(metrics_file)
    if os.environ["HARNESS_ATTEMPT"] == "1":
        path.write_text('{"step": 1}\n')
        while not Path(gate_file).exists():
            time.sleep(0.02)
        print("the network is away")
        return 1
    with path.open("a") as file:
        file.write(f'{{"step": {os.environ["HARNESS_MAX_STEPS"]}}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
