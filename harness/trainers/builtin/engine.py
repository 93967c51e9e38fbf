"""The inference engine: older weights in lower precision, a key-value cache, and faults.

It answers with sampled tokens and the log-probabilities it had for them. These differ from the
trainer's as those of a real serving engine do, and for the same reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.trainers.builtin.config import DriftConfig, EngineConfig
from harness.trainers.builtin.model import (
    KeyValueCache,
    Model,
    Precision,
    Rounding,
    Weights,
    compute_logits,
    exact,
    name_parameters,
    split_parameters,
)
from harness.trainers.builtin.quantize import (
    fake_quantize_fp8,
    fake_quantize_int4,
    fake_quantize_int8,
    round_to_bf16,
    round_to_fp8,
)
from harness.trainers.builtin.seeds import make_generator

_WEIGHT_FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": fake_quantize_fp8,
    "int8": fake_quantize_int8,
    "int4": fake_quantize_int4,
    "none": exact,
}
_VALUE_FORMATS: dict[str, Rounding] = {"bf16": round_to_bf16, "fp8": round_to_fp8, "none": exact}

EXACT_ENGINE = EngineConfig(weights="none", activations="none", kv_cache="none", staleness=0)
"""An engine that agrees with the trainer up to the order of float32 additions."""


@dataclass(frozen=True)
class Engine:
    """An engine for one model. `drift_noise` [num_parameters] is its fault's one fixed draw."""

    model: Model
    config: EngineConfig
    drift_noise: Tensor | None

    @property
    def precision(self) -> Precision:
        config = self.config
        return Precision(_VALUE_FORMATS[config.activations], _VALUE_FORMATS[config.kv_cache])


@dataclass(frozen=True)
class Samples:
    """Responses with the engine's log-probabilities: int64 and float32 [n, response tokens].

    Tokens after an end token are end tokens with log-probability 0.
    """

    responses: Tensor
    logprobs: Tensor


def make_engine(model: Model, config: EngineConfig, *, seed: int, replicate: int = 0) -> Engine:
    """Return the engine of a run, whose `seed` and `replicate` fix the pattern of its fault."""
    noise = None
    if config.drift.scale > 0:
        generator = make_generator(seed, "drift", config.drift.seed, replicate=replicate)
        noise = torch.randn(model.num_parameters, generator=generator).to(model.causal_mask.device)
    return Engine(model, config, noise)


def drift_scale(config: DriftConfig, policy_step: int) -> float:
    """Return b(t): 0 up to `start_step`, then linear to `scale` at `end_step`, then held."""
    if policy_step >= config.end_step:
        return config.scale
    if policy_step <= config.start_step:
        return 0.0
    elapsed = policy_step - config.start_step
    return config.scale * elapsed / (config.end_step - config.start_step)


@torch.inference_mode()
def load_weights(engine: Engine, parameters: Tensor, *, policy_step: int) -> Weights:
    """Return what the engine serves for the trainer's `parameters` [num_parameters].

    Matrices are rounded to the engine's format, then multiplied elementwise by 1 + b(t) * N, N
    being the fault's fixed draw and t the policy step. Norms and routers stay as they are.
    """
    quantize = _WEIGHT_FORMATS[engine.config.weights]
    scale = drift_scale(engine.config.drift, policy_step)
    noises = (
        split_parameters(engine.model, engine.drift_noise)
        if engine.drift_noise is not None and scale > 0
        else None
    )
    served = []
    for i, value in enumerate(split_parameters(engine.model, parameters)):
        if not engine.model.specs[i].is_matrix:
            served.append(value)
            continue
        rounded = quantize(value)
        served.append(rounded if noises is None else rounded * (1 + scale * noises[i]))
    return name_parameters(engine.model, served)


def sample(
    engine: Engine,
    weights: Weights,
    prompts: Tensor,
    noise: Tensor,
    *,
    temperature: float,
    end_token: int | None,
) -> Samples:
    """Sample responses token by token.

    Args:
        prompts: [prompts, prompt tokens], int64; each is read once for all its responses.
        noise: standard Gumbel noise [prompts * per_prompt, response tokens, vocabulary]; a token
            is the argmax of its log-probability plus noise. Responses of a prompt stand together.
        end_token: ends a response; None where all have full length.
    """
    responses, logprobs = _sample(engine, weights, prompts, noise, temperature, end_token)
    # Copies, as the trainer's backward pass can't read tensors of inference mode.
    return Samples(responses.clone(), logprobs.clone())


@torch.inference_mode()
def _sample(
    engine: Engine,
    weights: Weights,
    prompts: Tensor,
    noise: Tensor,
    temperature: float,
    end_token: int | None,
) -> tuple[Tensor, Tensor]:
    num_sequences, num_tokens, _ = noise.shape
    per_prompt = num_sequences // prompts.shape[0]
    precision = engine.precision
    responses = torch.empty(num_sequences, num_tokens, dtype=torch.int64, device=noise.device)
    logprobs = torch.zeros(num_sequences, num_tokens, device=noise.device)
    # The last token is sampled and never read.
    cache = _empty_cache(engine.model, prompts.shape[0], prompts.shape[1] + num_tokens - 1)
    tokens = prompts
    for i in range(num_tokens):
        last = tokens.shape[1] - 1
        logits = compute_logits(
            engine.model, weights, tokens, first=last, cache=cache, precision=precision
        ).squeeze(1)
        if i == 0:
            logits = logits.repeat_interleave(per_prompt, dim=0)
            cache = _repeat_cache(cache, per_prompt)
        if temperature != 1:
            logits = logits / temperature
        all_logprobs = logits.log_softmax(-1)
        tokens = (all_logprobs + noise[:, i]).argmax(-1, keepdim=True)
        chosen_logprobs = all_logprobs.gather(-1, tokens)
        if end_token is not None and i > 0:
            has_ended = responses[:, i - 1 : i] == end_token
            if bool(has_ended.all()):
                responses[:, i:] = end_token
                break
            tokens = tokens.masked_fill(has_ended, end_token)
            chosen_logprobs = chosen_logprobs.masked_fill(has_ended, 0.0)
        responses[:, i] = tokens[:, 0]
        logprobs[:, i] = chosen_logprobs[:, 0]
    return responses, logprobs


def _empty_cache(model: Model, num_sequences: int, num_positions: int) -> KeyValueCache:
    config = model.config
    shape = (num_sequences, config.num_heads, num_positions, config.dim // config.num_heads)
    device = model.causal_mask.device
    return KeyValueCache(
        keys=[torch.zeros(shape, device=device) for _ in range(config.num_layers)],
        values=[torch.zeros(shape, device=device) for _ in range(config.num_layers)],
    )


def _repeat_cache(cache: KeyValueCache, times: int) -> KeyValueCache:
    return KeyValueCache(
        keys=[keys.repeat_interleave(times, dim=0) for keys in cache.keys],
        values=[values.repeat_interleave(times, dim=0) for values in cache.values],
        length=cache.length,
    )
