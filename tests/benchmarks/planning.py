"""Planning 1,000 runs against 1,000 calls of hydra.compose: python tests/benchmarks/planning.py

Prints the ratio (goal: at least 30). Both sides run in this process, on the shipped conf/. The
plain side is timed on 100 calls and scaled, as it takes minutes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hydra import compose, initialize_config_dir

from harness.config.conf_dir import load_conf
from harness.resources import CONF_DIR
from harness.sweep.code_copy import read_code
from harness.sweep.plan import build_plan
from harness.sweep.spec import load_sweep

NUM_ARMS, NUM_SEEDS, NUM_PLAIN = 10, 100, 100

SWEEP = f"""
baseline: ipo_0.05
seeds: {list(range(NUM_SEEDS))}
common: [experiment=stress]
grid:
  ipo_{{eps}}:
    overrides: [loss=ipo]
    axes: {{loss.eps: {[round(0.05 * (i + 1), 2) for i in range(NUM_ARMS)]}}}
"""


def time_planning() -> float:
    """Return the seconds that planning NUM_ARMS x NUM_SEEDS runs takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.yaml"
        path.write_text(SWEEP)
        start = time.perf_counter()
        plan = build_plan(load_sweep(path), load_conf((CONF_DIR,)), (), read_code().record)
        assert len(plan.record.runs) == NUM_ARMS * NUM_SEEDS
        return time.perf_counter() - start


def time_plain() -> float:
    """Return the seconds that as many plain calls of hydra.compose take."""
    start = time.perf_counter()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3", job_name="plain"):
        for i in range(NUM_PLAIN):
            compose("config", overrides=["experiment=stress", "loss=ipo", f"seed={i}"])
    return (time.perf_counter() - start) * NUM_ARMS * NUM_SEEDS / NUM_PLAIN


if __name__ == "__main__":
    plain, planning = time_plain(), time_planning()
    print(f"1,000 x hydra.compose {plain:.1f} s, planning 1,000 runs {planning:.2f} s")
    print(f"ratio {plain / planning:.0f} (goal: at least 30)")
