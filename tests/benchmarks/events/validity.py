"""How often the event rules are wrong: python tests/benchmarks/events/validity.py [--short]

Runs are simulated in which nothing happens (AR(1) noise of every autocorrelation, normal and t5
innovations, short and long runs), and runs in which something does. Prints what was measured beside
its goal; exits with 1 where a goal is missed. All of it in a few minutes, `--short` in 30 s.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.signal import lfilter

from analysis.curve import Curve, FloatArray
from analysis.events import EventRules, EventState, RunEvents, find_run_events, first_difference

Row = tuple[str, str, str, bool]

AUTOCORRELATIONS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
TAILS = ("normal", "t5")
# Run length and baseline window.
DESIGNS = ((300, (1, 30)), (300, (10, 100)), (1300, (50, 300)))
EVENTS = ("exploded", "onset", "collapsed", "entropy_collapsed", "mask_silent", "mask_heavy")
FALSE_ALARM = 0.05
_BURN_IN = 400
_LOG_KL_SD = 0.3


def noise(phi: float, tail: str, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Return stationary AR(1) noise over the last axis, with standard deviation 1."""
    size = (shape[0], shape[1] + _BURN_IN)
    innovations = (
        rng.standard_normal(size) if tail == "normal" else rng.standard_t(5, size) / np.sqrt(5 / 3)
    )
    series = lfilter([np.sqrt(1 - phi**2)], [1.0, -phi], innovations, axis=-1)
    found: FloatArray = series[:, _BURN_IN:]
    return found


def null_runs(
    phi: float, tail: str, num_steps: int, num_runs: int, rng: np.random.Generator
) -> Iterator[dict[str, Curve]]:
    """Yield runs in which every metric fluctuates about its level and the mask takes nothing."""
    steps = np.arange(1, num_steps + 1)
    z = {name: noise(phi, tail, (num_runs, num_steps), rng) for name in ("kl", "solve", "entropy")}
    for i in range(num_runs):
        yield {
            "mismatch_kl": Curve(steps, 1e-3 * np.exp(_LOG_KL_SD * z["kl"][i])),
            "solve_rate": Curve(steps, np.clip(0.6 + 0.08 * z["solve"][i], 0, 1)),
            "entropy": Curve(steps, np.maximum(0.4 + 0.05 * z["entropy"][i], 0)),
            "grad_norm": Curve(steps, np.full(num_steps, 0.1)),
            "is_masked": Curve(steps, np.zeros(num_steps)),
        }


def reference_runs(num_runs: int, rng: np.random.Generator) -> Iterator[dict[str, Curve]]:
    """Yield runs of 1300 steps whose KL creeps up from step 1000 on and blows up from 1200 on, and
    whose solve rate collapses at 1200.

    log KL is AR(1) noise with phi 0.8 and standard deviation 0.3; the creep multiplies the KL by 4
    over its 200 steps, the blow-up by e every 20.
    """
    steps = np.arange(1, 1301)
    creep = np.log(4.0) * np.clip((steps - 1000) / 200, 0, 1)
    rise = creep + np.clip((steps - 1200) / 20, 0, None)
    fallen = np.where(steps < 1200, 0.8, 0.2)
    for z, y in zip(
        noise(0.8, "normal", (num_runs, 1300), rng),
        noise(0.8, "normal", (num_runs, 1300), rng),
        strict=True,
    ):
        yield {
            "mismatch_kl": Curve(steps, 1e-3 * np.exp(_LOG_KL_SD * z + rise)),
            "solve_rate": Curve(steps, np.clip(fallen + 0.05 * y, 0, 1)),
        }


def judge(curves: Mapping[str, Curve], baseline_steps: tuple[int, int]) -> RunEvents:
    """Return the events of a run that trained at every step."""
    steps = curves["mismatch_kl"].steps
    rules = EventRules(baseline_steps=baseline_steps, onset_false_alarm=FALSE_ALARM)
    return find_run_events(curves, steps, int(steps[-1]), rules)


def null_rows(num_runs: int, rng: np.random.Generator) -> list[Row]:
    """Return one row per event and design: the highest share of false alarms over all noises."""
    rows = []
    for num_steps, baseline_steps in DESIGNS:
        worst: Counter[str] = Counter()
        at: dict[str, str] = {}
        for phi in AUTOCORRELATIONS:
            for tail in TAILS:
                found: Counter[str] = Counter()
                runs = list(null_runs(phi, tail, num_steps, num_runs, rng))
                for run in runs:
                    events = judge(run, baseline_steps)
                    found.update(
                        name for name in EVENTS if getattr(events, name).state is EventState.YES
                    )
                # Each run against the next: pairs share runs, which leaves the share unbiased.
                for run, other in zip(runs, runs[1:] + runs[:1], strict=True):
                    difference = first_difference(
                        [run["mismatch_kl"]],
                        [other["mismatch_kl"]],
                        scale="ratio",
                        baseline_steps=baseline_steps,
                        false_alarm=FALSE_ALARM,
                    )
                    found["first difference"] += difference.state is EventState.YES
                for name, count in found.items():
                    if count > worst[name]:
                        worst[name], at[name] = count, f"phi {phi}, {tail}"
        window = f"{num_steps} steps, baseline {baseline_steps[0]}-{baseline_steps[1]}"
        for name in (*EVENTS, "first difference"):
            share = worst[name] / num_runs
            where = f" ({at[name]})" if name in at else ""
            # The worst of 12 shares lies above its own expectation by about two standard errors.
            allowed = FALSE_ALARM + 2.5 * np.sqrt(FALSE_ALARM * (1 - FALSE_ALARM) / num_runs)
            rows.append(
                (
                    f"false alarms, {name}, {window}",
                    f"{share:.1%} of {num_runs}{where}",
                    f"<= {FALSE_ALARM:.0%} (+ {allowed - FALSE_ALARM:.1%} of simulation error)",
                    bool(share <= allowed),
                )
            )
    return rows


def planted_rows(num_runs: int, rng: np.random.Generator) -> list[Row]:
    """Return what is found of planted events."""
    events = [judge(run, (50, 300)) for run in reference_runs(num_runs, rng)]
    onsets = [event.onset for event in events if event.onset.step is not None]
    misses = np.array([abs((onset.step or 0) - 1000) for onset in onsets])
    bounded = np.array([(onset.first or 0) <= 1000 <= (onset.last or 0) for onset in onsets])
    delays = np.array([(onset.last or 0) - 1000 for onset in onsets])
    explosions = [event.exploded.step for event in events if event.exploded.step is not None]
    collapses = np.array([event.collapsed.step is not None for event in events]).mean()
    within = (misses <= 60).mean()
    rows = [
        _at_least("reference scenario: onset found", len(onsets) / num_runs, 0.99),
        _at_least("reference scenario: onset within 60 steps of 1000", float(within), 0.8),
        _at_least("reference scenario: 1000 within the onset's bounds", float(bounded.mean()), 0.9),
        (
            "reference scenario: medians of onset's error, alarm, explosion",
            f"{np.median(misses):.0f} steps, step {1000 + np.median(delays):.0f}, "
            f"step {np.median(explosions):.0f}",
            "error <= 60",
            bool(np.median(misses) <= 60),
        ),
        _at_least("reference scenario: explosion found", len(explosions) / num_runs, 0.95),
        _at_least("planted collapses found", float(collapses), 0.95),
    ]

    exploded = onset = 0
    for run in null_runs(0.8, "normal", 1300, num_runs, rng):
        values = run["mismatch_kl"].values.copy()
        values[700] *= 50
        found = judge({"mismatch_kl": Curve(run["mismatch_kl"].steps, values)}, (50, 300))
        exploded += found.exploded.state is EventState.YES
        onset += found.onset.state is EventState.YES
    rows.append(_at_most("one 50x spike taken for an explosion", exploded / num_runs, 0.0))
    rows.append(_at_most("one 50x spike taken for an onset", onset / num_runs, 0.1))

    away = []
    runs = list(reference_runs(num_runs, rng))
    for run, other in zip(runs, null_runs(0.8, "normal", 1300, num_runs, rng), strict=True):
        difference = first_difference(
            [run["mismatch_kl"]],
            [other["mismatch_kl"]],
            scale="ratio",
            baseline_steps=(50, 300),
            false_alarm=FALSE_ALARM,
        )
        if difference.step is not None:
            away.append(abs(difference.step - 1000))
    rows.append(
        _at_least(
            "reference scenario against a calm run: difference found", len(away) / num_runs, 0.95
        )
    )
    rows.append(
        _at_least(
            "reference scenario against a calm run: begins within 100 steps of 1000",
            float((np.array(away) <= 100).mean()),
            0.9,
        )
    )
    return rows


def rows(*, short: bool) -> list[Row]:
    """Return (what, measured, goal, whether it is met), from seeded simulations."""
    rng = np.random.default_rng(7)
    num_runs = 100 if short else 1000
    return [*null_rows(num_runs, rng), *planted_rows(2 * num_runs, rng)]


def _at_least(what: str, share: float, goal: float) -> Row:
    return what, f"{share:.1%}", f">= {goal:.0%}", share >= goal


def _at_most(what: str, share: float, goal: float) -> Row:
    return what, f"{share:.1%}", f"<= {goal:.0%}", share <= goal


if __name__ == "__main__":
    table = rows(short="--short" in sys.argv[1:])
    width = max(len(row[0]) for row in table)
    for what, measured, goal, is_met in table:
        print(f"{what:{width}}  {measured}; goal {goal}{'' if is_met else '  MISSED'}")
    sys.exit(0 if all(row[-1] for row in table) else 1)
