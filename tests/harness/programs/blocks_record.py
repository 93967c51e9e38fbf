"""Puts a folder where its runner wants to write a record, then trains to the end.

python blocks_record.py METRICS_FILE heartbeat.json|exit.json
It stands for a full disk: the write fails with an OSError.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(metrics_file: str, name: str) -> None:
    attempt = Path(os.environ["HARNESS_RUN_DIR"], "attempts", os.environ["HARNESS_ATTEMPT"])
    while not (attempt / "heartbeat.json").exists():
        time.sleep(0.01)
    (attempt / name).unlink(missing_ok=True)
    (attempt / name / "in_the_way").mkdir(parents=True)
    Path(metrics_file).write_text(f'{{"step": {os.environ["HARNESS_MAX_STEPS"]}}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
