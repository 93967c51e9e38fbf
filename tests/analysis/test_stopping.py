"""Stop rules: where they fire, and that nothing that comes later matters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.curve import Curve
from analysis.events import (
    Event,
    EventState,
    find_collapse,
    find_entropy_collapse,
    find_explosion,
)
from analysis.series import trained_steps
from analysis.stopping import Firing, find_stop, metrics_of, why_blind
from harness.records.model import STOP_EVENTS, AnalysisSpec, StopRule

SPEC = AnalysisSpec(baseline_steps=(5, 12), collapse_window=4, explode_factor=10, explode_hold=2)
KL = StopRule(metric="mismatch_kl", above=0.5)
COLLAPSED = StopRule("collapsed")


def curve(values: Mapping[int, float]) -> Curve:
    return Curve(np.array(list(values), dtype=np.int64), np.array(list(values.values()), float))


def flat(value: float, first: int, last: int) -> dict[int, float]:
    return dict.fromkeys(range(first, last + 1), value)


def step_of(curves: Mapping[str, Curve], rule: StopRule, max_steps: int = 1000) -> int | None:
    found = find_stop(curves, [rule], SPEC, max_steps)
    return None if found is None else found.step


def up_to(curves: Mapping[str, Curve], step: int) -> dict[str, Curve]:
    cut = {name: found.up_to(step) for name, found in curves.items()}
    return {name: found for name, found in cut.items() if len(found)}


def test_a_predicate_holds_for_so_many_logged_values_in_a_row_after_its_step() -> None:
    kl = curve(flat(0.1, 1, 9) | {10: 0.6, 11: 0.1, 12: 0.6, 14: 0.6, 16: 0.7, 17: 0.8})
    curves = {"mismatch_kl": kl}
    assert step_of(curves, KL) == 10
    assert step_of(curves, replace(KL, hold_steps=3)) == 16
    assert step_of(curves, replace(KL, hold_steps=5)) is None
    assert step_of(curves, replace(KL, after_step=10)) == 12
    assert step_of(curves, replace(KL, hold_steps=2, after_step=12)) == 16
    assert step_of(curves, StopRule(metric="mismatch_kl", below=0.5)) == 1
    assert step_of(curves, StopRule(metric="mismatch_kl", above=0.65, below=0.75)) == 16
    assert step_of({}, KL) is None


def test_infinity_is_above_any_bound_and_nan_beyond_none() -> None:
    curves = {"mismatch_kl": curve({1: 0.1, 2: np.nan, 3: 0.6, 4: np.nan, 5: np.inf, 6: 0.6})}
    assert step_of(curves, replace(KL, hold_steps=2)) == 6
    assert step_of(curves, StopRule(metric="mismatch_kl", below=0.5, hold_steps=2)) is None


def test_a_collapse_fires_once_its_windows_have_lasted() -> None:
    values = flat(0.8, 1, 19) | flat(0.0, 20, 26) | flat(0.8, 27, 40) | flat(0.0, 41, 60)
    curves = {"solve_rate": curve(values)}
    # Means over 4 steps fall below 0.4 with the third step of 0, and rise with the second of 0.8.
    assert step_of(curves, COLLAPSED) == 22
    assert step_of(curves, replace(COLLAPSED, hold_steps=6)) == 27
    assert step_of(curves, replace(COLLAPSED, hold_steps=7)) == 49
    assert step_of(curves, replace(COLLAPSED, hold_steps=6, below=0.01)) == 48


def test_a_collapse_relates_to_the_runs_own_baseline() -> None:
    low = {"solve_rate": curve(flat(0.0, 1, 60))}
    late = {"solve_rate": curve(flat(0.8, 9, 19) | flat(0.0, 20, 60))}
    assert step_of(low, COLLAPSED) is None
    assert why_blind(low, COLLAPSED, SPEC) == "the baseline solve rate is 0"
    assert step_of(late, COLLAPSED) is None
    assert why_blind(late, COLLAPSED, SPEC) == (
        "solve rate begins at step 9, after the baseline window has begun"
    )


def test_an_explosion_lasts_for_the_longer_of_both_holds_and_may_need_a_level() -> None:
    kl = flat(0.001, 1, 20) | {21: 0.1} | flat(0.001, 22, 24) | flat(0.1, 25, 30) | flat(9, 31, 40)
    curves = {"mismatch_kl": curve(kl), "loss": curve(flat(1.0, 1, 40))}
    assert step_of(curves, StopRule("exploded")) == 26
    assert step_of(curves, StopRule("exploded", hold_steps=4)) == 28
    assert step_of(curves, StopRule("exploded", above=1.0)) == 32
    # A KL that is gone while the trainer goes on counts as above.
    gone = {"mismatch_kl": curve(flat(0.001, 1, 20)), "loss": curves["loss"]}
    assert step_of(gone, StopRule("exploded", above=1.0)) == 22


def test_an_explosion_within_the_baseline_window_is_known_after_it() -> None:
    kl = flat(0.001, 1, 5) | flat(0.1, 6, 8) | flat(0.001, 9, 30)
    assert step_of({"mismatch_kl": curve(kl)}, StopRule("exploded")) == 13


def test_a_value_that_is_not_finite_fires_at_once_and_a_missing_kl_after_a_while() -> None:
    loss = curve(flat(1.0, 1, 40))
    rule = StopRule("non_finite")
    for name in ("mismatch_kl", "loss", "grad_norm"):
        for bad in (np.nan, np.inf, -np.inf):
            curves = {"loss": loss, name: curve(flat(1.0, 1, 6) | {7: bad} | flat(1.0, 8, 40))}
            assert step_of(curves, rule) == 7
            assert step_of(curves, replace(rule, hold_steps=2)) is None
    missing = flat(1.0, 1, 20) | flat(1.0, 22, 25)
    assert step_of({"loss": loss, "mismatch_kl": curve(missing)}, rule) == 27
    assert step_of({"loss": loss, "mismatch_kl": curve(missing)}, replace(rule, hold_steps=6)) == 31
    # What is logged every fifth step isn't missing in between.
    sparse = curve(dict.fromkeys(range(1, 41, 5), 1.0))
    assert step_of({"loss": loss, "mismatch_kl": sparse}, rule) is None
    # A metric that the trainer doesn't log is not due.
    assert step_of({"loss": loss}, rule) is None


def test_an_entropy_collapse_has_a_fraction_of_its_own() -> None:
    values = flat(1.0, 1, 20) | flat(0.35, 21, 30) | flat(0.1, 31, 40)
    assert step_of({"entropy": curve(values)}, StopRule("entropy_collapsed")) == 33


def test_the_first_firing_before_the_last_step_counts() -> None:
    curves = {"mismatch_kl": curve(flat(0.1, 1, 9) | flat(0.6, 10, 20))}
    late, early = replace(KL, hold_steps=5), replace(KL, hold_steps=3)
    assert find_stop(curves, [late, early], SPEC, 1000) == Firing(early, 12)
    twin = StopRule(metric="mismatch_kl", above=0.4, hold_steps=3)
    assert find_stop(curves, [twin, early], SPEC, 1000) == Firing(twin, 12)
    assert find_stop(curves, [late, early], SPEC, 12) is None
    assert find_stop(curves, [], SPEC, 1000) is None


def test_a_fork_is_measured_by_its_parent_and_stopped_by_its_own_steps() -> None:
    kl = flat(0.001, 1, 15) | flat(0.1, 16, 18) | flat(0.001, 19, 25) | flat(0.1, 26, 40)
    rates = flat(0.8, 1, 15) | flat(0.0, 16, 40)
    curves = {"mismatch_kl": curve(kl), "solve_rate": curve(rates)}

    def after_fork(rule: StopRule) -> int | None:
        found = find_stop(curves, [rule], SPEC, 1000, fork_step=20)
        return None if found is None else found.step

    assert step_of(curves, StopRule("exploded")) == 17
    assert after_fork(StopRule("exploded")) == 27
    assert (step_of(curves, COLLAPSED), after_fork(COLLAPSED)) == (18, 21)
    assert after_fork(replace(COLLAPSED, hold_steps=5)) == 25
    assert after_fork(StopRule(metric="mismatch_kl", below=0.5, hold_steps=3)) == 23


def test_an_explosion_that_goes_on_from_the_parent_stops_no_fork() -> None:
    kl = flat(0.001, 1, 18) | flat(0.1, 19, 24) | flat(0.001, 25, 29) | flat(0.1, 30, 40)
    found = find_stop({"mismatch_kl": curve(kl)}, [StopRule("exploded")], SPEC, 1000, fork_step=20)
    assert found is not None
    assert found.step == 31
    still = curve(flat(0.001, 1, 18) | flat(0.1, 19, 40))
    assert (
        find_stop({"mismatch_kl": still}, [StopRule("exploded")], SPEC, 1000, fork_step=20) is None
    )


def test_blind_rules_say_which_metrics_they_lack() -> None:
    curves = {"loss": curve(flat(1.0, 1, 60))}
    assert why_blind(curves, KL, SPEC) == "`mismatch_kl` is not logged"
    assert why_blind(curves, COLLAPSED, SPEC) == "`solve_rate` is not logged"
    assert why_blind(curves, StopRule("non_finite"), SPEC) == ""
    assert why_blind({}, StopRule("non_finite"), SPEC) == (
        "`mismatch_kl` and `loss` and `grad_norm` are not logged"
    )
    assert {event for event in STOP_EVENTS if metrics_of(StopRule(event))} == set(STOP_EVENTS)


RULES = st.one_of(
    st.builds(StopRule, st.sampled_from(STOP_EVENTS), hold_steps=st.integers(1, 6)),
    st.builds(
        StopRule,
        metric=st.sampled_from(["mismatch_kl", "entropy"]),
        above=st.sampled_from([0.0, 0.5]),
        hold_steps=st.integers(1, 4),
        after_step=st.integers(0, 20),
    ),
    st.builds(StopRule, st.just("collapsed"), below=st.just(0.1), hold_steps=st.integers(1, 6)),
)
NAMES = ("mismatch_kl", "solve_rate", "entropy", "loss", "grad_norm", "tokens")
VALUES = st.sampled_from([0.0, 0.001, 0.002, 0.3, 0.6, 0.9, np.nan, np.inf])


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Curve]:
    """Curves of up to 40 steps with holes, late beginnings and values that aren't finite."""
    found = {}
    for name in draw(st.sets(st.sampled_from(NAMES))):
        every = draw(st.sampled_from([1, 1, 1, 2, 5]))
        steps = range(draw(st.integers(0, 9)), draw(st.integers(10, 40)), every)
        holes = draw(st.sets(st.sampled_from(steps), max_size=6))
        calm = draw(st.booleans())
        values = {
            step: 0.002 if calm and step < 14 else draw(VALUES)
            for step in steps
            if step not in holes
        }
        found[name] = curve(values)
    return found


@given(runs(), st.lists(RULES, max_size=3))
@settings(max_examples=150, deadline=None)
def test_a_rule_sees_only_what_was_known_at_its_step(
    curves: dict[str, Curve], rules: list[StopRule]
) -> None:
    """Looking after every step, after every third, or at the whole run names the same step."""
    whole = find_stop(curves, rules, SPEC, 1000)
    for step in range(42):
        online = find_stop(up_to(curves, step), rules, SPEC, 1000)
        assert online == (whole if whole is not None and step >= whole.step else None)


def judge(event: str, curves: Mapping[str, Curve], last_step: int) -> Event:
    """Return an event as the report judges a run with these curves."""
    if event == "exploded":
        return find_explosion(
            curves["mismatch_kl"],
            trained_steps(curves),
            baseline_steps=SPEC.baseline_steps,
            factor=SPEC.explode_factor,
            hold=SPEC.explode_hold,
        )
    find = find_collapse if event == "collapsed" else find_entropy_collapse
    is_collapse = event == "collapsed"
    return find(
        curves["solve_rate" if is_collapse else "entropy"],
        last_step,
        baseline_steps=SPEC.baseline_steps,
        window=SPEC.collapse_window,
        fraction=SPEC.collapse_fraction if is_collapse else SPEC.entropy_fraction,
    )


@given(runs())
@settings(max_examples=100, deadline=None)
def test_rules_without_a_hold_fire_where_the_report_would_see_the_event_first(
    curves: dict[str, Curve],
) -> None:
    for event in ("exploded", "collapsed", "entropy_collapsed"):
        expected = None
        for step in range(42):
            cut = up_to(curves, step)
            [name] = metrics_of(StopRule(event))
            if name not in cut or int(cut[name].steps[-1]) <= SPEC.baseline_steps[1]:
                continue
            # What the report says with all steps counts, but for how often a metric is logged.
            if cut[name].steps[0] > SPEC.baseline_steps[0] + 1:
                return
            if judge(event, cut, step).state is EventState.YES:
                expected = step
                break
        assert step_of(curves, StopRule(event)) == expected


def test_evaluating_rules_loads_no_pandas() -> None:
    script = (
        "import sys, analysis.stopping, analysis.live, analysis.sources.kinds;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert {"pandas", "torch", "matplotlib", "scipy", "hydra"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (StopRule("collapsed"), "collapsed"),
        (StopRule("collapsed", hold_steps=40), "collapsed:hold_steps=40"),
        (
            StopRule(metric="mismatch_kl", above=0.5, hold_steps=20, after_step=100),
            "mismatch_kl:above=0.5,hold_steps=20,after_step=100",
        ),
        (StopRule(metric="loss", above=-2.0, below=1e-6), "loss:above=-2,below=1e-06"),
    ],
)
def test_a_rule_is_one_word(rule: StopRule, text: str) -> None:
    assert rule.text == text
