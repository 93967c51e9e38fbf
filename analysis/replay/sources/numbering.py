"""Numbers for the sequences of a file whose rows name them in some way of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.replay.tokens import IntArray

_MAX_KEPT = 1 << 17


class SplitSequenceError(Exception):
    """A sequence goes on after others: `row` from 0 within the file."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Numbering:
    """Numbers sequences from 0 on, in the order of the rows.

    A sequence is a run of rows of one id and one step: trainers number anew at each step. The first
    ids are kept, so that they may stand in any order; after _MAX_KEPT of them they must grow, and
    memory doesn't.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._number = -1
        self._row = 0
        self._seen: set[tuple[int, int]] = set()
        self._largest: tuple[int, int] | None = None
        self._texts: dict[str, int] = {}

    def codes(self, texts: npt.NDArray[Any]) -> IntArray:
        """Return a number for each text, the same one in every call."""
        found = [self._texts.setdefault(text, len(self._texts)) for text in texts.tolist()]
        return np.array(found, dtype=np.int64)

    def number(self, ids: IntArray, steps: IntArray | None) -> IntArray:
        """Return the sequences of the next rows.

        Raises:
            SplitSequenceError: an id comes again after others.
        """
        if not len(ids):
            return ids
        at = np.zeros(len(ids), dtype=np.int64) if steps is None else steps
        changes = (ids[1:] != ids[:-1]) | (at[1:] != at[:-1])
        first = (int(at[0]), int(ids[0]))
        is_new = np.concatenate([[first != self._last], changes])
        starts = np.flatnonzero(is_new)
        self._check(at[starts], ids[starts], starts)
        # The first rows may go on with the last sequence; much faster than a running sum.
        starts = starts if is_new[0] else np.concatenate([[0], starts])
        first_number = self._number + int(is_new[0])
        found = np.arange(first_number, first_number + len(starts), dtype=np.int64)
        numbers = np.repeat(found, np.diff(starts, append=len(ids)))
        self._number = int(numbers[-1])
        self._last = (int(at[-1]), int(ids[-1]))
        self._row += len(ids)
        return numbers

    def _check(self, steps: IntArray, ids: IntArray, starts: IntArray) -> None:
        if len(self._seen) >= _MAX_KEPT and self._largest is not None:
            grows = (steps[1:] > steps[:-1]) | ((steps[1:] == steps[:-1]) & (ids[1:] > ids[:-1]))
            if grows.all() and (int(steps[0]), int(ids[0])) > self._largest:
                self._largest = (int(steps[-1]), int(ids[-1]))
                return
        for step, one, start in zip(steps.tolist(), ids.tolist(), starts.tolist(), strict=True):
            key = (step, one)
            is_full = len(self._seen) >= _MAX_KEPT
            is_larger = self._largest is None or key > self._largest
            # Of what isn't kept, only the largest is known.
            if key in self._seen or (is_full and not is_larger):
                raise SplitSequenceError(self._row + start)
            if not is_full:
                self._seen.add(key)
            if is_larger:
                self._largest = key
