"""What a tracker is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Row = Mapping[str, float | int]
"""The metrics of one step by key; `step` among them. Every value is finite."""


class Tracker(Protocol):
    """Takes rows in the order of their steps."""

    def log(self, row: Row) -> None:
        """Record one row."""

    def close(self) -> None:
        """Record what is still pending. No row follows."""
