"""Decisions that rounding could flip are counted, and few others."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.replay.block import Block
from analysis.replay.edges import decide, undecidable
from analysis.replay.rules import RULES, make_rule, parse_rule
from analysis.replay.tokens import BoolArray, Float32Array, TokenChunk
from tests.analysis.replay.replay_tokens import adversarial_tokens, random_tokens

NUM_PERTURBATIONS = 12


def make_block(trainer: Float32Array, inference: Float32Array) -> Block:
    advantages = np.resize(np.array([1, -1, 0], np.float32), len(trainer))
    return Block(TokenChunk(trainer, inference, advantages, np.arange(len(trainer)) // 5))


def rounded(decimals: int) -> tuple[Float32Array, Float32Array]:
    """Return adversarial and random tokens, of which some land exactly on edges, as stored."""
    trainer, inference = adversarial_tokens()
    made = random_tokens(20_000, seed=5)
    trainer = np.concatenate([trainer, made.trainer_logprobs])
    inference = np.concatenate([inference, made.inference_logprobs])
    return tuple(  # type: ignore[return-value]
        np.round(column.astype(np.float64), decimals).astype(np.float32)
        for column in (trainer, inference)
    )


def flips(type: str, trainer: Float32Array, inference: Float32Array, half: float) -> BoolArray:
    """Return which decisions change under some change of the input of at most `half`."""
    rule = make_rule(type, {})
    generator = np.random.default_rng(1)
    expected = decide(rule, make_block(trainer, inference))
    flipped = np.zeros(len(trainer), np.bool_)
    for turn in range(NUM_PERTURBATIONS):
        if turn < 4:  # The corners first: most decisions depend on the input monotonically.
            signs = [np.float64(turn % 2 * 2 - 1), np.float64(turn // 2 * 2 - 1)]
            shifts = [np.full(len(trainer), half * sign) for sign in signs]
        else:
            shifts = [generator.uniform(-half, half, len(trainer)) for _ in range(2)]
        moved = [
            np.minimum(column.astype(np.float64) + shift, 0).astype(np.float32)
            for column, shift in zip((trainer, inference), shifts, strict=True)
        ]
        flipped |= decide(rule, make_block(*moved)) != expected
    return flipped


@pytest.mark.parametrize("decimals", [2, 4])
@pytest.mark.parametrize("type", sorted(RULES))
def test_every_decision_that_rounding_of_the_input_flips_is_undecidable(
    type: str, decimals: int
) -> None:
    with np.errstate(over="ignore"):
        trainer, inference = rounded(decimals)
        near = undecidable(make_rule(type, {}), make_block(trainer, inference), decimals)
        flipped = flips(type, trainer, inference, 0.5 * 10.0**-decimals)
    assert np.count_nonzero(flipped) > 0 or decimals > 2
    assert np.count_nonzero(flipped & ~near) == 0


@pytest.mark.parametrize("type", sorted(set(RULES) - {"gspo"}))
def test_tokens_that_no_rounding_reaches_are_decidable(type: str) -> None:
    """Half of the undecidable ones flip under a handful of changes; sequences add up widths."""
    with np.errstate(over="ignore"):
        made = random_tokens(20_000, seed=6)
        trainer, inference = (
            np.round(column.astype(np.float64), 3).astype(np.float32)
            for column in (made.trainer_logprobs, made.inference_logprobs)
        )
        near = undecidable(make_rule(type, {}), make_block(trainer, inference), 3)
        flipped = flips(type, trainer, inference, 0.0005)
    assert np.count_nonzero(near) <= 2 * np.count_nonzero(flipped) + 2


def test_without_rounding_only_ulps_around_the_edge_are_undecidable() -> None:
    edge = np.float32(0.25)
    around = np.arange(-8, 9)
    # p = 1 makes |p - q| = 1 - q, by expm1 of log q.
    inference = (np.log1p(-edge.astype(np.float64)) + around * 1e-8).astype(np.float32)
    block = Block(TokenChunk(np.zeros(len(around), np.float32), inference))
    rule = parse_rule("ipo:eps=0.25")
    delta = block.quantity("abs_delta")
    near = undecidable(rule, block, None)
    np.testing.assert_array_equal(near, np.abs(delta - edge) < np.float32(4 * 2**-23 * 0.25))
    far = Block(TokenChunk(np.zeros(2, np.float32), np.array([-0.2876, -0.2878], np.float32)))
    assert decide(rule, far).tolist() == [False, True]
    assert undecidable(rule, far, None).tolist() == [False, False]


def test_a_token_that_another_comparison_masks_for_certain_is_decidable() -> None:
    # |p - q| is on the edge of eps, but the ratio is far outside the band.
    trainer, inference = (np.log(np.array([x], np.float32)) for x in (0.31, 0.01))
    block = Block(TokenChunk(trainer, inference))
    assert undecidable(parse_rule("ipo:eps=0.3"), block, 4).tolist() == [True]
    assert undecidable(parse_rule("ipo_band:eps=0.3"), block, 4).tolist() == [False]


def test_identical_tokens_are_decidable_at_a_threshold_of_zero() -> None:
    same = np.array([-1.0, -0.5], np.float32)
    assert undecidable(parse_rule("ipo:eps=0"), Block(TokenChunk(same, same)), None).tolist() == [
        False,
        False,
    ]
