"""Twenty faults into a sweep of 24 runs on a dev cluster: python tests/benchmarks/faults.py

Prints the tally: every run must end done, each step present, no two attempts writing at once.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.slurm.chaos import Chaos
from tests.slurm.cluster import Cluster

NUM_SEEDS, MAX_STEPS, NUM_FAULTS, SEED = 8, 800, 20, 7


def main() -> int:
    """Run the sweep under faults; return 1 where something was lost or done twice."""
    cluster = Cluster.start("faults")
    try:
        with tempfile.TemporaryDirectory() as folder:
            chaos = Chaos(
                cluster, Path(folder), num_seeds=NUM_SEEDS, max_steps=MAX_STEPS, seed=SEED
            )
            tally = chaos.run(NUM_FAULTS)
    finally:
        cluster.stop()
    print(f"24 runs, seed {SEED}: {tally}")
    for line in tally.wrong:
        print(f"  {line}")
    return 1 if tally.wrong or set(tally.states) != {"done"} else 0


if __name__ == "__main__":
    sys.exit(main())
