"""Fails at step 2: prints a traceback, then a line that says nothing, and exits 3.

python raises.py METRICS_FILE
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path


def main(metrics_file: str) -> int:
    Path(metrics_file).write_text('{"step": 1}\n{"step": 2}\n')
    try:
        raise ValueError("the batch is empty")
    except ValueError:
        traceback.print_exc()
        print("wandb: You can sync this run to the cloud", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
