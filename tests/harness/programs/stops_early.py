"""Exits 0 after step 12, whatever it was asked for.

python stops_early.py METRICS_FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(f'{{"step": {step}}}\n' for step in range(1, 13)))
