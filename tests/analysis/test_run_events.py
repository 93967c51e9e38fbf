from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from analysis.curve import Curve
from analysis.events import (
    EventRules,
    EventState,
    Gap,
    RunEvents,
    find_run_events,
    find_spikes,
    metric_log,
)

YES, NO, UNDECIDABLE = EventState.YES, EventState.NO, EventState.UNDECIDABLE
RULES = EventRules(baseline_steps=(1, 40), collapse_window=10)
LAST = 200
RNG = np.random.default_rng(11)
NOISE = RNG.standard_normal(LAST)


def curve(values: dict[int, float]) -> Curve:
    return Curve(
        np.array(sorted(values), dtype=np.int64), np.array([values[s] for s in sorted(values)])
    )


def flat(level: float, first: int = 1, last: int = LAST) -> dict[int, float]:
    return dict.fromkeys(range(first, last + 1), level)


CALM_KL = {step: 1e-3 * math.exp(0.3 * NOISE[step - 1]) for step in range(1, LAST + 1)}
CALM = {
    "mismatch_kl": CALM_KL,
    "solve_rate": flat(0.8),
    "entropy": flat(0.5),
    "grad_norm": flat(0.1),
    "is_masked": flat(0.01),
}
RISEN_KL = {**CALM_KL, **flat(1.0, 120)}


def events(**changed: dict[int, float] | None) -> RunEvents:
    """Judge a calm run with some metrics replaced, or taken away with None."""
    return judge({**CALM, **changed}, RULES)


def judge(metrics: dict[str, dict[int, float] | None], rules: EventRules) -> RunEvents:
    curves = {name: curve(values) for name, values in metrics.items() if values is not None}
    return find_run_events(curves, np.arange(1, LAST + 1), LAST, rules)


def test_nothing_happens_in_a_calm_run() -> None:
    found = events()
    assert {
        event.state
        for event in (
            found.exploded,
            found.onset,
            found.collapsed,
            found.entropy_collapsed,
            found.mask_silent,
            found.mask_heavy,
        )
    } == {NO}
    assert (found.dips, found.nonfinite, found.vanished) == ((), {}, {})
    assert found.baseline_events == ()
    assert (found.spikes.count, found.spikes.first, found.spikes.reason) == (0, None, "")
    assert (found.kl_above_share, found.solve_rate_below_share) == (0.0, 0.0)


def test_a_run_without_metrics_is_undecidable_in_every_event() -> None:
    found = find_run_events({}, np.arange(1, 9), 8, RULES)
    assert {
        name: getattr(found, name).reason
        for name in ("exploded", "onset", "collapsed", "entropy_collapsed", "mask_silent")
    } == {
        "exploded": "mismatch KL is not logged",
        "onset": "mismatch KL is not logged",
        "collapsed": "solve rate is not logged",
        "entropy_collapsed": "entropy is not logged",
        "mask_silent": "the masked fraction is not logged",
    }
    assert found.mask_heavy.reason == "the masked fraction is not logged"
    assert found.spikes.reason == "gradient norm is not logged"
    assert not any(log.is_logged for log in found.logs.values())
    assert (found.kl_above_share, found.solve_rate_below_share) == (None, None)


def test_explosion_and_onset_are_two_events_of_one_rise() -> None:
    found = events(mismatch_kl=RISEN_KL)
    assert (found.exploded.step, found.onset.step) == (120, 120)
    assert found.onset.last is not None
    assert 120 <= found.onset.last <= 122
    assert found.kl_above_share == pytest.approx(81 / 160)


def test_a_baseline_too_short_to_calibrate_leaves_the_explosion_decided() -> None:
    rules = EventRules(baseline_steps=(9, 14), collapse_window=10)
    found = judge({**CALM, "mismatch_kl": RISEN_KL}, rules)
    assert (found.exploded.step, found.onset.state) == (120, UNDECIDABLE)
    assert "6 values is too short" in found.onset.reason


def test_a_dip_that_recovers_is_listed_and_is_no_collapse() -> None:
    found = events(solve_rate={**flat(0.8), **flat(0.2, 81, 100)})
    assert found.collapsed.state is NO
    # Windows of 10 steps: below 0.4 with at least 7 values of 0.2.
    (dip,) = found.dips
    assert (dip.first, dip.last, dip.lowest_step) == (87, 103, 90)
    assert dip.lowest == pytest.approx(0.2)
    assert found.solve_rate_below_share == pytest.approx(17 / 160)


def test_a_collapse_is_no_dip_and_a_dip_before_it_is_kept() -> None:
    found = events(solve_rate={**flat(0.8), **flat(0.2, 81, 100), **flat(0.2, 151)})
    assert found.collapsed.step == 157
    assert [dip.first for dip in found.dips] == [87]


def test_dips_less_than_a_window_apart_are_one() -> None:
    near = events(solve_rate={**flat(0.8), **flat(0.0, 81, 90), **flat(0.0, 98, 110)})
    far = events(solve_rate={**flat(0.8), **flat(0.0, 81, 90), **flat(0.0, 121, 130)})
    assert (len(near.dips), len(far.dips)) == (1, 2)


def test_entropy_collapses_below_its_own_share_of_the_baseline() -> None:
    # 0.2 x 0.5 = 0.1: from the 10th step of 0.05 on, means of 10 steps are below at 0.05.
    found = events(entropy={**flat(0.5), **flat(0.05, 101)})
    assert (found.entropy_collapsed.state, found.entropy_collapsed.step) == (YES, 109)
    assert found.entropy_collapsed.threshold == pytest.approx(0.1)
    assert events(entropy={**flat(0.5), **flat(0.11, 101)}).entropy_collapsed.state is NO
    assert events(entropy={**flat(0.5), **flat(0.0, 101, 140)}).entropy_collapsed.state is NO


def test_values_that_are_not_finite_are_counted_per_metric() -> None:
    found = events(entropy={**flat(0.5), 90: math.nan, 95: math.inf})
    assert found.nonfinite == {"entropy": (90, 2)}
    assert found.vanished == {}


def test_a_metric_that_stops_while_the_run_goes_on_has_vanished() -> None:
    found = events(entropy=flat(0.5, 1, 150))
    assert found.vanished == {"entropy": 150}
    assert found.logs["entropy"].gaps == ()


def test_a_gap_that_comes_back_is_a_gap_and_nothing_vanished() -> None:
    found = events(entropy={**flat(0.5, 1, 100), **flat(0.5, 131)})
    assert found.vanished == {}
    assert found.logs["entropy"].gaps == (Gap(101, 130),)


def test_a_metric_that_is_never_logged_has_not_vanished() -> None:
    found = events(entropy=None)
    assert found.vanished == {}
    assert not found.logs["entropy"].is_logged


def test_a_metric_vanishes_only_after_it_was_due_several_times() -> None:
    def vanished_after(last: int, every: int = 1) -> int | None:
        logged = curve(dict.fromkeys(range(1, last + 1, every), 0.5))
        log = metric_log(logged, np.arange(1, LAST + 1), last_reference_step=40, patience=3)
        return log.vanished_after

    assert vanished_after(198) is None
    assert vanished_after(197) == 197
    # Logged every 10 steps: 191 is followed by nothing that was due; 171 by 181, 191 and no third.
    assert vanished_after(191, every=10) is None
    assert vanished_after(171, every=10) is None
    assert vanished_after(161, every=10) == 161


def test_spikes_of_the_gradient_norm_are_counted_with_the_largest() -> None:
    found = events(grad_norm={**flat(0.1), 60: 2.5, 70: 5.0, 80: 2.0, 90: math.inf}).spikes
    assert (found.count, found.first, found.largest_step) == (2, 60, 70)
    assert found.largest == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [({}, "gradient norm is not logged"), (flat(0.0), "the baseline gradient norm is 0")],
)
def test_spikes_without_a_baseline_are_undecidable(values: dict[int, float], reason: str) -> None:
    assert find_spikes(curve(values), baseline_steps=(1, 40), factor=20.0).reason == reason


def test_a_mask_that_takes_nothing_while_the_kl_is_up_does_not_push_back() -> None:
    found = events(mismatch_kl=RISEN_KL, is_masked={**flat(0.01), **flat(0.0, 110)})
    assert (found.mask_silent.state, found.mask_silent.step) == (YES, found.exploded.step)


def test_a_mask_that_answers_the_rise_pushes_back() -> None:
    answering = {**flat(0.0), **flat(0.05, 150, 155)}
    found = events(mismatch_kl=RISEN_KL, is_masked=answering).mask_silent
    assert (found.state, found.step, found.last_step) == (NO, None, LAST)


def test_a_mask_is_judged_by_whole_windows_after_the_rise() -> None:
    # One step of 5e-4 is above the floor of 1e-4 alone, and below it within 10 steps.
    found = events(mismatch_kl=RISEN_KL, is_masked={**flat(0.0), 122: 5e-4}).mask_silent
    assert found.state is YES


def test_an_idle_mask_is_no_finding_while_the_kl_is_calm() -> None:
    assert events(is_masked=flat(0.0)).mask_silent.state is NO


def test_a_rise_just_before_the_end_leaves_the_mask_undecided() -> None:
    late = {**CALM_KL, **flat(1.0, 195)}
    found = events(mismatch_kl=late, is_masked=flat(0.0)).mask_silent
    assert found.state is UNDECIDABLE
    assert found.reason == "fewer than 10 steps with a masked fraction after the KL rose at 195"


def test_without_a_kl_nobody_knows_whether_the_mask_should_push_back() -> None:
    found = events(mismatch_kl=None).mask_silent
    assert found.state is UNDECIDABLE
    assert found.reason == "whether the KL rises is undecidable: mismatch KL is not logged"


def test_much_masking_with_falling_entropy_is_found() -> None:
    masked = {**flat(0.01), **flat(0.5, 101)}
    falling = {**flat(0.5), **flat(0.4, 121)}
    found = events(is_masked=masked, entropy=falling).mask_heavy
    # Means of 10 entropies are below 0.45 with at least 6 of 0.4.
    assert (found.state, found.step) == (YES, 126)
    assert events(is_masked=masked).mask_heavy.state is NO
    assert events(entropy=falling).mask_heavy.state is NO


def test_masking_and_falling_entropy_at_different_times_are_no_finding() -> None:
    found = events(
        is_masked={**flat(0.01), **flat(0.5, 60, 90)},
        entropy={**flat(0.5), **flat(0.4, 131)},
    )
    assert found.mask_heavy.state is NO


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"mismatch_kl": {**CALM_KL, **flat(1.0, 30)}}, ("explosion",)),
        ({"entropy": {**flat(0.5), 20: math.nan}}, ("non-finite",)),
        ({"solve_rate": {**flat(0.8), **flat(0.1, 21, 32)}}, ("dip",)),
        ({"grad_norm": {**flat(0.1), 20: 2.5}}, ("gradient spike",)),
        ({"mismatch_kl": {s: v for s, v in CALM_KL.items() if s != 20}}, ("non-finite",)),
        # Nothing of it lies in the window, or it is no event.
        ({"grad_norm": {**flat(0.1), 41: 2.5}}, ()),
        ({"entropy": {**flat(0.5), 41: math.nan}}, ()),
        ({"solve_rate": {**flat(0.8), **flat(0.1, 41, 60)}}, ()),
        ({"solve_rate": {step: min(0.8, 0.02 * step) for step in range(1, LAST + 1)}}, ()),
        ({"mismatch_kl": {s: v for s, v in CALM_KL.items() if s % 2}}, ()),
    ],
)
def test_an_event_in_the_baseline_window_is_named(
    changed: dict[str, dict[int, float]], expected: tuple[str, ...]
) -> None:
    assert events(**changed).baseline_events == expected


def test_the_module_needs_numpy_alone() -> None:
    code = (
        "import sys, analysis.events\n"
        "print(sorted({'scipy', 'pandas', 'matplotlib', 'harness', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_explosion_within_the_baseline_leaves_the_onset_undecided() -> None:
    found = events(mismatch_kl={**CALM_KL, **flat(1.0, 35)})
    assert (found.exploded.step, found.onset.state) == (35, UNDECIDABLE)
    assert found.onset.reason == "the baseline window holds an explosion, at step 35"


def test_windows_that_reach_into_the_baseline_are_no_heavy_masking() -> None:
    found = events(
        is_masked={**flat(0.01), **flat(0.5, 31, 41)}, entropy={**flat(0.5), **flat(0.3, 31, 41)}
    )
    assert found.mask_heavy.state is NO
