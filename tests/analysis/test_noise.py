from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.curve import Curve
from analysis.noise import SeedNoise, noise_interval, paired_noise, seed_noise
from analysis.runs import Run, RunState
from harness.records.model import AnalysisSpec, PlannedRun

SPEC = AnalysisSpec(last_steps=5)


def make_runs(
    arm: str, values: list[float], metric: str = "solve_rate", state: RunState = RunState.DONE
) -> list[Run]:
    steps = np.arange(1, 11)
    return [
        Run(
            PlannedRun(arm, seed, "id", 10),
            state,
            curves={metric: Curve(steps, np.where(steps > 5, value, 0.5))},
        )
        for seed, value in enumerate(values)
    ]


def test_noise_is_pooled_within_arms_by_degrees_of_freedom() -> None:
    # Variances 1 (df 2) and 4.5 (df 1): (2 + 4.5) / 3. The means of the arms don't matter.
    found = seed_noise(
        [make_runs("a", [1.0, 2.0, 3.0]), make_runs("b", [10.0, 13.0])],
        "solve_rate",
        SPEC,
        label="old",
    )
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt(6.5 / 3))
    assert (found.df, found.label) == (3, "old")


def test_noise_of_ratios_is_that_of_logs() -> None:
    found = seed_noise([make_runs("a", [1e-3, 1e-3 * math.e], "mismatch_kl")], "mismatch_kl", SPEC)
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt(0.5))


def test_single_and_unfinished_runs_tell_no_noise() -> None:
    lost = make_runs("b", [1.0, 2.0], state=RunState.FAILED)
    assert seed_noise([make_runs("a", [1.0]), lost], "solve_rate", SPEC) is None
    assert seed_noise([make_runs("a", [1.0, 2.0])], "entropy", SPEC) is None
    assert seed_noise([], "solve_rate", SPEC) is None


def test_the_interval_of_one_run_against_one() -> None:
    # t(0.975, 4) = 2.776445 (tables); between single runs the noise counts twice.
    low, high = noise_interval(0.3, SeedNoise(0.1, 4), 1, 1, 0.05)
    half = 2.776445 * 0.1 * math.sqrt(2)
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half), rel=1e-6)
    assert noise_interval(0.3, SeedNoise(0.0, 4), 1, 1, 0.05) == (0.3, 0.3)


def test_the_noise_of_two_arms_by_seed_is_the_spread_of_their_differences() -> None:
    # Differences 1, 2, 6: mean 3, variance (4 + 1 + 9) / 2. What seeds share drops out.
    arms = [make_runs("a", [11.0, 22.0, 36.0]), make_runs("b", [10.0, 20.0, 30.0])]
    found = paired_noise(arms, "solve_rate", SPEC, label="old")
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt(7.0))
    assert (found.df, found.label) == (2, "old")


def test_the_noise_by_seed_is_pooled_over_all_pairs_of_arms() -> None:
    values = {"a": [1.0, 2.0, 4.0], "b": [1.5, 2.0, 3.0], "c": [0.0, 2.0, 5.0]}
    arms = [make_runs(name, of_arm) for name, of_arm in values.items()]
    found = paired_noise(arms, "solve_rate", SPEC)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    variances = [np.var(np.subtract(values[one], values[other]), ddof=1) for one, other in pairs]
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt(np.mean(variances)))
    assert found.df == 4


def test_runs_without_a_partner_tell_no_noise_by_seed() -> None:
    two = make_runs("a", [11.0, 22.0, 36.0])
    assert paired_noise([two], "solve_rate", SPEC) is None
    assert paired_noise([two, make_runs("b", [10.0])], "solve_rate", SPEC) is None
    assert paired_noise([], "solve_rate", SPEC) is None
    lonely = paired_noise([two, make_runs("b", [10.0, 20.0])], "solve_rate", SPEC)
    assert lonely is not None
    assert lonely.sd == pytest.approx(math.sqrt(0.5))  # differences 1 and 2
    assert lonely.df == 1


def test_runs_that_differ_by_rounding_alone_have_no_noise() -> None:
    arms = [make_runs("a", [0.1, 0.3, 0.7]), make_runs("b", [0.2, 0.4, 0.8])]
    found = paired_noise(arms, "solve_rate", SPEC)
    assert found == SeedNoise(0.0, 2, "")
