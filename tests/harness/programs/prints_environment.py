"""Prints its environment as one JSON object and logs the last step.

python prints_environment.py METRICS_FILE
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    print(json.dumps(dict(os.environ)))
    Path(sys.argv[1]).write_text(f'{{"step": {os.environ["HARNESS_MAX_STEPS"]}}}\n')
