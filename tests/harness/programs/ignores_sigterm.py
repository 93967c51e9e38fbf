"""Logs step 1, then sleeps and ignores SIGTERM.

python ignores_sigterm.py METRICS_FILE
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[1]).write_text('{"step": 1}\n')
    while True:
        time.sleep(60)
