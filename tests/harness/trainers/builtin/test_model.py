from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness.trainers.builtin.config import MoeTransformerConfig
from harness.trainers.builtin.model import (
    Model,
    compute_logits,
    init_parameters,
    make_model,
    unflatten,
)

CONFIG = MoeTransformerConfig(
    dim=8, num_layers=2, num_heads=2, num_experts=3, num_active_experts=2, expert_dim=5
)


@pytest.fixture
def model() -> Model:
    return make_model(CONFIG, vocabulary_size=7, num_positions=6)


@pytest.fixture
def parameters(model: Model) -> torch.Tensor:
    flat = init_parameters(model, torch.Generator().manual_seed(3))
    # Norm scales start at one: others show that they are used.
    return flat + 0.05 * torch.randn(len(flat), generator=torch.Generator().manual_seed(4))


def reference_logits(model: Model, flat: torch.Tensor, tokens: list[int]) -> np.ndarray:
    """The same architecture written down again, one token and one expert at a time, in float64."""
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for spec in model.specs:
        part = flat[start : start + spec.size].double().numpy()
        arrays[spec.name] = part.reshape(spec.shape)
        start += spec.size
    dim, heads = CONFIG.dim, CONFIG.num_heads
    width = dim // heads

    def norm(x: np.ndarray, scale: np.ndarray) -> Any:
        return x / np.sqrt((x * x).mean() + 1e-6) * scale

    def softmax(x: np.ndarray) -> Any:
        return np.exp(x - x.max()) / np.exp(x - x.max()).sum()

    streams = [arrays["embedding"][t] + arrays["position"][i] for i, t in enumerate(tokens)]
    for layer in range(CONFIG.num_layers):

        def get(name: str, layer: int = layer) -> np.ndarray:
            return arrays[f"layers.{layer}.{name}"]

        projected = [norm(x, get("attention_norm")) @ get("qkv") for x in streams]
        attended = []
        for i in range(len(streams)):
            heads_out = []
            for h in range(heads):
                head = slice(h * width, (h + 1) * width)
                query = projected[i][:dim][head]
                keys = [projected[j][dim : 2 * dim][head] for j in range(i + 1)]
                values = [projected[j][2 * dim :][head] for j in range(i + 1)]
                weights = softmax(np.array([query @ key for key in keys]) / np.sqrt(width))
                heads_out.append(sum(w * v for w, v in zip(weights, values, strict=True)))
            attended.append(np.concatenate(heads_out) @ get("attention_out"))
        streams = [x + a for x, a in zip(streams, attended, strict=True)]
        mixed = []
        for x in streams:
            normed = norm(x, get("mlp_norm"))
            router = normed @ get("router")
            chosen = np.argsort(-router)[: CONFIG.num_active_experts]
            out = np.zeros(dim)
            for gate, expert in zip(softmax(router[chosen]), chosen, strict=True):
                units = slice(expert * CONFIG.expert_dim, (expert + 1) * CONFIG.expert_dim)
                hidden = np.maximum(normed @ get("expert_in")[:, units], 0)
                out += gate * (hidden @ get("expert_out")[units])
            mixed.append(out)
        streams = [x + m for x, m in zip(streams, mixed, strict=True)]
    return np.array([norm(x, arrays["final_norm"]) @ arrays["head"] for x in streams])


def test_logits_equal_an_independent_implementation(model: Model, parameters: torch.Tensor) -> None:
    tokens = [[1, 4, 0, 6, 2, 2], [5, 5, 3, 1, 0, 4]]
    logits = compute_logits(model, unflatten(model, parameters), torch.tensor(tokens))
    assert logits.shape == (2, 6, 7)
    for got, sequence in zip(logits, tokens, strict=True):
        expected = reference_logits(model, parameters, sequence)
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-4, atol=2e-5)


def test_logits_do_not_depend_on_later_tokens(model: Model, parameters: torch.Tensor) -> None:
    weights = unflatten(model, parameters)
    one = compute_logits(model, weights, torch.tensor([[1, 4, 0, 6, 2]]))
    other = compute_logits(model, weights, torch.tensor([[1, 4, 0, 3, 5]]))
    assert torch.equal(one[:, :3], other[:, :3])
    assert not torch.equal(one[:, 3], other[:, 3])


def test_first_leaves_earlier_logits_out(model: Model, parameters: torch.Tensor) -> None:
    weights = unflatten(model, parameters)
    tokens = torch.tensor([[1, 4, 0, 6, 2]])
    all_logits = compute_logits(model, weights, tokens)
    later = compute_logits(model, weights, tokens, first=3)
    torch.testing.assert_close(later, all_logits[:, 3:])


def test_every_parameter_gets_a_gradient(model: Model, parameters: torch.Tensor) -> None:
    leaf = parameters.requires_grad_()
    tokens = torch.arange(42).view(7, 6) % 7
    total = compute_logits(model, unflatten(model, leaf), tokens).square().sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    start = 0
    for spec in model.specs:
        assert gradient[start : start + spec.size].abs().sum() > 0, spec.name
        start += spec.size
    assert start == model.num_parameters


def test_default_size() -> None:
    model = make_model(MoeTransformerConfig(), vocabulary_size=17, num_positions=16)
    # Embedding and head 2 * 17 * 32, positions 16 * 32, final norm 32; a layer has attention
    # 4 * 32^2, experts 4 * 2 * 32^2, router 32 * 4, norms 2 * 32.
    assert model.num_parameters == 1088 + 512 + 32 + 2 * (4096 + 8192 + 128 + 64)


def test_init_depends_on_the_generator_alone(model: Model) -> None:
    draws = [init_parameters(model, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_norms_and_routers_are_no_matrices(model: Model) -> None:
    others = {spec.name.split(".")[-1] for spec in model.specs if not spec.is_matrix}
    assert others == {"attention_norm", "mlp_norm", "router", "final_norm"}
