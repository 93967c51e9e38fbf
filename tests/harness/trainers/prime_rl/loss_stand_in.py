"""TEST DOUBLE of the part of prime-rl that calls a custom loss. Nothing of prime-rl runs here.

It follows the documented contract (prime-rl `docs/algorithms.md`, Custom Loss): one call per
sequence, a sum over the sequence's member tokens, the division by the trainer's own count, and
scalar metrics stacked over sequences. Torch only, so that it runs where this project is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class LossInputs:
    """The fields of late 2026."""

    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = None
    trainer_mask_logprobs: Tensor | None = None
    inference_mask_logprobs: Tensor | None = None


@dataclass
class EarlyLossInputs:
    """The fields of February to June 2026."""

    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    teacher_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor


@dataclass
class LossOutputs:
    """What a loss gives back."""

    loss: Tensor
    metrics: dict[str, Tensor]


def make_inputs(lp: Tensor, lq: Tensor, advantages: Tensor, loss_mask: Tensor) -> LossInputs:
    """Return the inputs of one sequence without weights."""
    return LossInputs(lp, lq, None, advantages, loss_mask)


def compute_loss(
    loss_fn: Callable[[LossInputs], Any], sequences: list[LossInputs], rl_scale: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the scaled loss of packed sequences, and each metric as one value per sequence."""
    total = sequences[0].trainer_logprobs.sum() * 0.0
    metrics: dict[str, list[Tensor]] = {}
    for inputs in sequences:
        outputs = loss_fn(inputs)
        assert type(outputs) is LossOutputs
        assert outputs.loss.dim() == 0
        total = total + outputs.loss
        for key, value in outputs.metrics.items():
            assert value.dim() == 0
            metrics.setdefault(key, []).append(value)
    return total / rl_scale, {key: torch.stack(values) for key, values in metrics.items()}
