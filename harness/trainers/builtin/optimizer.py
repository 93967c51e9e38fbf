"""Optimisers on one flat parameter vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.trainers.builtin.config import OptimConfig

_CLIP_EPS = 1e-6


@dataclass
class OptimizerState:
    """What an optimiser remembers: the averages [num_parameters] of AdamW, else nothing.

    `num_updates` counts the updates made.
    """

    num_updates: int
    averages: tuple[Tensor, ...]


def init_optimizer(config: OptimConfig, parameters: Tensor) -> OptimizerState:
    """Return the state before the first update of `parameters` [num_parameters]."""
    if config.type == "adamw":
        return OptimizerState(0, (torch.zeros_like(parameters), torch.zeros_like(parameters)))
    return OptimizerState(0, ())


def learning_rate(config: OptimConfig, step: int) -> float:
    """Return the rate of the update `step` (1, 2, ...): a linear rise, then constant."""
    if step < config.warmup_steps:
        return config.lr * step / config.warmup_steps
    return config.lr


def clip_gradient(gradient: Tensor, norm: Tensor, max_norm: float | None) -> Tensor:
    """Return `gradient` scaled so that its norm is at most `max_norm` (as torch's clip does)."""
    if max_norm is None:
        return gradient
    return gradient * (max_norm / (norm + _CLIP_EPS)).clamp(max=1.0)


@torch.no_grad()
def update_parameters(
    config: OptimConfig, state: OptimizerState, parameters: Tensor, gradient: Tensor, *, lr: float
) -> None:
    """Update `parameters` [num_parameters] and `state` in place.

    Every type decays weights first, by the factor 1 - lr * weight_decay. Then, g the gradient:
    `sgd` subtracts lr * g, `sign_sgd` lr * sign(g), `adamw` the step of Loshchilov and Hutter
    2019, "Decoupled weight decay regularization", algorithm 2.
    """
    state.num_updates += 1
    if config.weight_decay:
        parameters.mul_(1 - lr * config.weight_decay)
    if config.type == "sgd":
        parameters.add_(gradient, alpha=-lr)
    elif config.type == "sign_sgd":
        parameters.add_(gradient.sign(), alpha=-lr)
    else:
        _adam_step(config, state, parameters, gradient, lr)


def _adam_step(
    config: OptimConfig, state: OptimizerState, parameters: Tensor, gradient: Tensor, lr: float
) -> None:
    average, average_of_squares = state.averages
    average.lerp_(gradient, 1 - config.beta1)
    average_of_squares.mul_(config.beta2).addcmul_(gradient, gradient, value=1 - config.beta2)
    correction = 1 - config.beta1**state.num_updates
    correction_of_squares = 1 - config.beta2**state.num_updates
    root = (average_of_squares / correction_of_squares).sqrt_().add_(config.eps)
    parameters.addcdiv_(average, root, value=-lr / correction)
