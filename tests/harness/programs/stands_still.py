"""Logs one step more than there are, then lives on and logs nothing. Stops on SIGTERM.

python stands_still.py METRICS_FILE
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(metrics_file: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = Path(metrics_file)
    step = len(path.read_text().splitlines()) + 1 if path.exists() else 1
    with path.open("a") as file:
        row = {"step": step, "attempt": int(os.environ["HARNESS_ATTEMPT"])}
        print(json.dumps(row), file=file, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
