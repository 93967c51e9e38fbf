from __future__ import annotations

import pytest

from harness.slurm_time import read_minutes, show_minutes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("1", 1),
        ("3:59", 4),
        ("12:30", 13),
        ("30:00", 30),
        ("90:00", 90),
        ("0:01", 1),
        ("24:00:00", 1440),
        ("04:00:00", 240),
        ("4:00:01", 241),
        ("00:30:00", 30),
        ("100:00:00", 6000),
        ("1-00", 1440),
        ("1-12", 2160),
        ("2-12:30", 3630),
        ("1-00:00:00", 1440),
        ("2-12:00:59", 3601),
        ("0-00:00:30", 1),
        (" 24:00:00 ", 1440),
    ],
)
def test_forms_of_slurm_are_whole_minutes_seconds_rounded_up(text: str, minutes: int) -> None:
    assert read_minutes(text) == minutes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0:00",
        "00:00:00",
        "0-00",
        "-5",
        "1.5",
        "1h",
        "24h",
        "1:60",
        "1:60:00",
        "1:00:60",
        "1-24",
        "1-00:60",
        "1-",
        "-1:00",
        "1:2:3:4",
        "1-2-3",
        "UNLIMITED",
        "one",
        "99999999",
        "٣٠",
        "1 0",
    ],
)
def test_what_is_no_time_limit_is_none(text: str) -> None:
    assert read_minutes(text) is None


@pytest.mark.parametrize(
    ("minutes", "text"), [(1, "0:01:00"), (1439, "23:59:00"), (1440, "1-00:00:00")]
)
def test_minutes_are_shown_as_slurm_prints_them_and_read_back(minutes: int, text: str) -> None:
    assert show_minutes(minutes) == text
    assert read_minutes(text) == minutes
