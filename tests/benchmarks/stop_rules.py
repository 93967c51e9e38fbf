"""What the default stop rule saves of the demo: python tests/benchmarks/stop_rules.py [--run]

From the finished runs of outputs/ipo_vs_icepop (`make demo` makes them) it reckons the seconds of
work that the rule would have saved, in trainers of one thread each, so of CPU. With --run, and
where there are no such runs, it really runs two of the demo's arms with four seeds twice, without
the rule and with it, and measures the CPU-seconds of everything that was started.

Prints the ratio; the goal is that it is above 1 and that no verdict changes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from analysis.load import load_sweep
from analysis.results import Results, analyze
from analysis.runs import RunState, Sweep
from analysis.stop_check import check_stops
from analysis.stopping import find_stop
from harness.records.layout import outputs_root
from harness.records.model import StopRule
from harness.sweep.stop_rules import default_rules

DEMO = Path("sweeps/ipo_vs_icepop.yaml")
ARMS = ("none", "icepop")
SEEDS = [0, 1, 2, 3]


def check_outputs(folder: Path) -> bool:
    """Print what the rule would have done to finished runs; return whether the goal is met."""
    sweep = load_sweep(folder)
    rules = default_rules(sweep.plan.analysis)
    found = check_stops(sweep, rules)
    fired = sum(run.stop is not None for run in found.runs)
    came_back = sum(run.recovered for run in found.runs)
    whole, left = 3600 * found.hours, 3600 * (found.hours - found.saved_hours)
    print(f"{folder}: {_text(rules)} stops {fired} of {len(found.runs)} runs")
    print(f"runs that came back after their stop: {came_back} (goal: 0)")
    print(f"verdicts that change: {len(found.changed)} of {found.num_compared} (goal: 0)")
    print(f"CPU-seconds {whole:.0f} without the rule, {left:.0f} with it")
    print(f"ratio {whole / left:.2f} (goal: above 1)")
    return not found.changed and not came_back and whole > left


def run_both(folder: Path) -> bool:
    """Run a part of the demo without the rule and with it; return whether the goal is met."""
    plain_s, plain = _run(folder, "plain", "")
    ruled_s, ruled = _run(folder, "ruled", "stop_when: default\n")
    [rule] = rules = default_rules(plain.plan.analysis)
    stopped = [run for run in ruled.runs if run.state is RunState.STOPPED]
    print(f"{len(plain.runs)} runs: {_text(rules)} stopped {len(stopped)}")
    num_other = 0
    for run in stopped:
        assert run.stop is not None
        # Equal seeds give equal numbers, so the whole run says where its twin had to stop.
        twin = next(r for r in plain.runs if r.run_id == run.run_id)
        found = find_stop(twin.curves, rules, plain.plan.analysis, twin.planned.max_steps)
        num_other += found is None or (found.step, rule.text) != (run.stop.rule_step, run.stop.rule)
    print(f"stopped elsewhere than the whole run says: {num_other} (goal: 0)")
    before, after = _verdicts(analyze(plain)), _verdicts(analyze(ruled))
    changed = sum(before[key] != after[key] for key in before)
    print(f"verdicts that change: {changed} of {len(before)} (goal: 0)")
    print(f"CPU-seconds {plain_s:.0f} without the rule, {ruled_s:.0f} with it")
    print(f"ratio {plain_s / ruled_s:.2f} (goal: above 1)")
    return not changed and not num_other and bool(stopped) and plain_s > ruled_s


def _run(folder: Path, name: str, more: str) -> tuple[float, Sweep]:
    """Run the part of the demo; return the CPU-seconds of all processes, and the sweep."""
    path = folder / f"{name}.yaml"
    kept = [
        line
        for line in DEMO.read_text().splitlines()
        if not line.startswith("  ") or line.split(":")[0].strip() not in _other_arms()
    ]
    text = "\n".join(f"seeds: {SEEDS}" if line.startswith("seeds:") else line for line in kept)
    path.write_text(f"{text}\n{more}")
    env = {**os.environ, "HARNESS_OUTPUTS": str(folder / "outputs")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "harness", "run", str(path), "--no-report"]
    subprocess.run(command, check=True, env=env, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, load_sweep(folder / "outputs" / name)


def _other_arms() -> set[str]:
    return {"ipo", "ipo_0.1", "icepop", "kpop", "ipo_band", "none"} - set(ARMS)


def _verdicts(results: Results) -> dict[tuple[str, str], str]:
    return {(item.arm, item.name): str(item.verdict) for item in results.comparisons}


def _text(rules: tuple[StopRule, ...]) -> str:
    return " or ".join(rule.text for rule in rules)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="really run a part of the demo, twice")
    arguments = parser.parse_args()
    demo = outputs_root() / DEMO.stem
    if (demo / "plan.json").is_file() and not arguments.run:
        is_met = check_outputs(demo)
    else:
        with tempfile.TemporaryDirectory() as folder:
            is_met = run_both(Path(folder))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
