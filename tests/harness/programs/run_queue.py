"""Runs a local queue over the whole plan of a sweep, in a process that tests can kill.

python run_queue.py SWEEP_FOLDER PROFILE_FILE
Prints the outcomes as one JSON object and exits with 128 + the signal that ended it, or 0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.dispatch.interface import Order
from harness.dispatch.local import LocalDispatcher
from harness.profile import load_profile
from harness.records.layout import SweepPaths
from harness.records.model import PlanRecord, read_record


def main(sweep_dir: str, profile_file: str) -> int:
    sweep = SweepPaths(Path(sweep_dir))
    plan = read_record(PlanRecord, sweep.plan)
    order = Order(sweep, plan.runs, load_profile(profile_file), code_hash=plan.code.hash)
    result = LocalDispatcher().submit(order).follow(lambda _snapshot: None)
    print(json.dumps({o.run.run_id: str(o.state) for o in result.outcomes}))
    return 0 if result.interrupted_by is None else 128 + result.interrupted_by


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
