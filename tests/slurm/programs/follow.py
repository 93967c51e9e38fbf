"""Hands a sweep on disk over and follows it; prints the result as one line of JSON.

python follow.py SWEEP_FOLDER PROFILE_FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.dispatch.cluster import DISPATCHER
from harness.dispatch.interface import Order
from harness.profile import load_profile
from harness.records.layout import SweepPaths
from harness.records.model import PlanRecord, read_record


def main(sweep_dir: str, profile_file: str) -> int:
    sweep = SweepPaths(Path(sweep_dir))
    plan = read_record(PlanRecord, sweep.plan)
    order = Order(sweep, plan.runs, load_profile(profile_file), plan.code.hash)
    result = DISPATCHER.submit(order).follow(lambda snapshot: None)
    states = {o.run.run_id: str(o.state) for o in result.outcomes}
    facts = {"is_detached": result.is_detached, "by": result.interrupted_by, "states": states}
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
