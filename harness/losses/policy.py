"""The losses: from the log-probabilities of sampled tokens to one differentiable scalar.

For every loss

    loss = (1/N) * sum over kept tokens of a term,   N = number of tokens in the loss mask

so that tokens which a mask drops stay in the denominator (prime-rl). With p the trainer's and q
the inference engine's probability of a token, r = p/q, A = adv_tau * advantage, sg = no gradient
and r~ = r capped at M = `max_importance_ratio` in value, with gradient r~ * grad log p:

    ipo, kpop, ipo_band, none    -A r~              on tokens that the mask keeps
    icepop                       -A r               on kept tokens; the band bounds r
    dppo_tv, dppo_kl             -A sg(min(r, M)) log p   on kept tokens
    cispo                        -A sg(clip(r, ratio_low, ratio_high)) log p
    tis                          -A sg(min(r, M)) log p
    ppo, dapo                    -min(A r~, A clip(r~, ratio_low, ratio_high))
    gspo                         -min(A s, A clip(s, ratio_low, ratio_high)), s = exp(mean log r)

`none` is the plain importance-weighted policy gradient: IcePop without its band, uncapped unless
`max_importance_ratio` is given. `tis` has two policies only (the trainer's and the engine's), so
that it is `cispo` without a lower clip and with another default cap. In `gspo` the mean runs over
the loss-mask tokens of a sequence and the gradient flows through s to all of them; each token
carries the sequence's term, so that a sequence weighs as much as it has tokens.

A token with a log-probability that is not finite has no term and no gradient, stays in N, and is
reported in `LossResult.is_nonfinite`. A ratio without a cap is cut at 1e30, so that a zero
advantage times an overflowing ratio is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.losses import masks
from harness.losses.arrays import log_bound
from harness.losses.config import MAX_RATIO, LossConfig
from harness.losses.quantities import is_nonfinite, sequence_log_ratio


@dataclass(frozen=True)
class TokenBatch:
    """The tokens of one update.

    Attributes:
        trainer_logprobs: log p of each sampled token, in nats; carries the gradient.
        inference_logprobs, advantages: without gradient.
        loss_mask: bool; what the other three hold elsewhere is never looked at.

    All are [num_sequences, num_tokens], the first three of one type, float32 or float64 (upcast
    float16 and bfloat16 before: see `harness.losses.masks`).

    Raises:
        ValueError: shapes or types differ from that.
    """

    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    advantages: Tensor
    loss_mask: Tensor

    def __post_init__(self) -> None:
        shape, dtype = self.trainer_logprobs.shape, self.trainer_logprobs.dtype
        if len(shape) != 2:
            raise ValueError(f"want [num_sequences, num_tokens], not {list(shape)}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"want float32 or float64 log-probabilities, not {dtype}")
        for name in ("inference_logprobs", "advantages", "loss_mask"):
            tensor = getattr(self, name)
            want = torch.bool if name == "loss_mask" else dtype
            if tensor.shape != shape or tensor.dtype != want:
                raise ValueError(
                    f"want {name} as {want} {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
                )


@dataclass(frozen=True)
class LossResult:
    """What a loss made of a batch.

    Attributes:
        loss: scalar to call backward on.
        is_masked: [num_sequences, num_tokens]; tokens in the loss mask, finite, that the loss's
            rule leaves without gradient: dropped by the mask, or clipped by the surrogate of
            `ppo`, `dapo` and `gspo`. Never True for `cispo`, `tis` and `none`.
        is_nonfinite: same shape; tokens in the loss mask with a log-probability that is not finite.
    """

    loss: Tensor
    is_masked: Tensor
    is_nonfinite: Tensor


@dataclass(frozen=True)
class _Tokens:
    """A batch made safe: log-probabilities and advantages are 0 where a token doesn't count.

    `advantages` are already multiplied by `adv_tau`.
    """

    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    advantages: Tensor
    is_counted: Tensor
    is_masked: Tensor


def compute_loss(
    config: LossConfig, batch: TokenBatch, *, num_loss_tokens: int | None = None
) -> LossResult:
    """Return the loss of `batch` under `config` (formulas: see the module).

    Args:
        num_loss_tokens: the denominator N where `batch` is one part of an update; by default the
            number of tokens in its loss mask. A denominator of 0 counts as 1: the loss is then 0.
    """
    knobs = vars(config)
    nonfinite: Tensor = batch.loss_mask & is_nonfinite(
        batch.trainer_logprobs.detach(), batch.inference_logprobs
    )
    is_counted = batch.loss_mask & ~nonfinite
    # Selected before any arithmetic: a NaN or an overflow that enters it comes back in the
    # gradient as 0 * inf, whatever is selected afterwards.
    trainer_logprobs = torch.where(is_counted, batch.trainer_logprobs, 0.0)
    inference_logprobs = torch.where(is_counted, batch.inference_logprobs, 0.0)
    advantages = torch.where(is_counted, batch.advantages, 0.0)
    is_masked: Tensor = is_counted & masks.drop_mask(
        knobs,
        trainer_logprobs.detach(),
        inference_logprobs,
        advantages=advantages,
        loss_mask=is_counted,
    )
    tokens = _Tokens(
        trainer_logprobs, inference_logprobs, advantages * config.adv_tau, is_counted, is_masked
    )
    total = LOSSES[config.type](tokens, knobs).sum()
    if num_loss_tokens is None:
        loss = total / batch.loss_mask.sum().clamp(min=1)
    else:
        loss = total / max(num_loss_tokens, 1)
    return LossResult(loss, is_masked, nonfinite)


def _ratio_weighted(tokens: _Tokens, knobs: Mapping[str, Any]) -> Tensor:
    """-A r~ on kept tokens."""
    log_ratio = tokens.trainer_logprobs - tokens.inference_logprobs
    ratio = _capped_ratio(
        torch.where(tokens.is_masked, 0.0, log_ratio), knobs.get("max_importance_ratio")
    )
    return torch.where(tokens.is_masked, 0.0, -tokens.advantages) * ratio


def _likelihood_weighted(tokens: _Tokens, knobs: Mapping[str, Any]) -> Tensor:
    """-A sg(clip(r, ratio_low, cap)) log p on kept tokens."""
    log_ratio = (tokens.trainer_logprobs - tokens.inference_logprobs).detach()
    cap = knobs["max_importance_ratio"] if "max_importance_ratio" in knobs else knobs["ratio_high"]
    weight = log_ratio.clamp(
        min=log_bound(knobs.get("ratio_low", 0.0), log_ratio), max=log_bound(cap, log_ratio)
    ).exp()
    advantages = torch.where(tokens.is_masked, 0.0, -tokens.advantages)
    return advantages * weight * tokens.trainer_logprobs


def _clipped_surrogate(tokens: _Tokens, knobs: Mapping[str, Any]) -> Tensor:
    """-min(A r~, A clip(r~)); `is_masked` says where the clip wins."""
    log_ratio = tokens.trainer_logprobs - tokens.inference_logprobs
    return _surrogate(tokens, log_ratio, knobs)


def _sequence_clipped_surrogate(tokens: _Tokens, knobs: Mapping[str, Any]) -> Tensor:
    """-min(A s, A clip(s)), s = exp(mean log r) over the counted tokens of the sequence."""
    log_ratio: Tensor = sequence_log_ratio(
        tokens.trainer_logprobs, tokens.inference_logprobs, tokens.is_counted
    )
    return _surrogate(tokens, log_ratio.expand_as(tokens.advantages), knobs)


def _surrogate(tokens: _Tokens, log_ratio: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    ratio = _capped_ratio(log_ratio, knobs.get("max_importance_ratio"))
    high = torch.full_like(ratio, knobs["ratio_high"])
    bound = torch.where(tokens.advantages > 0, high, knobs["ratio_low"])
    return -tokens.advantages * torch.where(tokens.is_masked, bound, ratio)


def _capped_ratio(log_ratio: Tensor, cap: float | None) -> Tensor:
    """exp(min(sg log r, log cap) + (log r - sg log r)): value capped, gradient kept (prime-rl)."""
    fixed = log_ratio.detach()
    bound = log_bound(MAX_RATIO if cap is None else cap, log_ratio)
    return torch.exp(fixed.clamp(max=bound) + (log_ratio - fixed))


LOSSES: dict[str, Callable[[_Tokens, Mapping[str, Any]], Tensor]] = {
    "ipo": _ratio_weighted,
    "icepop": _ratio_weighted,
    "kpop": _ratio_weighted,
    "ipo_band": _ratio_weighted,
    "dppo_tv": _likelihood_weighted,
    "dppo_kl": _likelihood_weighted,
    "ppo": _clipped_surrogate,
    "dapo": _clipped_surrogate,
    "cispo": _likelihood_weighted,
    "tis": _likelihood_weighted,
    "gspo": _sequence_clipped_surrogate,
    "none": _ratio_weighted,
}
"""By `loss.type`: from the tokens and the loss's knobs to one term per token,
[num_sequences, num_tokens]; 0 where a token is not counted."""
