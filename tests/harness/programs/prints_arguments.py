"""Prints its arguments after the first as one JSON list and logs the last step.

python prints_arguments.py METRICS_FILE [WORD ...]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    print(json.dumps(sys.argv[2:]))
    Path(sys.argv[1]).write_text(f'{{"step": {os.environ["HARNESS_MAX_STEPS"]}}}\n')
