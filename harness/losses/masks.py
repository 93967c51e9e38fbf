"""Which tokens a loss drops, clips or caps: one definition for training and for analysis.

Every function takes numpy arrays or torch tensors and answers in kind. Neither of the two is
imported here, so that this module serves where only one of the two is installed.

Common to all functions:

- `trainer_logprobs` is log p of the sampled tokens under the policy that is trained,
  `inference_logprobs` log q under the engine that sampled them; r = p/q. Any shape, equal shapes;
  sequence rules want tokens on the last axis.
- float32 or float64, the same for all float arguments; the work is done in that type. Upcast
  float16 and bfloat16 first: their steps near probability 1 are wider than the thresholds.
- Masks are True where a token is hit (dropped, clipped, capped).
- Rules decide on finite log-probabilities. `drop_mask`, `clip_mask` and `cap_mask` answer False
  where one is not finite; a caller counts those by `is_nonfinite`.
- A ratio bound is compared in log space with the logarithm of the bound as the tokens' type holds
  it, so that a ratio that equals the bound in that type is on the inner side (prime-rl).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import UsageError
from harness.losses.arrays import Array, is_above, is_below, namespace
from harness.losses.quantities import (
    DPPO_KL_OFFSET,
    binary_kl,
    dppo_kl,
    is_nonfinite,
    larger_binary_kl,
    mismatch_k1,
    mismatch_k2,
    mismatch_k3,
    prob_delta,
    sequence_log_ratio,
    sequence_log_ratio_sum,
)

__all__ = [
    "CLIP_RULES",
    "DPPO_KL_OFFSET",
    "DROP_RULES",
    "binary_kl",
    "cap_mask",
    "clip_mask",
    "dppo_kl_drop_mask",
    "dppo_tv_drop_mask",
    "drop_class",
    "drop_mask",
    "geometric_band_mask",
    "gspo_clip_mask",
    "ipo_band_drop_mask",
    "ipo_drop_mask",
    "is_nonfinite",
    "k1_drop_mask",
    "k2_drop_mask",
    "k3_drop_mask",
    "keep_all_mask",
    "kpop_drop_mask",
    "mismatch_k1",
    "mismatch_k2",
    "mismatch_k3",
    "ppo_clip_mask",
    "prob_delta",
    "ratio_band_mask",
    "ratio_cap_mask",
    "rise_class",
    "sequence_band_mask",
    "sequence_cap_mask",
    "sequence_log_ratio",
]


def keep_all_mask(trainer_logprobs: Array, inference_logprobs: Array) -> Array:
    """False everywhere: the loss leaves every token its gradient."""
    xp = namespace(trainer_logprobs, inference_logprobs)
    return xp.zeros_like(xp.isfinite(trainer_logprobs))


def ipo_drop_mask(trainer_logprobs: Array, inference_logprobs: Array, *, eps: float) -> Array:
    """|p - q| > eps, strictly (prime-rl)."""
    return abs(prob_delta(trainer_logprobs, inference_logprobs)) > eps


def ratio_band_mask(
    trainer_logprobs: Array, inference_logprobs: Array, *, ratio_low: float, ratio_high: float
) -> Array:
    """r < ratio_low or r > ratio_high, bounds on the inner side; 0 is no lower bound.

    What IcePop drops (prime-rl; Ring-1T's M with alpha and beta) and where CISPO clips its weight.
    """
    namespace(trainer_logprobs, inference_logprobs)
    log_ratio = trainer_logprobs - inference_logprobs
    return is_below(log_ratio, ratio_low) | is_above(log_ratio, ratio_high)


def kpop_drop_mask(
    trainer_logprobs: Array, inference_logprobs: Array, *, phi: float, clamp: float
) -> Array:
    """max(D(p || q), D(q || p)) > phi, D the clamped `binary_kl` (Ring-2.6; prime-rl #3283)."""
    return larger_binary_kl(trainer_logprobs, inference_logprobs, clamp=clamp) > phi


def ipo_band_drop_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    *,
    eps: float,
    ratio_low: float,
    ratio_high: float,
) -> Array:
    """Dropped by `ipo_drop_mask` or by `ratio_band_mask`."""
    return ipo_drop_mask(trainer_logprobs, inference_logprobs, eps=eps) | ratio_band_mask(
        trainer_logprobs, inference_logprobs, ratio_low=ratio_low, ratio_high=ratio_high
    )


def dppo_tv_drop_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    advantages: Array,
    *,
    delta_low: float,
    delta_high: float,
) -> Array:
    """p - q > delta_high where A > 0, p - q < -delta_low where A <= 0 (arXiv 2602.04879, verl)."""
    xp = namespace(trainer_logprobs, inference_logprobs, advantages)
    delta = prob_delta(trainer_logprobs, inference_logprobs)
    return xp.where(advantages > 0, delta > delta_high, delta < -delta_low)


def dppo_kl_drop_mask(
    trainer_logprobs: Array, inference_logprobs: Array, advantages: Array, *, delta: float
) -> Array:
    """D(q || p) > delta and p moved with A: p > q where A > 0, p < q where A <= 0.

    D = q log(q/p) + (1-q) log((1-q+1e-8) / (1-p+1e-8)) (arXiv 2602.04879, as verl computes it).
    """
    xp = namespace(trainer_logprobs, inference_logprobs, advantages)
    log_ratio = trainer_logprobs - inference_logprobs
    moved = xp.where(advantages > 0, log_ratio > 0, log_ratio < 0)
    return (dppo_kl(trainer_logprobs, inference_logprobs) > delta) & moved


def ppo_clip_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    advantages: Array,
    *,
    ratio_low: float,
    ratio_high: float,
) -> Array:
    """Where min(rA, clip(r) A) has no gradient: A > 0 and r > high, or A < 0 and r < low."""
    namespace(trainer_logprobs, inference_logprobs, advantages)
    log_ratio = trainer_logprobs - inference_logprobs
    return _surrogate_clip_mask(log_ratio, advantages, ratio_low, ratio_high)


def gspo_clip_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    advantages: Array,
    loss_mask: Array,
    *,
    ratio_low: float,
    ratio_high: float,
) -> Array:
    """As `ppo_clip_mask` with the sequence's ratio s in place of r (see `sequence_log_ratio`)."""
    namespace(trainer_logprobs, inference_logprobs, advantages)
    log_ratio = sequence_log_ratio(trainer_logprobs, inference_logprobs, loss_mask)
    return _surrogate_clip_mask(log_ratio, advantages, ratio_low, ratio_high)


def ratio_cap_mask(
    trainer_logprobs: Array, inference_logprobs: Array, *, max_importance_ratio: float
) -> Array:
    """r > max_importance_ratio: the loss weighs the token with the cap instead of r."""
    namespace(trainer_logprobs, inference_logprobs)
    return is_above(trainer_logprobs - inference_logprobs, max_importance_ratio)


def k1_drop_mask(
    trainer_logprobs: Array, inference_logprobs: Array, *, ratio_low: float, ratio_high: float
) -> Array:
    """q/p < ratio_low or q/p > ratio_high: verl's `token_k1`.

    The bounds are on the engine's probability over the trainer's, the inverse of IcePop's ratio;
    verl reads a single bound u as [1/u, u].
    """
    k1 = mismatch_k1(trainer_logprobs, inference_logprobs)
    return is_below(k1, ratio_low) | is_above(k1, ratio_high)


def k2_drop_mask(trainer_logprobs: Array, inference_logprobs: Array, *, delta: float) -> Array:
    """k2 = (log r)^2 / 2 > delta: verl's `token_k2`.

    verl cuts log r at +-20 first; below a `delta` of 200 that decides nothing.
    """
    return mismatch_k2(trainer_logprobs, inference_logprobs) > delta


def k3_drop_mask(trainer_logprobs: Array, inference_logprobs: Array, *, delta: float) -> Array:
    """k3 = r - 1 - log r > delta: verl's `token_k3`, by expm1.

    verl cuts log r at +-20 first; below a `delta` of 19 that decides nothing.
    """
    return mismatch_k3(trainer_logprobs, inference_logprobs) > delta


def sequence_cap_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    loss_mask: Array,
    *,
    max_importance_ratio: float,
) -> Array:
    """Whether the product of the sequence's ratios is above the cap; shape [..., 1].

    Sequence-level TIS: the weight exp(sum of log r) is truncated there (verl `rollout_is:
    sequence`, TRL `sequence_truncate`).
    """
    total = sequence_log_ratio_sum(trainer_logprobs, inference_logprobs, loss_mask)
    return is_above(total, max_importance_ratio)


def sequence_band_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    loss_mask: Array,
    *,
    ratio_low: float,
    ratio_high: float,
) -> Array:
    """Whether the product of the sequence's ratios is outside the band; shape [..., 1].

    Sequence-level MIS, which drops the whole sequence (TRL `sequence_mask`).
    """
    total = sequence_log_ratio_sum(trainer_logprobs, inference_logprobs, loss_mask)
    return is_below(total, ratio_low) | is_above(total, ratio_high)


def geometric_band_mask(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    loss_mask: Array,
    *,
    ratio_low: float,
    ratio_high: float,
) -> Array:
    """Whether the geometric mean of the sequence's ratios is outside the band; shape [..., 1].

    SkyRL's `geometric` sequence mask; verl's `seq_mean_k1` bounds the inverse, q over p.
    """
    mean = sequence_log_ratio(trainer_logprobs, inference_logprobs, loss_mask)
    return is_below(mean, ratio_low) | is_above(mean, ratio_high)


def rise_class(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    *,
    ratio_high: float = 5.0,
    eps: float = 0.3,
) -> Array:
    """Whether r > ratio_high and |p - q| <= eps: masked by IcePop's upper bound, kept by IPO."""
    log_ratio = trainer_logprobs - inference_logprobs
    delta = prob_delta(trainer_logprobs, inference_logprobs)
    return is_above(log_ratio, ratio_high) & (abs(delta) <= eps)


def drop_class(
    trainer_logprobs: Array,
    inference_logprobs: Array,
    *,
    ratio_low: float = 0.2,
    eps: float = 0.3,
) -> Array:
    """Whether r >= ratio_low and p - q < -eps: kept by IcePop, masked by IPO."""
    log_ratio = trainer_logprobs - inference_logprobs
    delta = prob_delta(trainer_logprobs, inference_logprobs)
    return ~is_below(log_ratio, ratio_low) & (delta < -eps)


DROP_RULES: dict[str, Callable[..., Any]] = {
    "ipo": ipo_drop_mask,
    "icepop": ratio_band_mask,
    "kpop": kpop_drop_mask,
    "ipo_band": ipo_band_drop_mask,
    "dppo_tv": dppo_tv_drop_mask,
    "dppo_kl": dppo_kl_drop_mask,
    "ppo": ppo_clip_mask,
    "dapo": ppo_clip_mask,
    "cispo": keep_all_mask,
    "tis": keep_all_mask,
    "gspo": gspo_clip_mask,
    "none": keep_all_mask,
}
"""By `loss.type`: which tokens get no gradient. A rule's keyword-only arguments are the knobs that
it reads from the loss; `advantages` and `loss_mask` among its arguments say that it needs them."""

CLIP_RULES: dict[str, Callable[..., Any]] = {
    "ppo": ppo_clip_mask,
    "dapo": ppo_clip_mask,
    "gspo": gspo_clip_mask,
    "cispo": ratio_band_mask,
}
"""By `loss.type`, for losses that clip a ratio: where the clip is active (prime-rl's `is_clipped`).
The surrogates' clip takes the gradient away, CISPO's only bounds the weight."""


def drop_mask(
    loss: Mapping[str, Any],
    trainer_logprobs: Array,
    inference_logprobs: Array,
    *,
    advantages: Array | None = None,
    loss_mask: Array | None = None,
) -> Array:
    """Which tokens `loss` leaves without gradient. False where a log-probability is not finite.

    Args:
        loss: the resolved `loss` group (`type` and its knobs; other keys are not looked at).
        advantages: needed by rules that look at the sign of the advantage.
        loss_mask: needed by rules on whole sequences; tokens that are not finite are left out.

    Raises:
        UsageError: no such loss type, a knob is missing, or what the rule needs was not given.
    """
    name = loss.get("type")
    rule = DROP_RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise UsageError(
            f"there is no mask rule for loss type {name!r}",
            f"rules: {', '.join(f'`{known}`' for known in sorted(DROP_RULES))}",
        )
    return _apply(rule, loss, trainer_logprobs, inference_logprobs, advantages, loss_mask)


def clip_mask(
    loss: Mapping[str, Any],
    trainer_logprobs: Array,
    inference_logprobs: Array,
    *,
    advantages: Array | None = None,
    loss_mask: Array | None = None,
) -> Array | None:
    """Where the clip of `loss` is active; None for a loss that has none. See `drop_mask`."""
    rule = CLIP_RULES.get(loss.get("type", ""))
    if rule is None:
        return None
    return _apply(rule, loss, trainer_logprobs, inference_logprobs, advantages, loss_mask)


def cap_mask(
    loss: Mapping[str, Any], trainer_logprobs: Array, inference_logprobs: Array
) -> Array | None:
    """Where r is above the `max_importance_ratio` of `loss`; None for a loss without that cap."""
    if loss.get("max_importance_ratio") is None:
        return None
    return _apply(ratio_cap_mask, loss, trainer_logprobs, inference_logprobs, None, None)


def _apply(
    rule: Callable[..., Any],
    loss: Mapping[str, Any],
    trainer_logprobs: Array,
    inference_logprobs: Array,
    advantages: Array | None,
    loss_mask: Array | None,
) -> Array:
    xp = namespace(trainer_logprobs, inference_logprobs)
    is_finite = ~is_nonfinite(trainer_logprobs, inference_logprobs)
    needs, knobs = _arguments(rule)
    for knob in knobs:
        if loss.get(knob) is None:
            raise UsageError(
                f"the mask of loss `{loss['type']}` lacks its knob `{knob}`",
                "take the resolved configuration, which states every knob",
            )
    given = {"advantages": advantages, "loss_mask": loss_mask}
    for need in needs:
        if given[need] is None:
            raise UsageError(
                f"the mask of loss `{loss['type']}` needs `{need}` of each token",
                "without it the mask can't be told",
            )
    if loss_mask is not None:
        given["loss_mask"] = loss_mask & is_finite
    zeros = xp.zeros_like(trainer_logprobs)
    hit = rule(
        xp.where(is_finite, trainer_logprobs, zeros),
        xp.where(is_finite, inference_logprobs, zeros),
        *(given[need] for need in needs),
        **{knob: loss[knob] for knob in knobs},
    )
    return hit & is_finite


@functools.cache
def _arguments(rule: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what `rule` needs beside the log-probabilities, and its knobs."""
    parameters = inspect.signature(rule).parameters.values()
    knobs = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    positional = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    return positional[2:], knobs


def _surrogate_clip_mask(
    log_ratio: Array, advantages: Array, ratio_low: float, ratio_high: float
) -> Array:
    rose = (advantages > 0) & is_above(log_ratio, ratio_high)
    return rose | ((advantages < 0) & is_below(log_ratio, ratio_low))
