"""The short form of `tests/benchmarks/validity.py`: whole synthetic sweeps, judged as any other."""

from __future__ import annotations

import pytest

from tests.benchmarks.events.validity import rows as event_rows
from tests.benchmarks.validity import Row, equivalence_rows, null_rows, power_rows, width_rows


def missed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row[-1]]


@pytest.mark.slow
def test_null_sweeps_end_in_a_false_verdict_in_at_most_five_percent() -> None:
    assert missed(null_rows(short=True)) == []


def test_intervals_are_as_wide_as_the_declared_tests_own() -> None:
    assert missed(width_rows(short=True)) == []


@pytest.mark.slow
def test_planted_effects_and_collapses_are_found_as_promised() -> None:
    assert missed(power_rows(short=True)) == []


@pytest.mark.slow
def test_a_difference_of_the_margin_is_rarely_called_equivalent() -> None:
    assert missed(equivalence_rows(short=True)) == []


@pytest.mark.slow
def test_events_are_rarely_seen_where_nothing_happens_and_found_where_it_does() -> None:
    assert missed(event_rows(short=True)) == []
