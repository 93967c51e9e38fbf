"""This project's losses behind prime-rl's contract for a custom loss.

The contract (prime-rl `docs/algorithms.md`, section Custom Loss, and
`src/prime_rl/trainer/rl/loss.py`): the trainer calls `fn(inputs, **kwargs)` once per sequence. It
reads `loss`, a sum over the tokens in `inputs.loss_mask` that it divides by its own count, and
`metrics`, of which each scalar is stacked over sequences and logged as `<key>/mean`, `<key>/max`
and so on. `inputs.loss_weights`, where there are any, scale the term of each token.

Field names by version: `trainer_logprobs`, `inference_logprobs`, `advantages` and `loss_mask` since
custom losses exist (2026-02); `teacher_logprobs` until 2026-06, `ref_logprobs` and `loss_weights`
since; `trainer_mask_logprobs` and `inference_mask_logprobs` (score centering) later.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.losses.masks import cap_mask, clip_mask
from harness.losses.policy import LossResult, TokenBatch, compute_loss
from harness.losses.quantities import mismatch_k3
from harness.trainers.prime_rl.loss_knobs import complete_knobs

NEEDED_FIELDS = ("trainer_logprobs", "inference_logprobs", "advantages", "loss_mask")

KNOWN_FIELDS = (
    *NEEDED_FIELDS,
    "loss_weights",
    "ref_logprobs",
    "teacher_logprobs",
    "trainer_mask_logprobs",
    "inference_mask_logprobs",
)


@dataclass
class LossOutputs:
    """What prime-rl's class of this name holds; used where that class can't be found."""

    loss: Tensor
    metrics: dict[str, Tensor]


def compute(inputs: Any, **kwargs: Any) -> Any:
    """Return the loss of one sequence and its metrics, as prime-rl's `LossOutputs`.

    A token with a log-probability that is not finite has no term and no gradient; it stays in
    prime-rl's count. An empty loss mask gives a loss of 0 that can be called backward on.

    The work is done in the type of `trainer_logprobs`, float16 and bfloat16 in float32. `gspo`
    relies on one call per sequence; the others sum up alike however tokens are cut into calls.

    Metrics, one scalar per sequence, under prime-rl's keys and definitions:

    - `is_masked`: share of the loss-mask tokens that the loss's rule leaves without gradient.
    - `masked_mismatch_kl`, `unmasked_mismatch_kl`: mean k3 over those tokens, over the other
      finite ones; 0 where there is none.
    - `is_clipped`: for losses that clip a ratio, share of tokens where the clip is active.
    - `ratio_capped`: for losses with a `max_importance_ratio`, share of tokens beyond it.
    - `mismatch_kl`: mean k3 over finite tokens, only for versions of prime-rl that don't log
      `mismatch_kl/all/mean` themselves (before 2026-05).
    - `is_nonfinite` (not a key of prime-rl): share of tokens with a log-probability that is not
      finite. They count in every share and in no KL.

    Args:
        inputs: prime-rl's `LossInputs`.
        kwargs: `type`, the loss's name, and its knobs; knobs that are left out take their defaults.

    Raises:
        UsageError: unknown type or knobs, values out of bounds; fields of `inputs` that are missing
            or not known to be harmless; shapes that differ; weights below 0.
    """
    knobs = complete_knobs(kwargs)
    fields = _read_fields(inputs)
    batch = _to_batch(fields)
    config: Any = SimpleNamespace(**knobs)
    result = compute_loss(config, batch, num_loss_tokens=1)
    metrics = _summarize(knobs, batch, result)
    if _trainer_logs_mismatch_kl(inputs, fields):
        del metrics["mismatch_kl"]
    outputs = getattr(sys.modules.get(type(inputs).__module__), "LossOutputs", LossOutputs)
    return outputs(loss=result.loss, metrics=metrics)


def _read_fields(inputs: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(inputs):
        names = [field.name for field in dataclasses.fields(inputs)]
    else:
        names = list(getattr(inputs, "__dict__", {}))
    fields = {name: getattr(inputs, name) for name in names}
    found = f"fields of {type(inputs).__name__}: {', '.join(names) or 'none'}"
    missing = [name for name in NEEDED_FIELDS if fields.get(name) is None]
    if missing:
        raise UsageError(f"this version of prime-rl gives a loss no {', '.join(missing)}", found)
    # A stream that selects or weighs tokens would change the loss without a trace if it were
    # ignored; what else a version may add is nothing that these losses look at.
    strange = [
        name
        for name, value in fields.items()
        if value is not None and name not in KNOWN_FIELDS and ("mask" in name or "weight" in name)
    ]
    if strange:
        raise UsageError(
            f"this version of prime-rl gives a loss {', '.join(strange)}, unknown here", found
        )
    return fields


def _to_batch(fields: dict[str, Any]) -> TokenBatch:
    trainer_logprobs = fields["trainer_logprobs"]
    shape = trainer_logprobs.shape
    for name in (*NEEDED_FIELDS, "loss_weights"):
        tensor = fields.get(name)
        if tensor is not None and (tensor.dim() != 1 or tensor.shape != shape):
            raise UsageError(
                f"want one sequence, [num_tokens], of one length; `{name}` is "
                f"{list(tensor.shape)} and `trainer_logprobs` {list(shape)}"
            )
    dtype = torch.promote_types(trainer_logprobs.dtype, torch.float32)
    advantages = fields["advantages"].detach().to(dtype)
    loss_mask = fields["loss_mask"].to(torch.bool)
    weights = fields.get("loss_weights")
    if weights is not None:
        if bool(((weights < 0) & loss_mask).any()):
            raise UsageError("want `loss_weights` of at least 0: these losses can't turn a term")
        # Every term is A times something that depends on A by its sign alone, so that a positive
        # weight on the term and one on the advantage are the same.
        advantages = advantages * weights.detach().to(dtype)
    inference_logprobs = fields["inference_logprobs"].detach().to(dtype)
    tensors = (trainer_logprobs.to(dtype), inference_logprobs, advantages, loss_mask)
    return TokenBatch(*(tensor.unsqueeze(0) for tensor in tensors))


@torch.no_grad()
def _summarize(knobs: dict[str, Any], batch: TokenBatch, result: LossResult) -> dict[str, Tensor]:
    """Return the metrics of `compute`, `mismatch_kl` among them."""
    is_finite = batch.loss_mask & ~result.is_nonfinite
    trainer_logprobs = torch.where(is_finite, batch.trainer_logprobs, 0.0)
    inference_logprobs = torch.where(is_finite, batch.inference_logprobs, 0.0)
    k3: Tensor = mismatch_k3(trainer_logprobs, inference_logprobs)

    def share(mask: Tensor) -> Tensor:
        return _mean((mask & batch.loss_mask).to(k3.dtype), batch.loss_mask)

    metrics = {
        "mismatch_kl": _mean(k3, is_finite),
        "masked_mismatch_kl": _mean(k3, result.is_masked),
        "unmasked_mismatch_kl": _mean(k3, is_finite & ~result.is_masked),
        "is_masked": share(result.is_masked),
        "is_nonfinite": share(result.is_nonfinite),
    }
    clipped: Tensor | None = clip_mask(
        knobs,
        trainer_logprobs,
        inference_logprobs,
        advantages=batch.advantages,
        loss_mask=is_finite,
    )
    if clipped is not None:
        metrics["is_clipped"] = share(clipped & is_finite)
    capped: Tensor | None = cap_mask(knobs, trainer_logprobs, inference_logprobs)
    if capped is not None:
        metrics["ratio_capped"] = share(capped)
    return metrics


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over `mask`; 0 where it is empty. Divides first: k3 goes up to 1e30 in a float32."""
    return torch.where(mask, values / mask.sum().clamp(min=1), 0.0).sum()


def _trainer_logs_mismatch_kl(inputs: Any, fields: dict[str, Any]) -> bool:
    """Whether the trainer logs `mismatch_kl/all/mean` itself (prime-rl #2478, 2026-05)."""
    module = sys.modules.get(type(inputs).__module__)
    is_2478 = hasattr(module, "compute_importance_ratio_and_mismatch_kl")
    return is_2478 or "ref_logprobs" in fields
