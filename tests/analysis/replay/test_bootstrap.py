"""Intervals over sequences: the same however data is cut, and of the right width."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.replay.block import Block
from analysis.replay.bootstrap import NUM_REPLICATES, poisson_weights, ratio_intervals
from analysis.replay.edges import decide
from analysis.replay.engine import replay
from analysis.replay.requests import parse_curve
from analysis.replay.rules import parse_rule
from analysis.replay.tokens import IntArray, TokenChunk
from tests.analysis.replay.replay_tokens import MadeSource, random_tokens

IPO = parse_rule("ipo:eps=0.3")


def clustered(num_sequences: int, seed: int) -> TokenChunk:
    """Return tokens of which a sequence has either many that moved, or none."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(20, 60, num_sequences)
    sequences = np.repeat(np.arange(num_sequences), lengths)
    is_bad = generator.random(num_sequences)[sequences] < 0.2
    moves = is_bad & (generator.random(len(sequences)) < 0.3)
    inference = np.full(len(sequences), math.log(0.9), np.float32)
    trainer = np.where(moves, math.log(0.2), math.log(0.9)).astype(np.float32)
    return TokenChunk(trainer, inference, sequences=sequences)


def per_sequence(tokens: TokenChunk) -> tuple[IntArray, IntArray]:
    block = Block(tokens)
    return block.runs.lengths, np.bincount(
        block.runs.local[decide(IPO, block)], minlength=len(block.runs)
    )


def test_weights_are_poisson_of_mean_one_and_independent() -> None:
    weights = poisson_weights(7, np.arange(2000))
    assert weights.shape == (2000, NUM_REPLICATES)
    counts = np.bincount(weights.ravel().astype(int), minlength=4)[:4] / weights.size
    expected = [math.exp(-1), math.exp(-1), math.exp(-1) / 2, math.exp(-1) / 6]
    np.testing.assert_allclose(counts, expected, atol=2e-3)
    assert weights.mean() == pytest.approx(1, abs=3e-3)
    assert weights.var() == pytest.approx(1, abs=6e-3)
    # Over sequences and over replicates, means of independent draws spread by 1 / sqrt(n).
    assert weights.mean(axis=0).std() == pytest.approx(1 / math.sqrt(2000), rel=0.1)
    assert weights.mean(axis=1).std() == pytest.approx(1 / math.sqrt(NUM_REPLICATES), rel=0.1)
    neighbours = np.corrcoef(weights[:-1].ravel(), weights[1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / math.sqrt(weights.size)


def test_weights_depend_on_seed_and_sequence_alone() -> None:
    all_at_once = poisson_weights(3, np.arange(50))
    np.testing.assert_array_equal(all_at_once[20:21], poisson_weights(3, np.array([20])))
    assert np.any(all_at_once != poisson_weights(4, np.arange(50)))
    assert all_at_once[0, :12].astype(int).tolist() == [2, 1, 1, 0, 1, 0, 0, 3, 2, 2, 0, 0]


def test_an_interval_is_that_of_an_ordinary_bootstrap_over_sequences() -> None:
    tokens = clustered(400, seed=1)
    [found] = replay(MadeSource(tokens), [IPO], []).rules
    assert found.low is not None
    assert found.high is not None
    lengths, masked = per_sequence(tokens)
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, len(lengths), (4000, len(lengths)))
    fractions = masked[drawn].sum(axis=1) / lengths[drawn].sum(axis=1)
    low, high = np.quantile(fractions, [0.025, 0.975])
    width = high - low
    assert found.low == pytest.approx(low, abs=0.15 * width)
    assert found.high == pytest.approx(high, abs=0.15 * width)


def test_an_interval_is_wider_than_one_that_takes_tokens_for_independent() -> None:
    tokens = clustered(400, seed=2)
    [found] = replay(MadeSource(tokens), [IPO], []).rules
    fraction = found.fraction
    assert fraction is not None
    assert found.low is not None
    assert found.high is not None
    naive = 2 * 1.96 * math.sqrt(fraction * (1 - fraction) / found.num_tokens)
    assert found.high - found.low > 1.5 * naive


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    truth = 0.2 * 0.3
    hits = curve_hits = 0
    curve = parse_curve("ipo:eps=0.2..0.4:2")
    for seed in range(60):
        found = replay(MadeSource(clustered(200, seed=100 + seed)), [IPO], [curve])
        [rule], [line] = found.rules, found.curves
        assert rule.low is not None
        assert rule.high is not None
        hits += rule.low <= truth <= rule.high
        curve_hits += line.low[0] <= truth <= line.high[0]
    assert 51 <= hits <= 60
    assert 51 <= curve_hits <= 60


def test_the_interval_of_a_curve_is_the_linearised_ratio_estimators() -> None:
    tokens = clustered(150, seed=3)
    found = replay(MadeSource(tokens, chunk_tokens=37), [], [parse_curve("ipo:eps=0.3..0.9:4")])
    lengths, masked = per_sequence(tokens)
    fraction = masked.sum() / lengths.sum()
    residual = masked - fraction * lengths
    error = math.sqrt(150 / 149 * (residual**2).sum()) / lengths.sum()
    assert found.curves[0].low[0] == pytest.approx(fraction - 1.959964 * error, rel=1e-6)
    assert found.curves[0].high[0] == pytest.approx(fraction + 1.959964 * error, rel=1e-6)


def test_the_same_seed_gives_the_same_interval_and_another_one_a_near_one() -> None:
    tokens = random_tokens(5000, seed=4)
    one, again, other = (
        replay(MadeSource(tokens, chunk_tokens=size), [IPO], [], seed=seed).rules[0]
        for size, seed in ((5000, 1), (13, 1), (5000, 2))
    )
    assert (one.low, one.high) == (again.low, again.high)
    assert (one.low, one.high) != (other.low, other.high)
    assert one.low == pytest.approx(other.low, rel=0.2)


def test_fewer_than_two_sequences_have_no_interval() -> None:
    zeros = np.zeros(2, np.int64)
    assert ratio_intervals(
        zeros, zeros, zeros, num_tokens=5, squared_tokens=25, num_sequences=1
    ) == ((), ())
