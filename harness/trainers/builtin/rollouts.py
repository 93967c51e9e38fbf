"""Prompts, sampled responses, rewards and group-relative advantages of one step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.trainers.builtin.config import ResolvedConfig
from harness.trainers.builtin.engine import Engine, sample
from harness.trainers.builtin.model import Weights
from harness.trainers.builtin.seeds import draw_gumbel, make_generator
from harness.trainers.builtin.tasks.task import Task

_STD_EPS = 1e-6


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of one step; sequences of a group stand together.

    Attributes:
        tokens: [sequences, prompt + separator + response], int64.
        responses: [sequences, response tokens], int64.
        inference_logprobs: as `responses`, float32, of the engine when it sampled.
        response_mask: as `responses`, bool: tokens that were sampled, the end token included.
        loss_mask: as `responses`, bool: tokens that are trained on.
        rewards, advantages: [sequences], float32.
        is_effective: [groups], bool: whether rewards differ within the group.
        per_prompt: sequences per group.
        policy_step: updates that the sampling policy had seen.
    """

    tokens: Tensor
    responses: Tensor
    inference_logprobs: Tensor
    response_mask: Tensor
    loss_mask: Tensor
    rewards: Tensor
    advantages: Tensor
    is_effective: Tensor
    per_prompt: int
    policy_step: int


def draw_prompts(task: Task, num_prompts: int, generator: torch.Generator) -> Tensor:
    """Return prompts without separator, [num_prompts, prompt_length], int64 (CPU)."""
    shape = (num_prompts, task.prompt_length)
    return torch.randint(0, task.num_symbols, shape, generator=generator)


def append_separator(task: Task, prompts: Tensor) -> Tensor:
    """Return prompts as the model reads them, [n, prompt_length + 1]."""
    separators = prompts.new_full((prompts.shape[0], 1), task.separator)
    return torch.cat([prompts, separators], dim=1)


def compute_advantages(rewards: Tensor, *, normalise: str) -> Tensor:
    """Return reward minus the mean of the group, of rewards [groups, per_prompt].

    With `std` also divided by the group's sample standard deviation (GRPO: Shao et al. 2024,
    "DeepSeekMath", section 4.1), plus 1e-6.
    """
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    if normalise == "std":
        advantages = advantages / (rewards.std(dim=1, keepdim=True) + _STD_EPS)
    return advantages


def sample_rollouts(
    config: ResolvedConfig,
    task: Task,
    engine: Engine,
    weights: Weights,
    *,
    step: int,
    policy_step: int,
) -> Rollouts:
    """Sample and grade the batch that step `step` trains on.

    Prompts and sampling noise depend on the run's seed and the step alone: arms of a seed share
    them, and replicates have others.
    """
    seed, replicate = config.seed, config.replicate
    settings = config.trainer.rollouts
    device = engine.model.causal_mask.device
    generator = make_generator(seed, "prompts", step, replicate=replicate)
    prompts = draw_prompts(task, settings.prompts, generator)
    noise_shape = (
        settings.prompts * settings.per_prompt,
        task.response_length,
        task.vocabulary_size,
    )
    generator = make_generator(seed, "sampling", step, replicate=replicate)
    noise = draw_gumbel(noise_shape, generator)
    questions = append_separator(task, prompts).to(device)
    samples = sample(
        engine,
        weights,
        questions,
        noise.to(device),
        temperature=settings.temperature,
        end_token=task.end_token,
    )
    prompt_of_each = questions.repeat_interleave(settings.per_prompt, dim=0)
    rewards = task.rewards(prompt_of_each[:, :-1], samples.responses)
    by_group = rewards.view(settings.prompts, settings.per_prompt)
    advantages = compute_advantages(by_group, normalise=config.trainer.advantage.normalise)
    is_effective = (by_group != by_group[:, :1]).any(dim=1)
    response_mask = task.response_mask(samples.responses)
    loss_mask = response_mask
    if config.trainer.filter_zero_advantages:
        is_trained = is_effective.repeat_interleave(settings.per_prompt)
        loss_mask = response_mask & is_trained[:, None]
    return Rollouts(
        tokens=torch.cat([prompt_of_each, samples.responses], dim=1),
        responses=samples.responses,
        inference_logprobs=samples.logprobs,
        response_mask=response_mask,
        loss_mask=loss_mask,
        rewards=rewards,
        advantages=advantages.view(-1),
        is_effective=is_effective,
        per_prompt=settings.per_prompt,
        policy_step=policy_step,
    )
