"""What the verdicts of whole sweeps are worth: python tests/benchmarks/validity.py [--short]

SYNTHETIC STAND-IN: curves are drawn, no training happens. Sweeps whose arms are all alike (null
sweeps) count false verdicts of better, worse or collapsed; sweeps with a planted effect count what
is found. Every number comes from seeded generators. A share that must not exceed a level may do so
by what a binomial count of that many sweeps at the level itself exceeds with a probability of
0.001; the goal of each row states it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import signal, stats

from analysis.comparison import compare_arms
from analysis.curve import Curve, FloatArray
from analysis.runs import Run, RunState
from analysis.statistics import minimum_detectable, welch_detectable
from analysis.summary import summarize_arm, summarize_run
from analysis.verdicts import Comparison, Verdict
from analysis.windows import final_window, last_judged_step
from harness.records.model import AnalysisSpec, PlannedRun
from tests.benchmarks.events.validity import rows as event_rows

Row = tuple[str, str, str, bool]
"""What was measured, the measurement, its goal, and whether that is met."""

NUM_STEPS = 60
STEPS = np.arange(1, NUM_STEPS + 1)
BASELINE = (1, 20)
SPEC = AnalysisSpec(
    last_steps=20, baseline_steps=BASELINE, collapse_window=10, margin=1e-6, alpha=0.05
)
LEVEL, LOG_KL = 0.6, math.log(1e-3)
SEED_SD, STEP_SD = 0.01, 0.02
"""Of the solve rate: between seeds, and of single steps; ten times as much on the log of the KL."""
SHARED = 0.5
"""Share of the variance between seeds that arms share, as runs of equal seed do."""
CLAIMS = (Verdict.BETTER, Verdict.WORSE, Verdict.COLLAPSED)
COLLAPSED_LEVEL, COLLAPSED_KL = 0.05, 50.0
SLACK = 1e-3


@dataclass(frozen=True)
class Recipe:
    """How the sweeps of one row are drawn.

    Attributes:
        phi: of the AR(1) noise within a run.
        noise: between seeds: "normal" or "t5" (of equal variance).
        collapse: probability of a collapse by arm; the last is repeated.
        explosion: probability that the mismatch KL alone explodes.
        onsets: steps that a collapse or an explosion begins at, both inclusive.
        shift: added to the solve rate of every arm but the baseline.
    """

    num_arms: int
    num_seeds: int
    phi: float = 0.5
    noise: str = "normal"
    pairing: str = "seed"
    collapse: tuple[float, ...] = (0.0,)
    explosion: float = 0.0
    onsets: tuple[int, int] = (BASELINE[1] + 1, NUM_STEPS)
    shift: float = 0.0


def draw_curves(recipe: Recipe, num_sweeps: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return solve rates and mismatch KL, [num_sweeps, num_arms, num_seeds, NUM_STEPS] each."""
    generator = np.random.default_rng([seed, recipe.num_arms, recipe.num_seeds])
    shape = (num_sweeps, recipe.num_arms, recipe.num_seeds)
    found = []
    for _ in range(2):
        shared = _seed_noise(generator, recipe.noise, (num_sweeps, 1, recipe.num_seeds))
        own = _seed_noise(generator, recipe.noise, shape)
        seeds = SEED_SD * (math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * own)
        steps = STEP_SD * _ar1(generator, recipe.phi, (*shape, NUM_STEPS))
        found.append(seeds[..., np.newaxis] + steps)
    rates, kls = LEVEL + found[0], np.exp(LOG_KL + 10 * found[1])
    rates[:, 1:] += recipe.shift
    padding = (recipe.collapse[-1],) * recipe.num_arms
    chances = np.array((*recipe.collapse, *padding)[: recipe.num_arms])
    is_collapsed = generator.random(shape) < chances[:, np.newaxis]
    onsets = generator.integers(recipe.onsets[0], recipe.onsets[1] + 1, size=shape)
    after = is_collapsed[..., np.newaxis] & (onsets[..., np.newaxis] <= STEPS)
    is_exploded = generator.random(shape) < recipe.explosion
    explodes = after | (is_exploded[..., np.newaxis] & (onsets[..., np.newaxis] <= STEPS))
    return np.where(after, COLLAPSED_LEVEL * rates, rates), np.where(
        explodes, COLLAPSED_KL * kls, kls
    )


def compare_sweep(
    rates: FloatArray, kls: FloatArray, pairing: str, spec: AnalysisSpec
) -> list[Comparison]:
    """Return the comparisons of one sweep, `rates` and `kls` by arm, seed and step."""
    runs = [
        [
            Run(
                PlannedRun(f"arm_{arm}", seed, "synthetic stand-in", NUM_STEPS),
                RunState.DONE,
                curves={
                    "solve_rate": Curve(STEPS, rates[arm, seed]),
                    "mismatch_kl": Curve(STEPS, kls[arm, seed]),
                },
            )
            for seed in range(rates.shape[1])
        ]
        for arm in range(rates.shape[0])
    ]
    everything = [run for of_arm in runs for run in of_arm]
    window, judged_to = final_window(everything, spec.last_steps), last_judged_step(everything)
    arms = [
        summarize_arm(
            of_arm[0].arm,
            [summarize_run(run, window, spec, judged_to=judged_to) for run in of_arm],
            spec.alpha,
        )
        for of_arm in runs
    ]
    return compare_arms(arms, "arm_0", pairing=pairing, spec=spec)


def run_sweeps(
    recipe: Recipe, num_sweeps: int, seed: int, spec: AnalysisSpec = SPEC
) -> list[list[Comparison]]:
    """Return the comparisons of `num_sweeps` sweeps drawn after `recipe`."""
    rates, kls = draw_curves(recipe, num_sweeps, seed)
    return [
        compare_sweep(rates[place], kls[place], recipe.pairing, spec) for place in range(num_sweeps)
    ]


def null_rows(*, short: bool) -> list[Row]:
    """Null sweeps: false verdicts, and the coverage of the intervals."""
    kinds = {
        "normal": {"noise": "normal"},
        "t5": {"noise": "t5"},
        "collapse 0.3": {"collapse": (0.3,)},
        "collapse 0.5": {"collapse": (0.5,)},
        "explosion 0.5": {"explosion": 0.5},
    }
    phis = (0.0, 0.5, 0.9, 0.98)
    rows: list[Row] = []
    covered: dict[int, list[bool]] = {n: [] for n in ((3, 5, 10) if short else (3, 4, 5, 8, 10))}
    place = 0
    for num_arms, num_sweeps in ((2, 40 if short else 400), (6, 12 if short else 80)):
        for label, options in kinds.items():
            false, total = 0, 0
            for num_seeds in (3, 5) if short and num_arms > 2 else covered:
                for pairing in ("seed", "none"):
                    phi = phis[place % len(phis)]
                    place += 1
                    recipe = Recipe(num_arms, num_seeds, phi=phi, pairing=pairing, **options)  # type: ignore[arg-type]
                    sweeps = run_sweeps(recipe, num_sweeps // 2, 1000 + place)
                    false += sum(_has_claim(sweep) for sweep in sweeps)
                    total += len(sweeps)
                    covered[num_seeds] += [
                        item.low <= item.no_effect <= item.high
                        for sweep in sweeps
                        for item in sweep
                        if item.scale != "share" and item.low is not None and item.high is not None
                    ]
            what = f"false verdicts, {num_arms} arms, 3 to 10 seeds, {label}"
            rows.append(_at_most(what, false, total, SPEC.alpha))
    for num_seeds, flags in covered.items():
        rows.append(
            _at_least(f"interval coverage, {num_seeds} seeds", sum(flags), len(flags), 0.93)
        )
    for num_seeds in (1, 2):
        claims, total = 0, 0
        for pairing in ("seed", "none"):
            for collapse in (0.0, 0.5):
                recipe = Recipe(6, num_seeds, pairing=pairing, collapse=(collapse,), shift=0.2)
                sweeps = run_sweeps(recipe, 10 if short else 100, 77)
                claims += sum(_has_claim(sweep) for sweep in sweeps)
                total += len(sweeps)
        what = f"verdicts of superiority from {num_seeds} seed{'s' if num_seeds > 1 else ''}"
        rows.append((what, f"{claims} of {total} sweeps", "0", claims == 0))
    return rows


def width_rows(*, short: bool) -> list[Row]:
    """Widths of intervals against SciPy's form of the declared test on the same window means."""
    rows: list[Row] = []
    for pairing in ("seed", "none"):
        for num_seeds in (3, 5, 10):
            recipe = Recipe(2, num_seeds, pairing=pairing)
            num_sweeps = 10 if short else 200
            rates, kls = draw_curves(recipe, num_sweeps, 5)
            ratios = []
            for place in range(num_sweeps):
                [found] = [
                    item
                    for item in compare_sweep(rates[place], kls[place], pairing, SPEC)
                    if item.name == "solve_rate"
                ]
                base, arm = rates[place][..., -SPEC.last_steps :].mean(axis=-1)
                exact = (
                    stats.ttest_rel(arm, base)
                    if pairing == "seed"
                    else stats.ttest_ind(arm, base, equal_var=False)
                ).confidence_interval(1 - SPEC.alpha)
                assert found.low is not None
                assert found.high is not None
                ratios.append((found.high - found.low) / (exact.high - exact.low))
            off = max(abs(ratio - 1) for ratio in ratios)
            test = "paired t" if pairing == "seed" else "Welch t"
            what = f"interval width, {test}, {num_seeds} seeds"
            rows.append((what, f"off by {100 * off:.2g} % at most", "within 5 %", off <= 0.05))
    return rows


def power_rows(*, short: bool) -> list[Row]:
    """Planted effects of the size that the MDE promises to find, and planted collapses."""
    rows: list[Row] = []
    num_sweeps = 120 if short else 1000
    for pairing in ("seed", "none"):
        for num_seeds in (3, 5, 10):
            phi = 0.5
            shift = _planted_shift(pairing, num_seeds, phi, num_tests=4)
            recipe = Recipe(2, num_seeds, phi=phi, pairing=pairing, shift=shift)
            sweeps = run_sweeps(recipe, num_sweeps, 11)
            found = sum(
                item.verdict is Verdict.BETTER
                for sweep in sweeps
                for item in sweep
                if item.name == "solve_rate"
            )
            power = found / num_sweeps
            slack = 0.05 + (3 * math.sqrt(0.16 / num_sweeps) if short else 0.0)
            test = "paired t" if pairing == "seed" else "Welch t"
            rows.append(
                (
                    f"power at the MDE, {test}, {num_seeds} seeds",
                    f"{power:.3f} of {num_sweeps} sweeps",
                    f"0.80 within {slack:.3f}",
                    abs(power - 0.8) <= slack,
                )
            )
    for num_arms, num_seeds in ((2, 5), (6, 7)):
        num_sweeps = 20 if short else 200
        recipe = Recipe(num_arms, num_seeds, collapse=(0.0, 1.0, 0.0), onsets=(24, 35), phi=0.9)
        sweeps = run_sweeps(recipe, num_sweeps, 13)
        found = sum(
            item.verdict is Verdict.COLLAPSED
            for sweep in sweeps
            for item in sweep
            if item.arm == "arm_1" and item.name == "solve_rate"
        )
        what = f"planted collapses, {num_arms} arms, {num_seeds} seeds"
        rows.append(_at_least(what, found, num_sweeps, 0.95))
    return rows


def equivalence_rows(*, short: bool) -> list[Row]:
    """False equivalence: a true difference of exactly the margin."""
    margin, num_sweeps = 0.03, 150 if short else 1000
    spec = AnalysisSpec(**{**SPEC.__dict__, "margin": margin})
    sweeps = run_sweeps(Recipe(2, 10, shift=margin), num_sweeps, 17, spec)
    false = sum(i.verdict is Verdict.EQUIVALENT for sweep in sweeps for i in sweep)
    return [_at_most("false equivalence at the margin, 10 seeds", false, num_sweeps, spec.alpha)]


def rows(*, short: bool) -> list[Row]:
    """Return every row of this benchmark."""
    return [
        *null_rows(short=short),
        *width_rows(short=short),
        *power_rows(short=short),
        *equivalence_rows(short=short),
    ]


def print_rows(found: Sequence[Row]) -> None:
    """Print `found` as a table."""
    width = max(len(row[0]) for row in found)
    for what, measured, goal, is_ok in found:
        print(f"{what:<{width}}  {measured:<28}  {goal:<42}  {'ok' if is_ok else 'MISSED'}")


def _has_claim(sweep: Sequence[Comparison]) -> bool:
    return any(item.verdict in CLAIMS for item in sweep)


def _planted_shift(pairing: str, num_seeds: int, phi: float, *, num_tests: int) -> float:
    """Return the MDE of the solve rate that the true spread gives, with no other test rejected."""
    lags = np.arange(1, SPEC.last_steps)
    of_steps = (
        STEP_SD**2
        / SPEC.last_steps
        * (1 + 2 * float(np.sum((1 - lags / SPEC.last_steps) * phi**lags)))
    )
    alpha = SPEC.alpha / num_tests
    if pairing == "seed":
        variance = 2 * ((1 - SHARED) * SEED_SD**2 + of_steps)
        return minimum_detectable(math.sqrt(variance / num_seeds), num_seeds - 1, alpha)
    side = (math.sqrt((SEED_SD**2 + of_steps) / num_seeds), num_seeds - 1)
    return welch_detectable(side, side, alpha)


def _seed_noise(generator: np.random.Generator, noise: str, shape: tuple[int, ...]) -> FloatArray:
    if noise == "t5":
        return generator.standard_t(5, shape) * math.sqrt(3 / 5)
    return generator.standard_normal(shape)


def _ar1(generator: np.random.Generator, phi: float, shape: tuple[int, ...]) -> FloatArray:
    """Return stationary AR(1) noise of variance 1 along the last axis."""
    noise = generator.standard_normal(shape)
    noise[..., 1:] *= math.sqrt(1 - phi**2)
    found: FloatArray = signal.lfilter([1.0], [1.0, -phi], noise, axis=-1)
    return found


def _at_most(what: str, count: int, total: int, level: float) -> Row:
    bound = int(stats.binom.isf(SLACK, total, level))
    goal = f"<= {100 * level:g} % (with its count: <= {100 * bound / total:.1f} %)"
    return what, f"{100 * count / total:.2f} % of {total}", goal, count <= bound


def _at_least(what: str, count: int, total: int, level: float) -> Row:
    bound = int(stats.binom.ppf(SLACK, total, level))
    goal = f">= {100 * level:g} % (with its count: >= {100 * bound / total:.1f} %)"
    return what, f"{100 * count / total:.2f} % of {total}", goal, count >= bound


def main() -> int:
    """Print both benchmarks; exit 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="few sweeps, in about a minute")
    options = parser.parse_args()
    start = time.perf_counter()
    found = [*rows(short=options.short), *event_rows(short=options.short)]
    print_rows(found)
    print(f"{time.perf_counter() - start:.0f} s")
    return 0 if all(is_ok for *_, is_ok in found) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
