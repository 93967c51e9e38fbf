"""Counts at every threshold are those of the rule at that threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.replay.block import Block
from analysis.replay.curves import make_counter
from analysis.replay.edges import decide
from analysis.replay.requests import CurveRequest, parse_curve
from analysis.replay.tokens import TokenChunk
from tests.analysis.replay.replay_tokens import adversarial_tokens, random_tokens

REQUESTS = [
    "ipo:eps=0.01..1",
    "ipo:eps=0..1:101",
    "ipo:eps=0.29..0.31:3000",
    "icepop:ratio_high=1.1..100,ratio_low=1/ratio_high",
    "icepop:ratio_high=0.2..100,ratio_low=0.2",
    "icepop:ratio_low=0.01..1",
    "icepop:ratio_low=0..5:11",
    "kpop:phi=0.001..10",
    "ipo_band:eps=0.01..1",
    "ipo_band:ratio_high=1..50,ratio_low=1/ratio_high,eps=0.2",
    "ipo_band:ratio_low=0.01..1",
    "dppo_tv:delta_low=0..1",
    "dppo_tv:delta_high=0.01..1",
    "dppo_kl:delta=0..1",
    "ppo:ratio_high=1..3",
    "ppo:ratio_low=0.1..1",
    "dapo:ratio_high=1..3,ratio_low=1/ratio_high",
    "cispo:ratio_high=0.5..10",
    "tis:max_importance_ratio=1..20",
    "mis:ratio_high=1..20,ratio_low=1/ratio_high",
    "k1:ratio_high=1..20,ratio_low=1/ratio_high",
    "k1:ratio_low=0.01..1",
    "k2:delta=0..10",
    "k3:delta=0.001..10",
    "gspo:ratio_high=1..1.1",
    "gspo:ratio_low=0.5..1",
    "seq_tis:max_importance_ratio=1..100",
    "seq_mis:ratio_low=0.01..1",
    "geo_mis:ratio_high=1..3,ratio_low=1/ratio_high",
]
logprob = st.one_of(
    st.just(0.0),
    st.floats(-90, 0, width=32),
    st.floats(-1.0, 0, width=32),
    st.floats(np.float32(1e-5).item(), 1, width=32).map(lambda p: float(np.log(np.float32(p)))),
)


def brute_force(request: CurveRequest, block: Block) -> list[int]:
    return [int(np.count_nonzero(decide(request.at(at), block))) for at in request.thresholds]


def check(request: CurveRequest, block: Block) -> None:
    """Compare both ways of counting with one mask per threshold."""
    counter = make_counter(request)
    expected = brute_force(request, block)
    assert counter.count(block).tolist() == expected
    active, by_run = counter.count_runs(block)
    assert by_run.sum(axis=0).tolist() == expected
    whole = np.zeros((len(block.runs), len(request.thresholds)), np.int64)
    whole[active] = by_run
    for place in (0, len(request.thresholds) // 2, -1):
        mask = decide(request.at(request.thresholds[place]), block)
        np.testing.assert_array_equal(
            whole[:, place], np.bincount(block.runs.local[mask], minlength=len(block.runs))
        )


@pytest.mark.parametrize("text", REQUESTS)
def test_a_curve_counts_what_one_mask_per_threshold_counts_on_adversarial_tokens(text: str) -> None:
    trainer, inference = adversarial_tokens()
    advantages = np.resize(np.array([1, -1, 0], np.float32), len(trainer))
    block = Block(TokenChunk(trainer, inference, advantages, np.arange(len(trainer)) // 7))
    with np.errstate(over="ignore"):
        check(parse_curve(text), block)


@pytest.mark.parametrize("text", REQUESTS)
def test_a_curve_counts_what_one_mask_per_threshold_counts_on_random_tokens(text: str) -> None:
    check(parse_curve(text), Block(random_tokens(5000, seed=2)))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    tokens=st.lists(st.tuples(logprob, logprob, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1),
    text=st.sampled_from(REQUESTS),
)
def test_a_curve_counts_what_one_mask_per_threshold_counts_on_any_tokens(
    tokens: list[tuple[float, float, float]], text: str
) -> None:
    trainer, inference, advantages = (
        np.array(column, np.float32) for column in zip(*tokens, strict=True)
    )
    sequences = np.arange(len(tokens)) // 2
    with np.errstate(over="ignore", under="ignore"):
        check(parse_curve(text), Block(TokenChunk(trainer, inference, advantages, sequences)))


def test_thresholds_that_are_the_values_of_tokens_mask_strictly_above_them() -> None:
    block = Block(random_tokens(300, seed=9))
    values = np.unique(block.quantity("abs_delta"))
    request = CurveRequest("ipo", "eps", {}, tuple(values.tolist()))
    counts = make_counter(request).count(block).tolist()
    assert counts == [int(np.count_nonzero(block.quantity("abs_delta") > at)) for at in values]
    assert counts[-1] == 0


@settings(deadline=None, derandomize=True, max_examples=40)
@given(seed=st.integers(0, 1000))
def test_masked_tokens_never_grow_with_the_threshold(seed: int) -> None:
    block = Block(random_tokens(500, seed=seed))
    for text in ("ipo:eps=0.01..1", "kpop:phi=0.001..10", "k3:delta=0.001..1"):
        counts = make_counter(parse_curve(text)).count(block)
        assert np.all(np.diff(counts) <= 0)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(seed=st.integers(0, 1000))
def test_kpop_masks_at_least_what_ipo_masks_at_its_pinsker_bound(seed: int) -> None:
    """D >= 2 (p - q)^2: what moved by more than sqrt(phi / 2) has a divergence above phi."""
    block = Block(random_tokens(500, seed=seed))
    phi = parse_curve("kpop:phi=0.01..1.9")
    eps = CurveRequest("ipo", "eps", {}, tuple(np.sqrt(np.array(phi.thresholds) / 2) + 2e-6))
    assert np.all(make_counter(phi).count(block) >= make_counter(eps).count(block))
