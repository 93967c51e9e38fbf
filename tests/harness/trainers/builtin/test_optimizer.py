from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.trainers.builtin.config import OptimConfig
from harness.trainers.builtin.optimizer import (
    clip_gradient,
    init_optimizer,
    learning_rate,
    update_parameters,
)


def make_gradients() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, generator=generator) for _ in range(4)]


def run(config: OptimConfig, start: Tensor, gradients: list[Tensor]) -> Tensor:
    parameters = start.clone()
    state = init_optimizer(config, parameters)
    for gradient in gradients:
        update_parameters(config, state, parameters, gradient, lr=config.lr)
    assert state.num_updates == len(gradients)
    return parameters


def test_sgd_by_hand() -> None:
    config = OptimConfig(type="sgd", lr=0.5)
    got = run(config, torch.tensor([1.0, -2.0]), [torch.tensor([0.5, 1.0])])
    assert got.tolist() == [0.75, -2.5]


def test_sign_sgd_with_weight_decay_by_hand() -> None:
    config = OptimConfig(type="sign_sgd", lr=0.5, weight_decay=0.25)
    # W (1 - 0.125) - 0.5 sign(g)
    got = run(config, torch.tensor([1.0, -2.0, 4.0]), [torch.tensor([0.01, -30.0, 0.0])])
    assert got.tolist() == [0.375, -1.25, 3.5]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_equals_torch(weight_decay: float) -> None:
    config = OptimConfig(type="adamw", lr=0.01, weight_decay=weight_decay, beta1=0.8, beta2=0.95)
    start = torch.linspace(-1, 1, 5)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW(
        [theirs], lr=0.01, betas=(0.8, 0.95), eps=1e-8, weight_decay=weight_decay
    )
    for gradient in make_gradients():
        theirs.grad = gradient.clone()
        optimizer.step()
    got = run(config, start, make_gradients())
    torch.testing.assert_close(got, theirs.detach(), rtol=1e-6, atol=1e-7)


def test_warm_up_is_linear_and_reaches_the_rate_at_its_last_step() -> None:
    config = OptimConfig(lr=0.8, warmup_steps=4)
    rates = [learning_rate(config, step) for step in (1, 2, 3, 4, 5, 400)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert learning_rate(OptimConfig(lr=0.8), 1) == 0.8


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping_equals_torch(max_norm: float) -> None:
    gradient = torch.tensor([3.0, -4.0])
    theirs = torch.zeros(2, requires_grad=True)
    theirs.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([theirs], max_norm)
    clipped = clip_gradient(gradient, gradient.norm(), max_norm)
    torch.testing.assert_close(clipped, theirs.grad)
    assert torch.equal(clip_gradient(gradient, gradient.norm(), None), gradient)
