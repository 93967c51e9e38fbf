"""Fork sweeps of the demo against full runs: python tests/benchmarks/forks.py [--full]

Trains the demo's recipe (`sweeps/ipo_vs_icepop.yaml`) three times: every run from scratch; every
run from a run of the baseline arm with its own seed (paired); every run from one run of that arm
(one parent). Forks branch before the arms come apart, where a mask has dropped next to nothing, so
that the parent may be of any arm. Prints the collapses of each sweep, the verdicts on the solve
rate, and the CPU-seconds of the runs, parents and warm starts included.

Paired forks repeat what full runs of the same seeds do, but for the steps that arms share. Forks
of one parent answer another question: what happens from this one checkpoint on.

    --full     the demo's 6 arms, 12 seeds and 400 steps (half an hour on two cores);
               without it 2 arms, 3 seeds and 120 steps
    --step N   the step to fork at (default 14, the end of the demo's baseline window)
    --seed N   the one parent's seed (default 100: none of the demo's own)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.records.layout import OUTPUTS_ENV, SweepPaths

DEMO = Path(__file__).parents[2] / "sweeps" / "ipo_vs_icepop.yaml"
SMALL_ARMS, SMALL_SEEDS, SMALL_STEPS = ("none", "icepop"), 3, 120


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to: by arm, and the CPU-seconds of its runs."""

    collapsed: dict[str, str]
    verdicts: dict[str, str]
    cpu_s: float


def run(folder: Path, name: str, sweep: dict[str, Any]) -> float:
    """Run a sweep and report on it; return the CPU-seconds of running it."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False))
    before = os.times()
    _harness(folder, "run", str(path), "--no-report")
    after = os.times()
    _harness(folder, "report", name)
    return (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )


def _harness(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "harness", *arguments],
        env={**os.environ, OUTPUTS_ENV: str(folder / "outputs")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def read_outcome(folder: Path, name: str, cpu_s: float) -> Outcome:
    report = json.loads(SweepPaths(folder / "outputs" / name).report.json.read_text())
    collapsed = {}
    for arm in report["arms"]:
        share = arm["collapsed"]["share"]
        collapsed[arm["name"]] = "-" if share is None else f"{share['k']} of {share['n']}"
    verdicts = {
        item["arm"]: item["verdict"]
        for item in report["comparisons"]
        if item["name"] == "solve_rate"
    }
    return Outcome(collapsed, verdicts, cpu_s)


def measure(folder: Path, demo: dict[str, Any], step: int, seed: int) -> dict[str, Outcome]:
    """Return what full runs, paired forks and forks of one parent came to."""
    found = {"full": read_outcome(folder, "full", run(folder, "full", demo))}
    for name, seeds in (("paired", demo["seeds"]), ("one_parent", [seed])):
        arm = demo["baseline"]
        parent = {
            **demo,
            "seeds": seeds,
            "arms": {arm: demo["arms"][arm]},
            "common": [*_without_steps(demo["common"]), f"max_steps={step}"],
            "analysis": {**demo["analysis"], "last_steps": 1},
        }
        cost = run(folder, f"{name}_parent", parent)
        start = f"{name}_parent/{arm}" + ("" if name == "paired" else f"/{seed}")
        fork = {**demo, "start_from": {"run": start, "step": step}}
        found[name] = read_outcome(folder, name, cost + run(folder, name, fork))
    return found


def _without_steps(common: list[str]) -> list[str]:
    return [text for text in common if not text.startswith("max_steps=")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--step", type=int, default=14)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    demo = yaml.safe_load(DEMO.read_text())
    if not options.full:
        demo["arms"] = {arm: demo["arms"][arm] for arm in SMALL_ARMS}
        demo["seeds"] = demo["seeds"][:SMALL_SEEDS]
        demo["common"] = [*demo["common"], f"max_steps={SMALL_STEPS}"]
        demo["analysis"] = {**demo["analysis"], "last_steps": 50}
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), demo, options.step, options.seed)
    full = found["full"]
    for name, outcome in found.items():
        print(f"{name}: {outcome.cpu_s:.0f} CPU-s, ratio {full.cpu_s / outcome.cpu_s:.2f}")
        for arm, collapsed in outcome.collapsed.items():
            print(f"  {arm:<10} {collapsed:>9} collapsed   {outcome.verdicts.get(arm, '')}")
        same = sum(full.verdicts[arm] == outcome.verdicts[arm] for arm in full.verdicts)
        print(f"  same verdict as full runs: {same} of {len(full.verdicts)}")


if __name__ == "__main__":
    main()
