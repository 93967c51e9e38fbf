"""Reads its keys from a YAML file, as a program of someone else does; logs as verl does.

python reads_native.py KEYS_FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml


def main(keys_file: str) -> int:
    keys = yaml.safe_load(Path(keys_file).read_text(encoding="utf-8"))
    print(json.dumps({"file": keys_file, "keys": keys}), flush=True)
    metrics = Path(keys["metrics"])
    metrics.parent.mkdir(parents=True, exist_ok=True)
    with metrics.open("w") as file:
        for step in range(keys["first_step"], keys["max_steps"] + 1):
            row = {"step": step, "data": {"rollout_corr/k3_kl": keys["kl"] * step}}
            print(json.dumps(row), file=file, flush=True)
    return int(keys["exit_code"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
