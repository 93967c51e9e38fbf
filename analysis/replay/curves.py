"""How many tokens a rule masks at each threshold of a curve: exact counts in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from analysis.replay.block import Block
from analysis.replay.edges import COMPARISONS, Comparison
from analysis.replay.requests import INVERSE, CurveRequest
from analysis.replay.tokens import BoolArray, Float32Array, IntArray

_NUM_CELLS = 1 << 16


@dataclass(frozen=True)
class Varying:
    """A comparison whose edge the curve moves, brought to the form "value > edge".

    Attributes:
        edges: increasing, [num_thresholds].
        table: of each cell of the upper 16 bits of a float32, how many edges lie in lower cells;
            `most` edges lie in any one cell.
        is_negated: value is minus the quantity (of a comparison "below").
        is_reversed: the edges belong to the thresholds from the last to the first.
    """

    comparison: Comparison
    edges: Float32Array
    table: IntArray
    most: int
    is_negated: bool
    is_reversed: bool

    def rank(self, values: Float32Array) -> IntArray:
        """Return how many edges lie strictly below each value; exact, as comparisons are.

        The cell tells all but the edges within it, which are compared one by one: a quarter of the
        time of a binary search, whose branches can't be predicted.
        """
        rank = self.table[_cells(values)]
        above = np.append(self.edges, np.float32(np.inf))
        for _ in range(self.most):
            rank += values > above[rank]
        return rank


@dataclass(frozen=True)
class CurveCounter:
    """Counts tokens over the thresholds of `request`.

    A token that a comparison with a fixed edge masks is masked at every threshold. Of the moved
    comparisons at most one holds for a token, as no band is upside down.
    """

    request: CurveRequest
    varying: tuple[Varying, ...]
    fixed: tuple[Comparison, ...]

    def __len__(self) -> int:
        return len(self.request.thresholds)

    def count(self, block: Block) -> IntArray:
        """Return the masked tokens at each threshold, [num_thresholds]."""
        always = self._always(block)
        counts = np.zeros(len(self), np.int64)
        if always is not None:
            counts += np.count_nonzero(always)
        for one in self.varying:
            _, values = self._candidates(one, block, always)
            # Masked at the first `rank` of the edges.
            by_rank = np.bincount(one.rank(values), minlength=len(self) + 1)
            at_least = np.cumsum(by_rank[:0:-1])
            counts += at_least if one.is_reversed else at_least[::-1]
        return counts

    def count_runs(self, block: Block) -> tuple[IntArray, IntArray]:
        """Return the same for each sequence that has any masked token.

        Returns:
            which of the block's runs they are, increasing, [num_active], and masked tokens at each
            threshold, [num_active, num_thresholds].
        """
        always = self._always(block)
        local = block.runs.local
        found = [(one, *self._candidates(one, block, always)) for one in self.varying]
        is_active = np.zeros(len(block.runs), np.bool_)
        for _, tokens, _ in found:
            is_active[local[tokens]] = True
        if always is not None:
            is_active[local[always]] = True
        active = np.flatnonzero(is_active)
        row_of = np.cumsum(is_active) - 1
        counts = np.zeros((len(active), len(self)), np.int64)
        if always is not None:
            counts += np.bincount(row_of[local[always]], minlength=len(active))[:, None]
        for one, tokens, values in found:
            num_columns = len(self) + 1
            cells = row_of[local[tokens]] * num_columns + one.rank(values)
            by_cell = np.bincount(cells, minlength=len(active) * num_columns)
            by_cell = by_cell.reshape(len(active), num_columns)
            at_least = np.cumsum(by_cell[:, :0:-1], axis=1)
            counts += at_least if one.is_reversed else at_least[:, ::-1]
        return active, counts

    def _always(self, block: Block) -> BoolArray | None:
        if not self.fixed:
            return None
        return reduce(np.logical_or, (self._holds(one, block) for one in self.fixed))

    def _holds(self, one: Comparison, block: Block) -> BoolArray:
        knobs = _numbers(self.request)
        values = one.values(block, knobs)
        edge = one.edge(knobs[one.knob])
        holds = values > edge if one.is_above else values < edge
        where = one.where(block)
        return holds if where is None else holds & where

    def _candidates(
        self, one: Varying, block: Block, always: BoolArray | None
    ) -> tuple[IntArray, Float32Array]:
        """Return the tokens that the lowest edge masks and `always` doesn't, and their values."""
        values = one.comparison.values(block, _numbers(self.request))
        is_candidate = values < -one.edges[0] if one.is_negated else values > one.edges[0]
        where = one.comparison.where(block)
        if where is not None:
            is_candidate = is_candidate & where
        if always is not None:
            is_candidate = is_candidate & ~always
        tokens = np.flatnonzero(is_candidate)
        found = values[tokens]
        # Adding 0 makes 0 of -0, which stands in another cell.
        return tokens, np.float32(0) - found if one.is_negated else found + np.float32(0)


def make_counter(request: CurveRequest) -> CurveCounter:
    """Return what counts the tokens of `request`."""
    varying, fixed = [], []
    for one in COMPARISONS[request.type]:
        is_inverse = request.fixed.get(one.knob) == INVERSE
        if one.knob != request.knob and not is_inverse:
            fixed.append(one)
            continue
        thresholds = [1.0 / at if is_inverse else at for at in request.thresholds]
        edges = np.array([one.edge(at) for at in thresholds], np.float32)
        edges = edges + np.float32(0) if one.is_above else np.float32(0) - edges
        is_reversed = bool(edges[0] > edges[-1])
        ordered = edges[::-1].copy() if is_reversed else edges
        in_cell = np.bincount(_cells(ordered), minlength=_NUM_CELLS)
        table = np.cumsum(in_cell) - in_cell
        most = int(in_cell.max())
        varying.append(Varying(one, ordered, table, most, not one.is_above, is_reversed))
    return CurveCounter(request, tuple(varying), tuple(fixed))


def _cells(values: Float32Array) -> IntArray:
    """Return the upper 16 bits of each value as a number that grows with it."""
    bits = values.view(np.int32)
    ordered = bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return (ordered >> np.int32(16)).astype(np.int64) + _NUM_CELLS // 2


def _numbers(request: CurveRequest) -> dict[str, float]:
    return {name: value for name, value in request.fixed.items() if not isinstance(value, str)}
