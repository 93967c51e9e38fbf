"""The policy: a causal transformer with mixture-of-experts MLPs, as plain functions on tensors.

All parameters lie in one flat float32 vector, so that an optimiser step, a gradient norm or a
copy for the weight queue is one operation. `unflatten` gives the named views.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from harness.trainers.builtin.config import MoeTransformerConfig

_NORM_EPS = 1e-6

Rounding = Callable[[Tensor], Tensor]


def exact(value: Tensor) -> Tensor:
    """Return `value`: the rounding of the trainer, which has none."""
    return value


@dataclass(frozen=True)
class Precision:
    """What an engine rounds on the way: matrix inputs and residual stream; keys and values."""

    activations: Rounding = exact
    cache: Rounding = exact


EXACT = Precision()


@dataclass(frozen=True)
class ParameterSpec:
    """One parameter. `is_matrix` is False for norms and routers, which an engine never rounds.

    `init_std` is the standard deviation it starts with; None = ones.
    """

    name: str
    shape: tuple[int, ...]
    is_matrix: bool
    init_std: float | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class LayerWeights:
    """One layer; d = dim, e = experts, f = hidden units per expert.

    attention_norm, mlp_norm [d]; qkv [d, 3d]; attention_out [d, d]; router [d, e];
    expert_in [d, e*f]; expert_out [e*f, d], experts one after the other.
    """

    attention_norm: Tensor
    qkv: Tensor
    attention_out: Tensor
    mlp_norm: Tensor
    router: Tensor
    expert_in: Tensor
    expert_out: Tensor


@dataclass(frozen=True)
class Weights:
    """Named parameters: embedding [v, d], position [p, d], final_norm [d], head [d, v]."""

    embedding: Tensor
    position: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


@dataclass
class KeyValueCache:
    """Keys and values of every layer, [n, heads, positions, d / heads], filled to `length`."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store `keys` and `values` after the first `length`; return all up to there."""
        end = self.length + keys.shape[2]
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


@dataclass(frozen=True)
class Model:
    """An architecture with its sizes: what turns a flat vector into a policy.

    `causal_mask` [positions, positions] is 0 where attention is allowed, -inf elsewhere.
    """

    config: MoeTransformerConfig
    specs: tuple[ParameterSpec, ...]
    causal_mask: Tensor

    @property
    def num_parameters(self) -> int:
        return sum(spec.size for spec in self.specs)


def make_model(
    config: MoeTransformerConfig,
    *,
    vocabulary_size: int,
    num_positions: int,
    device: torch.device | None = None,
) -> Model:
    """Return the model for sequences of at most `num_positions` of `vocabulary_size` tokens."""
    mask = torch.full((num_positions, num_positions), -math.inf, device=device).triu(diagonal=1)
    return Model(config, _parameter_specs(config, vocabulary_size, num_positions), mask)


def _parameter_specs(
    config: MoeTransformerConfig, vocabulary_size: int, num_positions: int
) -> tuple[ParameterSpec, ...]:
    dim = config.dim
    hidden = config.num_experts * config.expert_dim
    specs = [
        _matrix("embedding", vocabulary_size, dim, fan_in=dim),
        _matrix("position", num_positions, dim, fan_in=dim),
    ]
    for i in range(config.num_layers):
        specs += [
            _norm(f"layers.{i}.attention_norm", dim),
            _matrix(f"layers.{i}.qkv", dim, 3 * dim, fan_in=dim),
            _matrix(f"layers.{i}.attention_out", dim, dim, fan_in=dim),
            _norm(f"layers.{i}.mlp_norm", dim),
            ParameterSpec(
                f"layers.{i}.router", (dim, config.num_experts), False, 1 / math.sqrt(dim)
            ),
            _matrix(f"layers.{i}.expert_in", dim, hidden, fan_in=dim),
            _matrix(f"layers.{i}.expert_out", hidden, dim, fan_in=config.expert_dim),
        ]
    specs += [_norm("final_norm", dim), _matrix("head", dim, vocabulary_size, fan_in=dim)]
    return tuple(specs)


def _matrix(name: str, rows: int, columns: int, *, fan_in: int) -> ParameterSpec:
    return ParameterSpec(name, (rows, columns), True, 1 / math.sqrt(fan_in))


def _norm(name: str, dim: int) -> ParameterSpec:
    return ParameterSpec(name, (dim,), False, None)


def init_parameters(model: Model, generator: torch.Generator) -> Tensor:
    """Return fresh parameters [num_parameters] (float32, CPU): normal, variance 1 / fan-in."""
    parts = [
        torch.ones(spec.size)
        if spec.init_std is None
        else torch.randn(spec.size, generator=generator) * spec.init_std
        for spec in model.specs
    ]
    return torch.cat(parts)


def split_parameters(model: Model, flat: Tensor) -> list[Tensor]:
    """Return the parameters as views of `flat`, in the order of `model.specs`."""
    parts = torch.split(flat, [spec.size for spec in model.specs])
    return [part.view(spec.shape) for part, spec in zip(parts, model.specs, strict=True)]


def name_parameters(model: Model, parameters: list[Tensor]) -> Weights:
    """Return tensors in the order of `model.specs` under their names."""
    embedding, position, *layered, final_norm, head = parameters
    per_layer = len(layered) // model.config.num_layers
    layers = tuple(
        LayerWeights(*layered[start : start + per_layer])
        for start in range(0, len(layered), per_layer)
    )
    return Weights(embedding, position, layers, final_norm, head)


def unflatten(model: Model, flat: Tensor) -> Weights:
    """Return `flat` [num_parameters] as named views; gradients flow back to it."""
    return name_parameters(model, split_parameters(model, flat))


def compute_logits(
    model: Model,
    weights: Weights,
    tokens: Tensor,
    *,
    first: int = 0,
    cache: KeyValueCache | None = None,
    precision: Precision = EXACT,
) -> Tensor:
    """Return next-token logits [n, tokens - first, vocabulary] (float32).

    Args:
        tokens: [n, tokens], int64; they stand after what `cache` already holds.
        first: logits of earlier positions are not computed.
        cache: read and extended, in an engine; None in training.
    """
    low = precision.activations
    num_sequences, num_tokens = tokens.shape
    start = 0 if cache is None else cache.length
    end = start + num_tokens
    position = weights.position[start:end]
    stream = low(functional.embedding(tokens, weights.embedding) + position)
    stream = stream.view(num_sequences * num_tokens, model.config.dim)
    mask = model.causal_mask[start:end, :end] if num_tokens > 1 else None
    for i, layer in enumerate(weights.layers):
        normed = low(_rms_norm(stream, layer.attention_norm))
        queries_keys_values = low(normed @ layer.qkv)
        context = _attend(model, queries_keys_values, num_sequences, mask, i, cache, precision)
        stream = low(stream + low(context) @ layer.attention_out)
        normed = low(_rms_norm(stream, layer.mlp_norm))
        stream = low(stream + _mix_experts(model, layer, normed, low))
    if cache is not None:
        cache.length = end
    stream = stream.view(num_sequences, num_tokens, model.config.dim)[:, first:]
    return low(_rms_norm(stream, weights.final_norm)) @ weights.head


def _rms_norm(value: Tensor, scale: Tensor) -> Tensor:
    return functional.rms_norm(value, scale.shape, scale, _NORM_EPS)


def _attend(
    model: Model,
    queries_keys_values: Tensor,
    num_sequences: int,
    mask: Tensor | None,
    layer: int,
    cache: KeyValueCache | None,
    precision: Precision,
) -> Tensor:
    """Return the heads' outputs side by side, [n * tokens, d], of [n * tokens, 3d] inputs."""
    dim, num_heads = model.config.dim, model.config.num_heads
    head_dim = dim // num_heads
    by_head = queries_keys_values.view(num_sequences, -1, 3, num_heads, head_dim)
    queries, keys, values = by_head.permute(2, 0, 3, 1, 4).unbind(0)
    keys, values = precision.cache(keys), precision.cache(values)
    if cache is not None:
        keys, values = cache.extend(layer, keys, values)
    scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(head_dim))
    if mask is not None:
        scores = scores + mask
    context = precision.activations(scores.softmax(-1)) @ values
    return context.transpose(1, 2).reshape(-1, dim)


def _mix_experts(model: Model, layer: LayerWeights, normed: Tensor, low: Rounding) -> Tensor:
    """Return the gated sum of the chosen experts' outputs, [n, d], of inputs [n, d].

    Every expert is computed and the others' gates are 0: at this size one matrix product costs
    less than gathering tokens by expert. Gates: softmax over the chosen experts' router logits.
    """
    config = model.config
    router_logits = normed @ layer.router
    chosen_logits, chosen = router_logits.topk(config.num_active_experts, dim=-1)
    gates = torch.zeros_like(router_logits).scatter(-1, chosen, chosen_logits.softmax(-1))
    hidden = torch.relu(normed @ layer.expert_in)
    gated = hidden.view(-1, config.num_experts, config.expert_dim) * gates.unsqueeze(-1)
    return low(gated.view(hidden.shape)) @ layer.expert_out
