"""Where each rule's edges lie: what a curve counts, and which tokens rounding could flip.

A rule is a set of comparisons, each of one quantity with one edge; a token is masked if any of them
holds. `harness.losses.masks` says what a rule masks; that both agree on every token is tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.replay.block import Block, as_mask
from analysis.replay.rules import Rule
from analysis.replay.tokens import BoolArray, Float32Array, TokenChunk
from harness.losses.arrays import log_bound

NUM_ULPS = 4
"""Units in the last place of a float32 that other arithmetic may differ by."""

_ULP = 2.0**-23
_LIKE = np.zeros(0, np.float32)
_NEVER = -math.inf


@dataclass(frozen=True)
class Comparison:
    """`quantity` above (or below) the edge that a knob sets, strictly.

    Attributes:
        quantity: of `analysis.replay.block.QUANTITIES`.
        knob: which sets the edge; `is_ratio` if it bounds a ratio, whose logarithm is compared.
        sign: which tokens it looks at, by advantage: `all`, `positive`, `negative`, `not positive`.
        is_negated: the edge is minus the knob.
        parameters: knobs that the quantity takes.
    """

    quantity: str
    knob: str
    is_above: bool = True
    is_ratio: bool = False
    sign: str = "all"
    is_negated: bool = False
    parameters: tuple[str, ...] = ()

    def edge(self, value: float) -> np.float32:
        """Return the edge as a float32, as masks compare with it."""
        if self.is_ratio:
            return np.float32(log_bound(value, _LIKE))
        return np.float32(-value if self.is_negated else value)

    def values(self, block: Block, knobs: Mapping[str, float]) -> Float32Array:
        """Return the quantity of each token."""
        return block.quantity(self.quantity, **{name: knobs[name] for name in self.parameters})

    def where(self, block: Block) -> BoolArray | None:
        """Return which tokens it looks at; None is all."""
        if self.sign == "all":
            return None
        if self.sign == "positive":
            return block.advantages > 0
        return block.advantages < 0 if self.sign == "negative" else ~(block.advantages > 0)


def _above(quantity: str, knob: str, *parameters: str) -> tuple[Comparison, ...]:
    return (Comparison(quantity, knob, parameters=parameters),)


def _outside(quantity: str) -> tuple[Comparison, ...]:
    return (
        Comparison(quantity, "ratio_low", is_above=False, is_ratio=True),
        Comparison(quantity, "ratio_high", is_ratio=True),
    )


def _clipped(quantity: str) -> tuple[Comparison, ...]:
    return (
        Comparison(quantity, "ratio_low", is_above=False, is_ratio=True, sign="negative"),
        Comparison(quantity, "ratio_high", is_ratio=True, sign="positive"),
    )


def _capped(quantity: str) -> tuple[Comparison, ...]:
    return (Comparison(quantity, "max_importance_ratio", is_ratio=True),)


COMPARISONS: dict[str, tuple[Comparison, ...]] = {
    "ipo": _above("abs_delta", "eps"),
    "icepop": _outside("log_ratio"),
    "kpop": _above("binary_kl", "phi", "clamp"),
    "ipo_band": (*_above("abs_delta", "eps"), *_outside("log_ratio")),
    "dppo_tv": (
        Comparison("prob_delta", "delta_low", is_above=False, is_negated=True, sign="not positive"),
        Comparison("prob_delta", "delta_high", sign="positive"),
    ),
    "dppo_kl": _above("moved_kl", "delta"),
    "ppo": _clipped("log_ratio"),
    "dapo": _clipped("log_ratio"),
    "cispo": _outside("log_ratio"),
    "tis": _capped("log_ratio"),
    "mis": _outside("log_ratio"),
    "k1": _outside("k1"),
    "k2": _above("k2", "delta"),
    "k3": _above("k3", "delta"),
    "gspo": _clipped("mean_log_ratio"),
    "seq_tis": _capped("sum_log_ratio"),
    "seq_mis": _outside("sum_log_ratio"),
    "geo_mis": _outside("mean_log_ratio"),
}
"""By the type of the rule."""


def decide(rule: Rule, block: Block) -> BoolArray:
    """Return which tokens `rule` masks, by its function of `harness.losses.masks`.

    For rules on sequences the block must hold whole ones.
    """
    spec = rule.spec
    columns = [block.trainer, block.inference]
    if "advantages" in spec.needs:
        columns.append(block.advantages)
    if not spec.is_sequence_rule:
        return as_mask(block, spec.mask(*columns, **rule.knobs))
    return as_mask(
        block, block.over_sequences(lambda *given: spec.mask(*given, **rule.knobs), *columns)
    )


def undecidable(rule: Rule, block: Block, decimals: int | None) -> BoolArray:
    """Return the tokens that rounding could decide otherwise.

    These are the tokens for which log-probabilities within half a unit of the last of `decimals`
    places (exact where it is None) and 4 ulp of float32 beside can come to both answers. Ulps are
    of the edge; of the ratio for ratio bounds; of the terms that are summed for divergences.
    """
    possible = np.zeros(len(block), np.bool_)
    certain = np.zeros(len(block), np.bool_)
    for comparison in COMPARISONS[rule.type]:
        edge = comparison.edge(rule.knobs[comparison.knob])
        if not np.isfinite(edge):
            continue
        low, high = _range(comparison, rule.knobs, block, decimals)
        slack = _slack(comparison.quantity, float(edge), block)
        if decimals is not None:
            slack = 2 * slack  # The range's ends are rounded themselves.
        if comparison.is_above:
            may, must = high > edge - slack, low > edge + slack
        else:
            may, must = low < edge + slack, high < edge - slack
        where = comparison.where(block)
        possible |= may if where is None else may & where
        certain |= must if where is None else must & where
    return possible & ~certain


def _slack(quantity: str, edge: float, block: Block) -> Float32Array:
    if quantity in ("abs_delta", "prob_delta"):
        scale = abs(edge)
    elif quantity in ("binary_kl", "moved_kl"):
        # A divergence is a cross entropy minus an entropy, and an entropy is at most ln 2: near the
        # edge its terms come to no more than this.
        scale = abs(edge) + 2 * math.log(2)
    elif quantity in ("k2", "k3"):
        # k3 is about (log r)^2 / 2 near 0, left over from terms of the size of log r.
        scale = max(edge, math.sqrt(2 * edge))
    else:
        scale = max(1.0, abs(edge))
    slack = np.float32(NUM_ULPS * _ULP * scale)
    if quantity not in ("sum_log_ratio", "mean_log_ratio"):
        return np.asarray(slack)
    # Sums of n terms in another order: half an ulp of the partial sums for each of log2(n) levels,
    # at both ends, of numbers that are themselves rounded differences.
    total, length = _sequence_sizes(block)
    size = total if quantity == "sum_log_ratio" else total / length
    return (slack + np.float32(_ULP) * (np.log2(length) + 2) * size).astype(np.float32)


def _sequence_sizes(block: Block) -> tuple[Float32Array, Float32Array]:
    runs = block.runs
    total = np.add.reduceat(abs(block.quantity("log_ratio")), runs.starts)
    return total[runs.local], runs.lengths.astype(np.float32)[runs.local]


def _range(
    comparison: Comparison, knobs: Mapping[str, float], block: Block, decimals: int | None
) -> tuple[Float32Array, Float32Array]:
    """Return the smallest and largest value of the quantity within the rounding of the input."""
    values = comparison.values(block, knobs)
    if decimals is None:
        return values, values
    half = 0.5 * 10.0**-decimals
    p_width = np.float32(half) - block.trainer * np.float32(2 * _ULP)
    q_width = np.float32(half) - block.inference * np.float32(2 * _ULP)
    width = p_width + q_width
    name = comparison.quantity
    if name in ("log_ratio", "k1"):
        return values - width, values + width
    if name in ("sum_log_ratio", "mean_log_ratio"):
        runs = block.runs
        width = np.add.reduceat(width, runs.starts).astype(np.float32)
        if name == "mean_log_ratio":
            width /= runs.lengths.astype(np.float32)
        return values - width[runs.local], values + width[runs.local]
    ends = [
        Block(
            TokenChunk(
                np.minimum(block.trainer + sign * p_width, np.float32(0)),
                np.minimum(block.inference - sign * q_width, np.float32(0)),
                block.chunk.advantages,
            )
        )
        for sign in (np.float32(-1), np.float32(1))
    ]
    lower, upper = (comparison.values(end, knobs) for end in ends)
    if name == "prob_delta":
        return lower, upper
    # The others grow with the distance between p and q, to either side of 0 at p = q; `moved_kl` is
    # -inf on the side that it doesn't look at, and the smallest value is that one then.
    crosses = abs(block.quantity("log_ratio")) <= width
    nearest = np.float32(_NEVER if name == "moved_kl" else 0)
    smallest: Float32Array = np.where(crosses, nearest, np.minimum(lower, upper))
    return smallest, np.maximum(lower, upper)
