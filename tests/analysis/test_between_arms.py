from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

from analysis.curve import Curve, FloatArray
from analysis.events import Difference, EventState, first_difference

BASELINE = (1, 100)


def noise(seed: int, num_steps: int = 500) -> FloatArray:
    return 0.3 * np.random.default_rng(seed).standard_normal(num_steps)


def curve(values: FloatArray, first_step: int = 1) -> Curve:
    return Curve(np.arange(first_step, first_step + len(values)), values)


def kl(logs: FloatArray, first_step: int = 1) -> Curve:
    return curve(1e-3 * np.exp(logs), first_step)


def difference(
    arm: list[Curve],
    baseline: list[Curve],
    scale: Literal["ratio", "difference"] = "ratio",
    baseline_steps: tuple[int, int] = BASELINE,
) -> Difference:
    return first_difference(
        arm, baseline, scale=scale, baseline_steps=baseline_steps, false_alarm=0.05
    )


def test_arms_that_only_fluctuate_do_not_differ() -> None:
    found = difference([kl(noise(1))], [kl(noise(2))])
    assert (found.state, found.step, found.last_step) == (EventState.NO, None, 500)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_lasting_difference_is_bounded_in_either_direction(sign: int) -> None:
    logs = noise(1)
    logs[299:] += sign * 1.5
    found = difference([kl(logs)], [kl(noise(2))])
    assert found.state is EventState.YES
    assert found.step is not None
    assert abs(found.step - 300) <= 8
    assert found.is_higher is (sign > 0)
    assert found.last_equal is not None
    assert found.first_different is not None
    assert found.last_equal < 300 <= found.first_different < 312


def test_one_run_each_is_said_to_be_about_the_two_runs() -> None:
    reason = "one run each: this is about the two runs, not about their arms"
    found = difference([kl(noise(1))], [kl(noise(2))])
    assert (found.num_runs, found.reason) == ((1, 1), reason)
    found = difference([kl(noise(1)), kl(noise(3))], [kl(noise(2))])
    assert (found.num_runs, found.reason) == ((2, 1), "")


def test_what_seeds_share_cancels() -> None:
    # Both runs of a seed share waves of 5 sd; a difference of half of one is found all the same.
    waves = [3.0 * np.sin(np.arange(500) / 7 + seed) for seed in range(3)]
    late = np.where(np.arange(1, 501) >= 300, 1.0, 0.0)
    arm = [kl(wave + noise(seed) + late) for seed, wave in enumerate(waves)]
    baseline = [kl(wave + noise(seed + 10)) for seed, wave in enumerate(waves)]
    found = difference(arm, baseline)
    assert found.state is EventState.YES
    assert found.step is not None
    assert abs(found.step - 300) <= 3


def test_arms_that_differ_from_the_start_differ_before_the_first_compared_step() -> None:
    found = difference([kl(noise(1) + 2.0)], [kl(noise(2))])
    assert (found.state, found.last_equal, found.step) == (EventState.YES, 0, 1)


def test_the_first_unequal_step_of_identical_arms_is_exact() -> None:
    logs = noise(1)
    later = logs.copy()
    later[200:] += 1e-9
    found = difference([kl(later)], [kl(logs)])
    assert (found.state, found.identical_to) == (EventState.YES, 200)
    assert (found.last_equal, found.step, found.first_different) == (200, 201, 201)


def test_arms_that_are_identical_throughout_do_not_differ() -> None:
    found = difference([kl(noise(1))], [kl(noise(1))])
    assert (found.state, found.identical_to, found.last_step) == (EventState.NO, 500, 500)


def test_only_steps_that_all_runs_logged_are_compared() -> None:
    logs = noise(1)
    logs[450:] += 9.0
    found = difference([kl(logs)], [kl(noise(2, 400))])
    assert (found.state, found.last_step) == (EventState.NO, 400)


def test_solve_rates_are_compared_by_difference() -> None:
    solve = 0.7 + 0.1 * noise(1)
    solve[299:] -= 0.3
    found = difference([curve(solve)], [curve(0.7 + 0.1 * noise(2))], "difference")
    assert (found.state, found.step, found.is_higher) == (EventState.YES, 300, False)


def test_a_kl_that_is_not_finite_is_far_above_and_a_solve_rate_is_left_out() -> None:
    logs, solve = noise(1), 0.7 + 0.1 * noise(1)
    logs[299:] = math.nan
    solve[299:] = math.inf
    found = difference([kl(logs)], [kl(noise(2))])
    assert (found.state, found.is_higher) == (EventState.YES, True)
    assert found.first_different is not None
    assert 300 <= found.first_different <= 303
    found = difference([curve(solve)], [curve(0.7 + 0.1 * noise(2))], "difference")
    assert (found.state, found.last_step) == (EventState.NO, 299)


@pytest.mark.parametrize(
    ("arm", "baseline", "steps", "reason"),
    [
        (
            [],
            [kl(noise(1))],
            BASELINE,
            "there is no step at which every run of both arms logged it",
        ),
        (
            [kl(noise(1))],
            [kl(noise(2), first_step=501)],
            BASELINE,
            "there is no step at which every run of both arms logged it",
        ),
        (
            [kl(noise(1))],
            [kl(noise(2))],
            (9, 14),
            "a baseline of 6 values is too short to calibrate false alarms with; it takes 20",
        ),
        (
            [kl(noise(1, 100))],
            [kl(noise(2, 100))],
            BASELINE,
            "no step beyond the baseline window 1-100",
        ),
        ([kl(noise(1))], [kl(noise(1) - 0.5)], BASELINE, "the baseline does not fluctuate"),
    ],
)
def test_without_a_calibration_it_is_undecidable(
    arm: list[Curve], baseline: list[Curve], steps: tuple[int, int], reason: str
) -> None:
    found = difference(arm, baseline, baseline_steps=steps)
    assert (found.state, found.step, found.reason) == (EventState.UNDECIDABLE, None, reason)
