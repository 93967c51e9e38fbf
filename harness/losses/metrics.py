"""What a training step logs about its tokens, under prime-rl's keys.

Tokens are those of the loss mask. Two averages must not be confused:

- `mismatch_kl/all/*`, `is_masked/token_mean`, `token_class/*` run over tokens;
- `is_masked/mean`, `is_clipped/mean`, `ratio_capped/mean`, `masked_mismatch_kl/mean` and
  `unmasked_mismatch_kl/mean` are prime-rl's: a value per sequence, then the plain mean over
  sequences, whatever their lengths. Sequences without a token in the loss mask are left out
  (prime-rl never ships them). In the two KLs a sequence without a token of that kind counts as 0,
  which draws `masked_mismatch_kl/mean` towards 0 where masking is rare.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from harness.losses import masks
from harness.losses.config import LossConfig
from harness.losses.policy import LossResult, TokenBatch
from harness.losses.quantities import MAX_LOG_RATIO


@torch.no_grad()
def token_metrics(config: LossConfig, batch: TokenBatch, result: LossResult) -> dict[str, float]:
    """Return the metrics of `batch` and of what the loss made of it.

    A mean over nothing (an empty loss mask, no kept token) is not reported: its key is absent.

    - `mismatch_kl/all/{mean,std,max}`: k3 in nats over finite tokens; std is the sample's (n - 1).
    - `is_masked/mean`, `is_masked/token_mean`: share of tokens that the loss's rule leaves without
      gradient (`LossResult.is_masked`: for `ppo`, `dapo` and `gspo` the clipped ones).
    - `masked_mismatch_kl/mean`, `unmasked_mismatch_kl/mean`: k3 over those tokens, over the others.
    - `is_clipped/mean`: for losses that clip a ratio, share of tokens where the clip is active; in
      `cispo` the weight is then the bound, and the gradient stays.
    - `ratio_capped/mean`: for losses with a `max_importance_ratio`, share of tokens beyond it,
      masked ones included.
    - `importance_ratio/max_kept`: largest r, before any cap (up to 1e30), of a token with gradient.
    - `token_class/rise`, `token_class/drop`: shares, see `masks.rise_class` and `drop_class`.
    - `nonfinite/count`: tokens whose log-probability is not finite. They are in every share's
      denominator and in no KL and no ratio.
    - `loss/mean`: the loss.
    """
    if not batch.loss_mask.numel():
        return {"nonfinite/count": 0.0, "loss/mean": float(result.loss)}
    loss_mask, is_masked = batch.loss_mask, result.is_masked
    is_finite = loss_mask & ~result.is_nonfinite
    trainer_logprobs = torch.where(is_finite, batch.trainer_logprobs, 0.0)
    inference_logprobs = torch.where(is_finite, batch.inference_logprobs, 0.0)
    is_kept = is_finite & ~is_masked

    knobs = vars(config)
    clipped: Tensor | None = masks.clip_mask(
        knobs,
        trainer_logprobs,
        inference_logprobs,
        advantages=batch.advantages,
        loss_mask=is_finite,
    )
    capped: Tensor | None = masks.cap_mask(knobs, trainer_logprobs, inference_logprobs)
    marks = {
        "loss_mask": loss_mask,
        "is_finite": is_finite,
        "is_masked": is_masked,
        "is_kept": is_kept,
        "rise": masks.rise_class(trainer_logprobs, inference_logprobs),
        "drop": masks.drop_class(trainer_logprobs, inference_logprobs),
        **({} if clipped is None else {"is_clipped": clipped & is_finite}),
        **({} if capped is None else {"ratio_capped": capped}),
    }
    k3: Tensor = masks.mismatch_k3(trainer_logprobs, inference_logprobs).double()
    num_finite = is_finite.sum().clamp(min=1)
    deviation = torch.where(is_finite, k3 - k3.sum() / num_finite, 0.0)
    sums = torch.stack([k3, k3 * is_masked, k3 * is_kept, deviation * deviation]).sum(-1)
    log_ratio = trainer_logprobs - inference_logprobs
    largest = torch.where(is_kept, log_ratio, -math.inf).max().double()

    # One transfer: on a GPU each .item() would wait for the stream.
    counts = torch.stack(list(marks.values())).sum(-1, dtype=torch.float64)
    extremes = torch.stack([k3.max(), largest, result.loss.double()])
    table = torch.cat([counts.flatten(), sums.flatten(), extremes]).cpu().numpy()
    return _summarize(list(marks), loss_mask.shape[0], table)


def _summarize(names: list[str], num_sequences: int, table: np.ndarray) -> dict[str, float]:
    """Return the metrics from sums per sequence.

    Args:
        table: [(len(names) + 4) * num_sequences + 3]: token counts per mark and sequence; k3 of
            all, masked and kept tokens and its squared deviations, per sequence; largest k3;
            largest log-ratio of a kept token; the loss.
    """
    max_k3, max_log_ratio, loss = table[-3:].tolist()
    per_sequence = table[:-3].reshape(-1, num_sequences)
    per_sequence = per_sequence[:, per_sequence[0] > 0]
    counts = dict(zip(names, per_sequence, strict=False))
    k3, masked_k3, kept_k3, deviations = per_sequence[len(names) :]
    num_tokens, num_finite = counts["loss_mask"].sum(), counts["is_finite"].sum()
    metrics = {"nonfinite/count": num_tokens - num_finite, "loss/mean": loss}
    if not num_tokens:
        return {key: float(value) for key, value in metrics.items()}
    metrics |= {
        "is_masked/token_mean": counts["is_masked"].sum() / num_tokens,
        "token_class/rise": counts["rise"].sum() / num_tokens,
        "token_class/drop": counts["drop"].sum() / num_tokens,
        "masked_mismatch_kl/mean": _mean_of_means(masked_k3, counts["is_masked"]),
        "unmasked_mismatch_kl/mean": _mean_of_means(kept_k3, counts["is_kept"]),
    }
    for name in ("is_masked", "is_clipped", "ratio_capped"):
        if name in counts:
            metrics[f"{name}/mean"] = (counts[name] / counts["loss_mask"]).mean()
    if num_finite:
        metrics["mismatch_kl/all/mean"] = k3.sum() / num_finite
        metrics["mismatch_kl/all/max"] = max_k3
    if num_finite > 1:
        metrics["mismatch_kl/all/std"] = math.sqrt(deviations.sum() / (num_finite - 1))
    if counts["is_kept"].any():
        metrics["importance_ratio/max_kept"] = math.exp(min(max_log_ratio, MAX_LOG_RATIO))
    return {key: float(value) for key, value in metrics.items()}


def _mean_of_means(sums: np.ndarray, counts: np.ndarray) -> float:
    return float((sums / np.maximum(counts, 1)).mean())
