from __future__ import annotations

import math

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.series import RunSeries, first_steps, live_curves, superseded
from analysis.sources import NO_ATTEMPT, KeySeries
from analysis.table import COLUMNS, build_table, clock, curves, superseded_steps


def series(
    steps: list[int],
    values: list[float] | None = None,
    attempts: list[int] | None = None,
    times: list[float] | None = None,
) -> KeySeries:
    return KeySeries(
        np.array(steps, dtype=np.int64),
        np.array(values if values is not None else [float(s) for s in steps]),
        np.array(attempts or [NO_ATTEMPT] * len(steps), dtype=np.int64),
        np.array(times if times is not None else [math.nan] * len(steps)),
    )


def test_rows_from_the_start_of_the_next_attempt_on_are_superseded() -> None:
    found = series([1, 2, 3, 4, 3, 4], attempts=[1, 1, 1, 1, 2, 2])
    starts = first_steps(found.steps, found.attempts)
    assert starts == {1: 1, 2: 3}
    assert superseded(found, starts).tolist() == [False, False, True, True, False, False]


def test_a_later_attempt_supersedes_steps_that_it_has_not_reached() -> None:
    found = series([1, 2, 3, 4, 5, 2], attempts=[1, 1, 1, 1, 1, 2])
    gone = superseded(found, first_steps(found.steps, found.attempts))
    assert found.steps[~gone].tolist() == [1, 2]
    assert found.attempts[~gone].tolist() == [1, 2]


def test_a_key_that_the_newer_attempt_never_logged_is_superseded_too() -> None:
    old_key = series([10, 20, 30], attempts=[1, 1, 1])
    assert superseded(old_key, {1: 1, 2: 15}).tolist() == [False, True, True]


def test_a_third_attempt_that_starts_earlier_supersedes_the_second() -> None:
    found = series([1, 2, 3, 3, 4, 2], attempts=[1, 1, 1, 2, 2, 3])
    gone = superseded(found, first_steps(found.steps, found.attempts))
    assert list(zip(found.steps[~gone], found.attempts[~gone], strict=True)) == [(1, 1), (2, 3)]


def test_without_attempts_a_repeated_step_marks_a_resume() -> None:
    found = series([1, 2, 3, 4, 2, 3], times=[1, 2, 3, 4, 5, 6])
    assert superseded(found, {}).tolist() == [False, True, True, True, False, False]


def test_a_single_row_that_comes_again_while_the_run_goes_on_replaces_only_its_own_step() -> None:
    found = series([1, 2, 3, 4, 2, 5, 6])
    assert superseded(found, {}).tolist() == [False, True, *[False] * 5]
    resumed = series([1, 2, 3, 4, 2, 3, 5])
    assert superseded(resumed, {}).tolist() == [False, True, True, True, False, False, False]
    cut_off = series([1, 2, 3, 4, 2])
    assert superseded(cut_off, {}).tolist() == [False, True, True, True, False]


def test_the_newest_time_wins_whatever_the_order_in_the_file() -> None:
    found = series([5, 5], values=[0.1, 0.2], times=[9.0, 8.0])
    assert superseded(found, {}).tolist() == [False, True]


def test_steps_out_of_order_without_a_repeat_all_count() -> None:
    assert not superseded(series([3, 1, 2]), {}).any()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), min_size=1, max_size=40))
def test_what_is_left_has_every_step_at_most_once(rows: list[tuple[int, int]]) -> None:
    found = series([step for step, _ in rows], attempts=[attempt for _, attempt in rows])
    gone = superseded(found, first_steps(found.steps, found.attempts))
    left = found.steps[~gone]
    assert len(set(left.tolist())) == len(left)
    assert not gone.all()


def test_the_table_keeps_every_value_with_its_flag() -> None:
    run = RunSeries(
        "ipo",
        3,
        {"mismatch_kl": series([1, 2, 2, 3], [0.1, 0.2, math.inf, 0.4], [1, 1, 2, 2])},
        {1: 1, 2: 2},
    )
    table = build_table([run])
    assert tuple(table.columns) == COLUMNS
    assert table["flag"].tolist() == ["ok", "superseded", "nonfinite", "ok"]
    assert table["step"].tolist() == [1, 2, 2, 3]
    assert set(table["arm"]) == {"ipo"}
    assert superseded_steps(table) == {("ipo", 3): 1}


def test_curves_hold_live_values_only_and_fill_nothing_in() -> None:
    run = RunSeries("ipo", 0, {"entropy": series([1, 5, 5], [0.1, 0.2, 0.3], [1, 1, 2])}, {2: 5})
    found = curves(build_table([run]))[("ipo", 0, "entropy")]
    assert found.steps.tolist() == [1, 5]
    assert found.values.tolist() == [0.1, 0.3]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.floats(0, 1)), max_size=30),
    st.booleans(),
)
def test_live_curves_are_those_of_the_table(
    rows: list[tuple[int, int, float]], has_attempts: bool
) -> None:
    steps = [step for step, _, _ in rows]
    attempts = [attempt for _, attempt, _ in rows]
    values = [value for _, _, value in rows]
    found = series(steps, values, attempts if has_attempts else [NO_ATTEMPT] * len(rows))
    starts = first_steps(found.steps, found.attempts)
    run = RunSeries("ipo", 0, {"loss": found}, starts)
    expected = curves(build_table([run]))
    assert [
        (name, c.steps.tolist(), c.values.tolist()) for name, c in live_curves(run).items()
    ] == [(name, c.steps.tolist(), c.values.tolist()) for (_, _, name), c in expected.items()]


def test_no_runs_give_an_empty_table_with_all_columns() -> None:
    table = build_table([])
    assert tuple(table.columns) == COLUMNS
    assert curves(table) == {}
    assert superseded_steps(table) == {}


def kinds(table: pd.DataFrame, metric: str) -> list[tuple[int, str]]:
    rows = table[table["metric"] == metric]
    return list(zip(rows["step"].tolist(), rows["flag"].tolist(), strict=True))


def test_a_metric_that_was_due_is_a_gap_where_it_comes_back_and_vanished_where_it_does_not() -> (
    None
):
    run = RunSeries(
        "ipo",
        0,
        {"entropy": series([1, 2, 3, 4, 5, 6, 7]), "mismatch_kl": series([1, 2, 3, 5])},
        {},
    )
    table = build_table([run])
    assert kinds(table, "mismatch_kl") == [
        (1, "ok"),
        (2, "ok"),
        (3, "ok"),
        (4, "gap"),
        (5, "ok"),
        (6, "vanished"),
        (7, "vanished"),
    ]
    assert table["value"].isna().sum() == 3
    assert curves(table)[("ipo", 0, "mismatch_kl")].steps.tolist() == [1, 2, 3, 5]


def test_a_metric_that_is_logged_every_other_step_has_no_gaps() -> None:
    run = RunSeries(
        "ipo", 0, {"entropy": series(list(range(1, 13))), "loss": series([1, 3, 5, 7, 9, 11])}, {}
    )
    assert {flag for _, flag in kinds(build_table([run]), "loss")} == {"ok"}


def test_the_orchestrator_running_ahead_makes_no_gap_in_the_trainer_s_metrics() -> None:
    run = RunSeries("ipo", 0, {"entropy": series([1, 2]), "solve_rate": series([1, 2, 3, 4])}, {})
    assert set(build_table([run])["flag"]) == {"ok"}


def test_a_step_without_a_token_to_train_on_is_no_gap() -> None:
    run = RunSeries(
        "ipo",
        0,
        {"tokens": series([1, 2, 3, 4], [10.0, 20.0, 20.0, 30.0]), "entropy": series([1, 2, 4])},
        {},
    )
    assert set(build_table([run])["flag"]) == {"ok"}


def test_the_clock_counts_seconds_of_work_and_not_the_wait_between_attempts() -> None:
    run = RunSeries(
        "ipo",
        0,
        {"loss": series([1, 2, 3, 3, 4], attempts=[1, 1, 1, 2, 2], times=[10, 12, 14, 100, 103])},
        {1: 1, 2: 3},
    )
    found = clock(run)
    assert found.steps.tolist() == [1, 2, 3, 4]
    assert found.values.tolist() == [0.0, 2.0, 2.0, 5.0]
