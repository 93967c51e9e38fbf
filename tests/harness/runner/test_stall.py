from __future__ import annotations

from harness.runner.stall import StallWatch


def test_stall_begins_when_the_limit_has_passed_without_a_new_step() -> None:
    watch = StallWatch(10.0, now=0.0)
    assert watch.update(9.0, None) is None
    assert watch.update(10.0, None) is None
    assert watch.update(11.0, None) == 11.0


def test_every_change_of_the_step_ends_the_silence() -> None:
    watch = StallWatch(10.0, now=0.0)
    assert watch.update(8.0, 50) is None
    assert watch.update(16.0, 50) is None
    assert watch.update(19.0, 50) == 11.0
    assert watch.update(20.0, 51) is None
    assert watch.update(29.0, 41) is None  # began again from a checkpoint
    assert watch.update(39.0, 41) is None
    assert watch.update(40.0, 41) == 11.0


def test_time_in_which_the_whole_job_was_suspended_does_not_count() -> None:
    watch = StallWatch(10.0, now=0.0)
    assert watch.update(8.0, 1) is None
    assert watch.update(3608.0, 1) is None
    assert watch.update(3617.0, 1) is None
    assert watch.update(3619.0, 1) == 11.0


def test_without_a_limit_nothing_is_a_stall() -> None:
    watch = StallWatch(None, now=0.0)
    for second in range(0, 10_000, 10):
        assert watch.update(float(second), 1) is None
