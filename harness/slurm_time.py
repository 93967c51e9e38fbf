"""Time limits as SLURM writes them, in whole minutes."""

from __future__ import annotations

import re

MAX_MINUTES = 10_000_000
TIME_HINT = "write 24:00:00, 2-12:00:00 (days first), 30:00 (minutes:seconds) or whole minutes"
_FIELD = r"[0-9]{1,8}"
_FORMS = (
    re.compile(rf"(?P<minutes>{_FIELD})"),
    re.compile(rf"(?P<minutes>{_FIELD}):(?P<seconds>[0-5]?[0-9])"),
    re.compile(rf"(?P<hours>{_FIELD}):(?P<minutes>[0-5]?[0-9]):(?P<seconds>[0-5]?[0-9])"),
    re.compile(
        rf"(?P<days>{_FIELD})-(?P<hours>[01]?[0-9]|2[0-3])"
        r"(?::(?P<minutes>[0-5]?[0-9])(?::(?P<seconds>[0-5]?[0-9]))?)?"
    ),
)
"""`minutes`, `MM:SS`, `HH:MM:SS`, and `D-HH`, `D-HH:MM`, `D-HH:MM:SS`."""
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def read_minutes(text: str) -> int | None:
    """Return the minutes that `text` stands for, seconds rounded up; None where it is no time.

    SLURM reads two fields as minutes and seconds: `12:30` is thirteen minutes. A field may exceed
    its range only where it stands first. `UNLIMITED` and 0 are no times: without a limit there
    is no warning to save before, and no bound on what a plan takes.
    """
    for form in _FORMS:
        match = form.fullmatch(text.strip())
        if match is not None:
            fields = {name: value for name, value in match.groupdict().items() if value}
            seconds = sum(int(value) * _SECONDS[name] for name, value in fields.items())
            minutes = -(-seconds // 60)
            return minutes if 1 <= minutes <= MAX_MINUTES else None
    return None


def show_minutes(minutes: int) -> str:
    """Return `minutes` as SLURM prints them: `1:30:00`, `2-12:00:00`."""
    days, rest = divmod(minutes, 24 * 60)
    hours, rest = divmod(rest, 60)
    return f"{days}-{hours:02}:{rest:02}:00" if days else f"{hours}:{rest:02}:00"
