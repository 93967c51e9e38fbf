from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.trainers.builtin.config import parse_config
from harness.trainers.builtin.engine import load_weights, make_engine
from harness.trainers.builtin.metrics import rollout_metrics
from harness.trainers.builtin.model import init_parameters, make_model
from harness.trainers.builtin.rollouts import Rollouts, compute_advantages, sample_rollouts
from harness.trainers.builtin.seeds import make_generator
from harness.trainers.builtin.tasks import make_task


def draw(config_tree: dict[str, Any], *, step: int = 1, init_seed: int = 0) -> Rollouts:
    config = parse_config(config_tree)
    task = make_task(config.task)
    model = make_model(
        config.model, vocabulary_size=task.vocabulary_size, num_positions=task.num_positions
    )
    engine = make_engine(model, config.trainer.engine, seed=config.seed)
    parameters = init_parameters(model, make_generator(init_seed, "test"))
    weights = load_weights(engine, parameters, policy_step=0)
    return sample_rollouts(config, task, engine, weights, step=step, policy_step=0)


def test_advantages_are_relative_to_the_group() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert compute_advantages(rewards, normalise="none").tolist() == [
        [0.75, -0.25, -0.25, -0.25],
        [0.5, 0.5, -0.5, -0.5],
        [0.0, 0.0, 0.0, 0.0],
    ]


def test_advantages_divided_by_the_standard_deviation() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    # Sample deviation of 1, 0, 0, 0: sqrt((0.75^2 + 3 * 0.25^2) / 3) = 0.5.
    expected = torch.tensor([[1.5, -0.5, -0.5, -0.5], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(
        compute_advantages(rewards, normalise="std"), expected, rtol=1e-5, atol=0
    )


def test_prompts_and_noise_depend_on_seed_and_step_alone(make_config: Any) -> None:
    first = draw(make_config(), init_seed=0)
    other_policy = draw(make_config(), init_seed=1)
    assert torch.equal(first.tokens[:, :3], other_policy.tokens[:, :3])
    assert not torch.equal(first.responses, other_policy.responses)
    assert torch.equal(first.responses, draw(make_config()).responses)
    assert not torch.equal(first.tokens[:, :3], draw(make_config(), step=2).tokens[:, :3])
    assert not torch.equal(first.tokens[:, :3], draw(make_config({"seed": 1})).tokens[:, :3])


def test_a_replicate_draws_other_prompts_and_other_answers(make_config: Any) -> None:
    first, again = draw(make_config()), draw(make_config({"replicate": 1}))
    assert not torch.equal(first.tokens[:, :3], again.tokens[:, :3])
    assert not torch.equal(first.responses, again.responses)
    assert torch.equal(again.responses, draw(make_config({"replicate": 1})).responses)


def test_rollouts_of_a_group_share_the_prompt_and_its_separator(make_config: Any) -> None:
    rollouts = draw(make_config())
    assert rollouts.tokens.shape == (4 * 8, 2 + 1 + 2)
    groups = rollouts.tokens[:, :3].view(4, 8, 3)
    assert torch.equal(groups, groups[:, :1].expand(4, 8, 3))
    assert bool((groups[:, :, 2] == 3).all())
    assert torch.equal(rollouts.tokens[:, 3:], rollouts.responses)


def test_filtering_takes_groups_without_advantage_out_of_the_loss(make_config: Any) -> None:
    more = {"trainer.rollouts.prompts": 20}
    plain = draw(make_config(more))
    filtered = draw(make_config({**more, "trainer.filter_zero_advantages": True}))
    is_trained = filtered.is_effective.repeat_interleave(8)
    assert 0 < int(is_trained.sum()) < 160, "the seed should give both kinds of groups"
    assert bool(plain.loss_mask.all())
    assert torch.equal(filtered.loss_mask, is_trained[:, None].expand(160, 2))
    assert torch.equal(filtered.response_mask, plain.response_mask)
    assert torch.equal(filtered.advantages, plain.advantages)
    assert bool((filtered.advantages[~is_trained] == 0).all())


def make_rollouts(rewards: list[list[float]]) -> Rollouts:
    by_group = torch.tensor(rewards)
    num_sequences = by_group.numel()
    ones = torch.ones(num_sequences, 1, dtype=torch.bool)
    return Rollouts(
        tokens=torch.zeros(num_sequences, 1, dtype=torch.int64),
        responses=torch.zeros(num_sequences, 1, dtype=torch.int64),
        inference_logprobs=torch.zeros(num_sequences, 1),
        response_mask=ones,
        loss_mask=ones,
        rewards=by_group.flatten(),
        advantages=torch.zeros(num_sequences),
        is_effective=(by_group != by_group[:, :1]).any(1),
        per_prompt=by_group.shape[1],
        policy_step=0,
    )


def test_reward_metrics_by_hand() -> None:
    rewards = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    assert rollout_metrics(make_rollouts(rewards), task="sums") == {
        "train/sums/all/agent/reward/mean": 0.375,
        "train/sums/all/agent/solved_none": 0.5,
        "train/sums/all/agent/solved_all": 0.25,
        "train/sums/all/agent/solved_some": 0.25,
        "train/sums/effective/agent/reward/mean": 0.5,
    }


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_effective_reward_is_absent_without_an_effective_group(reward: float) -> None:
    row = rollout_metrics(make_rollouts([[reward] * 3] * 2), task="sums")
    assert "train/sums/effective/agent/reward/mean" not in row
    assert row["train/sums/all/agent/reward/mean"] == reward
