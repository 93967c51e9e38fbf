"""Does with a sweep on disk what `harness run --detach` does, in a process that tests can kill.

python submit.py SWEEP_FOLDER PROFILE_FILE [SBATCH_TIMEOUT_S]
Prints what was reconciled; errors as the command line shows them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.dispatch.cluster import SlurmDispatcher
from harness.dispatch.interface import Order
from harness.dispatch.lock import hold_lock
from harness.dispatch.reconcile import reconcile
from harness.errors import HarnessError
from harness.profile import load_profile
from harness.records.layout import SweepPaths
from harness.records.model import PlanRecord, read_record
from harness.state.status import may_resubmit, read_states


def main(sweep_dir: str, profile_file: str, timeout_s: str = "60") -> int:
    sweep = SweepPaths(Path(sweep_dir))
    profile = load_profile(profile_file)
    try:
        with hold_lock(sweep) as lock:
            for note in reconcile(sweep).notes:
                print(note)
            plan = read_record(PlanRecord, sweep.plan)
            wanted = {s.run_id for s in read_states(sweep) if may_resubmit(s)}
            missing = tuple(run for run in plan.runs if run.run_id in wanted)
            print(f"{len(missing)} missing", flush=True)
            if missing:
                order = Order(sweep, missing, profile, plan.code.hash, resources=plan.resources)
                SlurmDispatcher(float(timeout_s)).submit(order, lock)
    except HarnessError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
