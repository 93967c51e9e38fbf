"""Dies by SIGKILL, as the kernel's out-of-memory killer would do it.

python kills_itself.py
"""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":
    print("allocating", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
