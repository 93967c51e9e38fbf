"""Sums over whole sequences, from blocks that may cut them: what intervals are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.replay.block import Block
from analysis.replay.bootstrap import NUM_REPLICATES, poisson_weights
from analysis.replay.tokens import IntArray

_BATCH = 512
"""Sequences whose replicates are drawn at once: 4 MB of weights."""


@dataclass(frozen=True)
class _Open:
    """The sequence that the last block ended in.

    Attributes:
        masked: by rule, [num_rules].
        curves: of each curve, [num_thresholds].
    """

    number: int
    num_tokens: int
    masked: IntArray
    curves: tuple[IntArray, ...]


class ClusterSums:
    """Adds up squares and bootstrap replicates over sequences. Exact: all of it is integers.

    Attributes:
        num_sequences, squared_tokens: S and sum of n_i^2.
        squared, crossed: of each curve, sums of x_i^2 and x_i n_i, [num_thresholds].
        replicate_tokens, replicate_masked: [NUM_REPLICATES] and [num_rules, NUM_REPLICATES].
    """

    def __init__(self, num_rules: int, curve_lengths: Sequence[int], seed: int) -> None:
        self.num_sequences = 0
        self.squared_tokens = 0
        self.squared = [np.zeros(length, np.int64) for length in curve_lengths]
        self.crossed = [np.zeros(length, np.int64) for length in curve_lengths]
        self.replicate_tokens = np.zeros(NUM_REPLICATES, np.int64)
        self.replicate_masked = np.zeros((num_rules, NUM_REPLICATES), np.int64)
        self._seed = seed
        self._open: _Open | None = None
        self._waiting: list[tuple[IntArray, IntArray]] = []
        self._num_waiting = 0

    def add(
        self,
        block: Block,
        masked_tokens: Sequence[IntArray],
        curves: Sequence[tuple[IntArray, IntArray]],
    ) -> None:
        """Add a block.

        Args:
            masked_tokens: of each rule, the tokens of the block that it masks.
            curves: of each curve, `CurveCounter.count_runs` of the block.
        """
        runs = block.runs
        num_runs = len(runs)
        if not num_runs:
            return
        lengths = runs.lengths.copy()
        masked = np.zeros((num_runs, len(masked_tokens)), np.int64)
        for place, tokens in enumerate(masked_tokens):
            masked[:, place] = np.bincount(runs.local[tokens], minlength=num_runs)
        rows = list(curves)
        goes_on = self._open is not None and self._open.number == runs.numbers[0]
        if not goes_on:
            self.close()
        elif self._open is not None:
            lengths[0] += self._open.num_tokens
            masked[0] += self._open.masked
            rows = [
                _with_first(*pair, more) for pair, more in zip(rows, self._open.curves, strict=True)
            ]
        last = num_runs - 1
        self._add_whole(
            runs.numbers[:last],
            lengths[:last],
            masked[:last],
            [(active[active < last], counts[active < last]) for active, counts in rows],
        )
        self._open = _Open(
            int(runs.numbers[last]),
            int(lengths[last]),
            masked[last],
            tuple(counts[active == last].sum(axis=0) for active, counts in rows),
        )

    def close(self) -> None:
        """Count the sequence that is open as whole: nothing more of it comes."""
        if self._open is None:
            return
        one = self._open
        self._open = None
        self._add_whole(
            np.array([one.number], np.int64),
            np.array([one.num_tokens], np.int64),
            one.masked[None, :],
            [(np.zeros(1, np.int64), counts[None, :]) for counts in one.curves],
        )

    def finish(self) -> None:
        """Close, and draw the replicates of what still waits."""
        self.close()
        self._draw()

    def _add_whole(
        self,
        numbers: IntArray,
        lengths: IntArray,
        masked: IntArray,
        rows: Sequence[tuple[IntArray, IntArray]],
    ) -> None:
        self.num_sequences += len(numbers)
        self.squared_tokens += int((lengths * lengths).sum())
        for place, (active, counts) in enumerate(rows):
            self.squared[place] += (counts * counts).sum(axis=0)
            self.crossed[place] += lengths[active] @ counts
        if masked.shape[1]:
            self._waiting.append((numbers, np.column_stack([lengths, masked])))
            self._num_waiting += len(numbers)
            if self._num_waiting >= _BATCH:
                self._draw()

    def _draw(self) -> None:
        if not self._num_waiting:
            return
        numbers = np.concatenate([numbers for numbers, _ in self._waiting])
        # In float64, whose products and sums of these integers are exact below 2^53.
        columns = np.concatenate([columns for _, columns in self._waiting]).T.astype(np.float64)
        for start in range(0, len(numbers), _BATCH):
            weights = poisson_weights(self._seed, numbers[start : start + _BATCH])
            # Not by BLAS, whose threads cost more than they bring on this little.
            drawn = np.einsum("rs,sk->rk", columns[:, start : start + _BATCH], weights)
            drawn = drawn.astype(np.int64)
            self.replicate_tokens += drawn[0]
            self.replicate_masked += drawn[1:]
        self._waiting = []
        self._num_waiting = 0


def _with_first(active: IntArray, counts: IntArray, more: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of a curve with `more` added to the block's first run."""
    if len(active) and active[0] == 0:
        counts[0] += more
        return active, counts
    return np.concatenate([[0], active]), np.concatenate([more[None, :], counts])
