"""From the words of a command line to values. Only argparse is loaded here."""

from __future__ import annotations

import argparse
import math

MAX_SEED_COUNT = 200
"""Most seeds per arm that `harness power` shows."""


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
    return share


def share_or_0(text: str) -> float:
    return 0.0 if text in ("0", "0.0") else share(text)


def power(text: str) -> float:
    try:
        power = float(text)
    except ValueError:
        power = math.nan
    if not 0.5 <= power <= 0.999:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.5 to 0.999")
    return power


def seed_counts(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, is_range, last = part.partition("-")
        ends = (first, last if is_range else first)
        if not all(end.strip().isdecimal() and len(end) < 5 for end in ends):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of seeds")
        found += range(int(ends[0]), int(ends[1]) + 1)
    if not found or min(found) < 2 or max(found) > MAX_SEED_COUNT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of numbers from 2 to {MAX_SEED_COUNT}"
        )
    return found


def seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours")
    return hours
