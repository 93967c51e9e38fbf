"""What all tests share."""

from __future__ import annotations

import os

import pytest

# No test reads or leaves parsed metrics in the cache of whoever runs it; tests of the cache name
# folders of their own.
os.environ["HARNESS_CACHE_DIR"] = "off"

NO_SLURM = "Skipped: no SLURM: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that this machine couldn't run, by reason."""
    counts: dict[str, int] = {}
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith(NO_SLURM):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            counts[reason] = counts.get(reason, 0) + 1
    for reason, count in counts.items():
        terminalreporter.write_line(f"{count} tests skipped: {reason}", yellow=True)
