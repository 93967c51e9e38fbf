"""Logs step 1, then takes memory without end.

python allocates.py METRICS_FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    Path(sys.argv[1]).write_text('{"step": 1}\n')
    taken = []
    while True:
        taken.append(b"x" * (8 << 20))
        time.sleep(0.01)
