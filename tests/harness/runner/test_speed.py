from __future__ import annotations

from harness.runner.record import Speed


def test_speed_is_unknown_until_the_step_has_moved() -> None:
    speed = Speed()
    assert speed.update(0.0, None) is None
    assert speed.update(1.0, 5) is None
    assert speed.update(2.0, 5) is None


def test_speed_of_an_even_run() -> None:
    speed = Speed()
    for second in range(10):
        last = speed.update(float(second), 4 * second)
    assert last == 4.0


def test_speed_forgets_what_is_older_than_its_window() -> None:
    speed = Speed()
    for second in range(100):
        speed.update(float(second), second)
    for second in range(100, 200):
        last = speed.update(float(second), 100 + 10 * (second - 100))
    assert last == 10.0


def test_slow_run_is_averaged_over_its_last_steps() -> None:
    speed = Speed()
    for step in range(8):
        last = speed.update(100.0 * step, step)
    assert last == 0.01


def test_silence_lowers_the_speed() -> None:
    speed = Speed()
    speed.update(0.0, 0)
    assert speed.update(1.0, 1) == 1.0
    assert speed.update(10.0, 1) == 0.1


def test_step_that_falls_back_starts_anew() -> None:
    speed = Speed()
    speed.update(0.0, 60)
    assert speed.update(1.0, 51) is None
    assert speed.update(2.0, 52) == 1.0
