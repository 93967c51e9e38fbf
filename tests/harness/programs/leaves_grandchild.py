"""Starts a grandchild in a session of its own that would live for an hour.

python leaves_grandchild.py METRICS_FILE PID_FILE exit|stay
The pid stands in PID_FILE once the grandchild lives; then the program logs every step and exits,
or stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(metrics_file: str, pid_file: str, ending: str) -> None:
    grandchild = (
        "import os, pathlib, subprocess, sys, time;"
        "subprocess.Popen([sys.executable, '-c', '''"
        "import os, pathlib, sys, time\\n"
        "path = pathlib.Path(sys.argv[1])\\n"
        "path.with_suffix(\\'.new\\').write_text(str(os.getpid()))\\n"
        "path.with_suffix(\\'.new\\').replace(path)\\n"
        "time.sleep(3600)''', sys.argv[1]], start_new_session=True)"
    )
    subprocess.run([sys.executable, "-c", grandchild, pid_file], check=True)
    while not Path(pid_file).exists():
        time.sleep(0.01)
    max_steps = int(os.environ["HARNESS_MAX_STEPS"])
    Path(metrics_file).write_text(f'{{"step": {max_steps}}}\n')
    while ending == "stay":
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
