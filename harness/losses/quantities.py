"""Quantities of a sampled token from its two log-probabilities, on numpy arrays or torch tensors.

Arguments and types are those of `harness.losses.masks`.
"""

from __future__ import annotations

import math
from typing import Any

from harness.losses.arrays import Array, namespace

MAX_LOG_RATIO = math.log(1e30)
"""Log-ratios are cut here before they are exponentiated: float32 ends at 3e38, and a sum of many
tokens needs headroom (prime-rl)."""

DPPO_KL_OFFSET = 1e-8
"""Added to both complements 1 - p and 1 - q in DPPO's binary KL (verl and Stable-RL)."""


def is_nonfinite(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """Whether one of the two log-probabilities is NaN or infinite."""
    xp = namespace(trainer_logprobs, inference_logprobs)
    return ~(xp.isfinite(trainer_logprobs) & xp.isfinite(inference_logprobs))


def prob_delta(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """p - q, as sign * exp(max) * -expm1(min - max): no cancellation where p is close to q."""
    xp = namespace(trainer_logprobs, inference_logprobs)
    log_ratio = trainer_logprobs - inference_logprobs
    larger = xp.maximum(trainer_logprobs, inference_logprobs)
    return xp.copysign(xp.exp(larger) * -xp.expm1(-xp.abs(log_ratio)), log_ratio)


def binary_kl(logprobs_a: Array, logprobs_b: Array, *, clamp: float) -> Array:
    """D(a || b) in nats between the coins "this token or another one" of probabilities a and b.

    a log(a/b) + (1-a) log((1-a)/(1-b)), with a, b, 1-a and 1-b clamped to [clamp, 1 - clamp].
    The complement comes from expm1, so that a float32 keeps a `clamp` that `1 - clamp` would lose.
    """
    xp = namespace(logprobs_a, logprobs_b)
    a, not_a, log_a, log_not_a = coin(xp, logprobs_a, clamp)
    _, _, log_b, log_not_b = coin(xp, logprobs_b, clamp)
    return a * (log_a - log_b) + not_a * (log_not_a - log_not_b)


def larger_binary_kl(logprobs_a: Array, logprobs_b: Array, *, clamp: float) -> Array:
    """max(D(a || b), D(b || a)), D the clamped `binary_kl`, in nats (KPop)."""
    xp = namespace(logprobs_a, logprobs_b)
    a, not_a, log_a, log_not_a = coin(xp, logprobs_a, clamp)
    b, not_b, log_b, log_not_b = coin(xp, logprobs_b, clamp)
    log_odds, log_not_odds = log_a - log_b, log_not_a - log_not_b
    forward = a * log_odds + not_a * log_not_odds
    backward = -(b * log_odds + not_b * log_not_odds)
    return xp.maximum(forward, backward)


def dppo_kl(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """D(q || p) = q log(q/p) + (1-q) log((1-q+1e-8) / (1-p+1e-8)) in nats, as verl computes it."""
    xp = namespace(trainer_logprobs, inference_logprobs)
    log_ratio = trainer_logprobs - inference_logprobs
    not_p = xp.clip(-xp.expm1(trainer_logprobs), 0.0, 1.0)
    not_q = xp.clip(-xp.expm1(inference_logprobs), 0.0, 1.0)
    divergence = not_q * (xp.log(not_q + DPPO_KL_OFFSET) - xp.log(not_p + DPPO_KL_OFFSET))
    return divergence - xp.exp(inference_logprobs) * log_ratio


def sequence_log_ratio_sum(
    trainer_logprobs: Array, inference_logprobs: Array, loss_mask: Array
) -> Array:
    """Sum of log r over the tokens of each sequence in `loss_mask`: log of the product of ratios.

    Returns:
        shape [..., 1]; 0 for a sequence without such a token.
    """
    xp = namespace(trainer_logprobs, inference_logprobs)
    log_ratio = trainer_logprobs - inference_logprobs
    kept = xp.where(loss_mask, log_ratio, xp.zeros_like(log_ratio))
    return xp.sum(kept, axis=-1, keepdims=True)


def sequence_log_ratio(
    trainer_logprobs: Array, inference_logprobs: Array, loss_mask: Array
) -> Array:
    """Mean of log r over the tokens of each sequence in `loss_mask` (GSPO's log s).

    Returns:
        shape [..., 1]; 0 for a sequence without such a token.
    """
    xp = namespace(trainer_logprobs, inference_logprobs)
    total = sequence_log_ratio_sum(trainer_logprobs, inference_logprobs, loss_mask)
    zeros = xp.zeros_like(trainer_logprobs)
    num_tokens = xp.sum(xp.where(loss_mask, zeros + 1, zeros), axis=-1, keepdims=True)
    return total / xp.clip(num_tokens, 1, None)


def mismatch_k1(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """-log r: the k1 estimate of KL(q || p) from a token that q sampled, in nats."""
    namespace(trainer_logprobs, inference_logprobs)
    return inference_logprobs - trainer_logprobs


def mismatch_k2(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """(log r)^2 / 2: the k2 estimate of KL(q || p), in nats."""
    log_ratio = mismatch_k1(trainer_logprobs, inference_logprobs)
    return log_ratio * log_ratio / 2


def mismatch_k3(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """r - 1 - log r: the k3 estimate of KL(q || p), in nats; prime-rl's `mismatch_kl`.

    As expm1(log r) - log r with log r cut at ln 1e30; in [0, 1e30] for finite input.
    """
    xp = namespace(trainer_logprobs, inference_logprobs)
    log_ratio = trainer_logprobs - inference_logprobs
    log_ratio = xp.clip(log_ratio, None, MAX_LOG_RATIO)
    return xp.clip(xp.expm1(log_ratio) - log_ratio, 0.0, 1e30)


def coin(xp: Any, logprobs: Array, clamp: float) -> tuple[Array, Array, Array, Array]:
    """Return p, 1 - p, log p and log(1 - p), both probabilities within [clamp, 1 - clamp]."""
    log_prob = xp.clip(logprobs, math.log(clamp), math.log1p(-clamp))
    complement = xp.clip(-xp.expm1(logprobs), clamp, 1 - clamp)
    return xp.exp(log_prob), complement, log_prob, xp.log(complement)
