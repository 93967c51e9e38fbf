"""Logs what no reader should trip over: NaN, torn and foreign lines; then the last step.

python writes_rubbish.py METRICS_FILE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    last = os.environ["HARNESS_MAX_STEPS"].encode()
    with Path(sys.argv[1]).open("wb") as file:
        file.write(b'{"step": 1, "mismatch_kl/all/mean": 0.25}\n')
        file.write(b'{"step": 2, "mismatch_kl/all/mean": NaN}\n')
        file.write(b'{"step": 3, "mismatch_kl/all/m{"step": 3}\n')
        file.write(b"\xff\xfe\x00 not text\n[1, 2]\n\n")
        file.write(b'{"step": 1e400}\n{"step": true}\n{"step": "7"}\n')
        file.write(b'{"step": ' + last + b"}\n")
        file.write(b'{"step": 999')
