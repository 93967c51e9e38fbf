from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.losses.quantities import mismatch_k3
from harness.trainers.builtin.config import DriftConfig, EngineConfig, MoeTransformerConfig
from harness.trainers.builtin.engine import (
    EXACT_ENGINE,
    Samples,
    drift_scale,
    load_weights,
    make_engine,
    sample,
)
from harness.trainers.builtin.model import (
    Model,
    compute_logits,
    init_parameters,
    make_model,
    split_parameters,
    unflatten,
)
from harness.trainers.builtin.quantize import fake_quantize_fp8
from harness.trainers.builtin.seeds import draw_gumbel

VOCABULARY, PROMPT, RESPONSE, PER_PROMPT = 6, 4, 5, 16


@pytest.fixture(scope="module")
def model() -> Model:
    config = MoeTransformerConfig(dim=16, num_layers=2, num_heads=2, expert_dim=8)
    return make_model(config, vocabulary_size=VOCABULARY, num_positions=PROMPT + RESPONSE - 1)


@pytest.fixture(scope="module")
def parameters(model: Model) -> Tensor:
    return init_parameters(model, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def prompts() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (8, PROMPT), generator=generator)


@pytest.fixture(scope="module")
def noise() -> Tensor:
    shape = (8 * PER_PROMPT, RESPONSE, VOCABULARY)
    return draw_gumbel(shape, torch.Generator().manual_seed(2))


def run_engine(
    model: Model,
    config: EngineConfig,
    parameters: Tensor,
    prompts: Tensor,
    noise: Tensor,
    *,
    temperature: float = 1.0,
    end_token: int | None = None,
) -> Samples:
    engine = make_engine(model, config, seed=0)
    weights = load_weights(engine, parameters, policy_step=0)
    return sample(engine, weights, prompts, noise, temperature=temperature, end_token=end_token)


def trainer_logprobs(
    model: Model, parameters: Tensor, prompts: Tensor, samples: Samples, temperature: float = 1.0
) -> Tensor:
    """The trainer's log-probabilities of the sampled tokens, all positions in one pass."""
    tokens = torch.cat([prompts.repeat_interleave(PER_PROMPT, 0), samples.responses], dim=1)
    weights = unflatten(model, parameters)
    logits = compute_logits(model, weights, tokens[:, :-1], first=PROMPT - 1) / temperature
    return logits.log_softmax(-1).gather(-1, samples.responses[..., None])[..., 0]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_an_exact_engine_agrees_with_the_trainer(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor, temperature: float
) -> None:
    samples = run_engine(model, EXACT_ENGINE, parameters, prompts, noise, temperature=temperature)
    expected = trainer_logprobs(model, parameters, prompts, samples, temperature)
    torch.testing.assert_close(samples.logprobs, expected, rtol=0, atol=1e-5)
    assert 0 <= float(mismatch_k3(expected, samples.logprobs).mean()) < 1e-10


def test_each_low_precision_part_makes_a_mismatch(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor
) -> None:
    changes: dict[str, dict[str, Any]] = {
        "fp8": {"weights": "fp8"},
        "int8": {"weights": "int8"},
        "int4": {"weights": "int4"},
        "activations": {"activations": "bf16"},
        "cache": {"kv_cache": "bf16"},
        "fp8 cache": {"kv_cache": "fp8"},
    }
    kl = {}
    for name, change in changes.items():
        config = dataclasses.replace(EXACT_ENGINE, **change)
        samples = run_engine(model, config, parameters, prompts, noise)
        logprobs = trainer_logprobs(model, parameters, prompts, samples)
        kl[name] = float(mismatch_k3(logprobs, samples.logprobs).mean())
    assert all(value > 1e-9 for value in kl.values()), kl
    assert kl["int4"] > kl["fp8"] > kl["activations"]
    assert kl["int4"] > kl["int8"]
    assert kl["fp8 cache"] > kl["cache"]


def test_a_token_is_the_argmax_of_probability_over_exponential_noise(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor
) -> None:
    samples = run_engine(model, EXACT_ENGINE, parameters, prompts, noise)
    weights = unflatten(model, parameters)
    logits = compute_logits(model, weights, prompts, first=PROMPT - 1)[:, 0]
    probabilities = logits.softmax(-1).repeat_interleave(PER_PROMPT, 0)
    exponential = torch.exp(-noise[:, 0])
    assert torch.equal(samples.responses[:, 0], (probabilities / exponential).argmax(-1))


def test_sampled_tokens_have_the_probabilities_that_are_recorded(
    model: Model, parameters: Tensor
) -> None:
    prompt = torch.tensor([[0, 1, 2, 3]])
    draws = draw_gumbel((20_000, 1, VOCABULARY), torch.Generator().manual_seed(5))
    samples = run_engine(model, EXACT_ENGINE, parameters, prompt, draws)
    weights = unflatten(model, parameters)
    expected = compute_logits(model, weights, prompt, first=PROMPT - 1)[0, 0].softmax(-1)
    frequencies = samples.responses[:, 0].bincount(minlength=VOCABULARY) / 20_000
    # Four standard errors of a frequency, at most 0.5 / sqrt(20,000) each.
    assert float((frequencies - expected).abs().max()) < 4 * 0.5 / 20_000**0.5


def test_nothing_follows_the_end_token(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor
) -> None:
    end = 2
    free = run_engine(model, EXACT_ENGINE, parameters, prompts, noise)
    ended = run_engine(model, EXACT_ENGINE, parameters, prompts, noise, end_token=end)
    is_end = (free.responses == end).int()
    is_after = (is_end.cumsum(1) - is_end) > 0
    assert is_after.any()
    assert not is_after.all()
    assert torch.equal(ended.responses, free.responses.masked_fill(is_after, end))
    assert torch.equal(ended.logprobs, free.logprobs.masked_fill(is_after, 0.0))


def test_sampling_stops_when_all_have_ended(model: Model, parameters: Tensor) -> None:
    prompts = torch.tensor([[0, 1, 2, 3]])
    noise = torch.zeros(3, RESPONSE, VOCABULARY)
    noise[:, 1, 4] = 1e6
    samples = run_engine(model, EXACT_ENGINE, parameters, prompts, noise, end_token=4)
    assert samples.responses[:, 1:].tolist() == [[4] * (RESPONSE - 1)] * 3
    assert samples.logprobs[:, 2:].tolist() == [[0.0] * (RESPONSE - 2)] * 3


def test_responses_do_not_depend_on_what_else_is_in_the_batch(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor
) -> None:
    both = run_engine(model, EXACT_ENGINE, parameters, prompts, noise)
    first = run_engine(model, EXACT_ENGINE, parameters, prompts[:1], noise[:PER_PROMPT])
    assert torch.equal(both.responses[:PER_PROMPT], first.responses)


@pytest.mark.parametrize(
    ("policy_step", "expected"),
    [(0, 0.0), (100, 0.0), (101, 0.002), (150, 0.1), (200, 0.2), (5000, 0.2)],
)
def test_drift_rises_linearly_and_holds(policy_step: int, expected: float) -> None:
    config = DriftConfig(scale=0.2, start_step=100, end_step=200)
    assert drift_scale(config, policy_step) == pytest.approx(expected, abs=1e-12)


def test_drift_without_a_ramp_is_a_jump() -> None:
    config = DriftConfig(scale=0.2, start_step=3, end_step=3)
    assert [drift_scale(config, step) for step in (2, 3)] == [0.0, 0.2]


def test_drift_multiplies_rounded_matrices_by_one_fixed_pattern(
    model: Model, parameters: Tensor
) -> None:
    drift = DriftConfig(scale=0.5, start_step=0, end_step=10)
    engine = make_engine(model, EngineConfig(weights="fp8", drift=drift), seed=7)
    at_start, halfway, at_end = (
        load_weights(engine, parameters, policy_step=step) for step in (0, 5, 10)
    )
    matrix = parameters[: VOCABULARY * 16].view(VOCABULARY, 16)
    rounded = fake_quantize_fp8(matrix)
    assert torch.equal(at_start.embedding, rounded)
    pattern = (at_end.embedding / rounded - 1) / 0.5
    torch.testing.assert_close(halfway.embedding, rounded * (1 + 0.25 * pattern))
    # A standard normal draw: 96 of them have a mean within 0.4 and a deviation near 1.
    assert abs(float(pattern.mean())) < 0.4
    assert 0.75 < float(pattern.std()) < 1.25
    for layer, exact in zip(at_end.layers, unflatten(model, parameters).layers, strict=True):
        assert torch.equal(layer.router, exact.router)
        assert torch.equal(layer.attention_norm, exact.attention_norm)
        assert not torch.equal(layer.qkv, exact.qkv)


def test_drift_pattern_depends_on_both_seeds_alone(model: Model) -> None:
    def noise_of(run_seed: int, drift_seed: int, scale: float) -> Tensor:
        drift = DriftConfig(scale=scale, end_step=4, seed=drift_seed)
        noise = make_engine(model, EngineConfig(drift=drift), seed=run_seed).drift_noise
        assert noise is not None
        return noise

    assert torch.equal(noise_of(0, 0, 0.1), noise_of(0, 0, 0.3))
    assert not torch.equal(noise_of(0, 0, 0.1), noise_of(1, 0, 0.1))
    assert not torch.equal(noise_of(0, 0, 0.1), noise_of(0, 1, 0.1))


def test_weights_that_are_not_finite_do_not_stop_the_engine(
    model: Model, parameters: Tensor, prompts: Tensor, noise: Tensor
) -> None:
    broken = parameters.clone()
    for value in split_parameters(model, broken):
        value.view(-1)[0] = float("nan")
    samples = run_engine(model, EngineConfig(), broken, prompts, noise)
    assert bool((samples.responses >= 0).all())
    assert bool((samples.responses < VOCABULARY).all())
