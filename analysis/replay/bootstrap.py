"""Intervals of masked fractions that respect sequences, from sums that merge.

Tokens of a sequence aren't independent, so both methods draw whole sequences:

- Rules that are listed: the Poisson bootstrap. In each of 1000 replicates every sequence counts a
  Poisson(1) number of times (Hanley and MacGibbon 2006); the interval is the 2.5 % and 97.5 %
  percentile of the replicates' fractions. How often a sequence counts is a function of seed,
  sequence and replicate alone, so parts of the data that are counted apart come to the interval of
  the whole. Where nothing is masked it is 0 to 0: a bootstrap can't see what wasn't drawn.
- Thresholds of curves: the linearised ratio estimator (Cochran, Sampling Techniques, 6.10). With
  n_i tokens and x_i masked ones in sequence i, f = X / N and S sequences, the variance of f is
  S / (S - 1) * sum (x_i - f n_i)^2 / N^2; the interval is f +- 1.96 standard errors, cut to [0, 1].
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from analysis.replay.tokens import IntArray

NUM_REPLICATES = 1000
LEVEL = 0.95
MIN_SEQUENCES = 2
"""Below it there is no interval."""

FloatArray = npt.NDArray[np.float64]

_Z = 1.959963984540054
_BITS = 16
_PER_WORD = 64 // _BITS
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _poisson_table() -> FloatArray:
    """Return the Poisson(1) number of each 16-bit draw: probabilities in steps of 2^-16."""
    total, cumulated = 0.0, []
    for k in range(12):
        total += math.exp(-1) / math.factorial(k)
        cumulated.append(round(total * 2**_BITS))
    return np.searchsorted(cumulated, np.arange(2**_BITS), side="right").astype(np.float64)


_TABLE = _poisson_table()


def poisson_weights(seed: int, sequences: IntArray) -> FloatArray:
    """Return how often each sequence counts in each replicate, [num_sequences, NUM_REPLICATES].

    SplitMix64 (Steele, Lea and Flood 2014) of a counter, so that no state is carried; the same on
    every machine.
    """
    keys = _mixed(sequences.astype(np.uint64) + _mixed(np.array([seed], np.int64).view(np.uint64)))
    counters = np.arange(1, NUM_REPLICATES // _PER_WORD + 1, dtype=np.uint64) * _GOLDEN
    words = _mixed(keys[:, None] + counters)
    draws = words.astype("<u8", copy=False).view("<u2")
    weights: FloatArray = _TABLE[draws]
    return weights


def percentile_interval(masked: IntArray, tokens: IntArray) -> tuple[float, float] | None:
    """Return the percentile interval of the replicates' fractions, [num_replicates] each.

    Replicates without a token are left out; None where none has any.
    """
    has_tokens = tokens > 0
    if not has_tokens.any():
        return None
    fractions = masked[has_tokens] / tokens[has_tokens]
    low, high = np.quantile(fractions, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def ratio_intervals(
    masked: IntArray,
    squared: IntArray,
    crossed: IntArray,
    *,
    num_tokens: int,
    squared_tokens: int,
    num_sequences: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lower and upper ends for curves; both empty below `MIN_SEQUENCES`.

    Args:
        masked, squared, crossed: sums over sequences of x_i, x_i^2 and x_i n_i per threshold.
        squared_tokens: sum of n_i^2.
    """
    if num_sequences < MIN_SEQUENCES or not num_tokens:
        return (), ()
    fraction = masked / num_tokens
    residual = squared - 2 * fraction * crossed + fraction**2 * squared_tokens
    variance = num_sequences / (num_sequences - 1) * np.maximum(residual, 0.0)
    width = _Z * np.sqrt(variance) / num_tokens
    low, high = np.clip([fraction - width, fraction + width], 0.0, 1.0)
    return tuple(low.tolist()), tuple(high.tolist())


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64's output function of each word."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
