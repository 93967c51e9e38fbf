"""Stall detection: a trainer that lives but logs no step any more."""

from __future__ import annotations

_GAP_S = 15.0
"""An update that comes this late was held up with the trainer: the time between doesn't count."""


class StallWatch:
    """Watches the newest step.

    Args:
        limit_s: seconds without a new step that make a stall; None for no limit.
        now: when the trainer was started, by any clock that `update` uses, too.
    """

    def __init__(self, limit_s: float | None, now: float) -> None:
        self._limit_s = limit_s
        self._moved_at = self._seen_at = now
        self._step: int | None = None

    def update(self, now: float, step: int | None) -> float | None:
        """Return for how long there has been no new step, once that is beyond the limit."""
        if now - self._seen_at > _GAP_S:
            self._moved_at += now - self._seen_at
        self._seen_at = now
        if step != self._step:
            self._step, self._moved_at = step, now
        silence_s = now - self._moved_at
        return silence_s if self._limit_s is not None and silence_s > self._limit_s else None
