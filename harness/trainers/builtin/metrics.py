"""The metrics row of one step, under prime-rl's keys."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.losses.quantities import is_nonfinite, mismatch_k3
from harness.trainers.builtin.rollouts import Rollouts


@torch.no_grad()
def rollout_metrics(rollouts: Rollouts, *, task: str) -> dict[str, float]:
    """Return what the rewards of a step say.

    `effective` averages over groups in which rewards differ and is absent without such a group.
    `solved_none`, `solved_all` and `solved_some` are fractions of groups.
    """
    by_group = rollouts.rewards.view(-1, rollouts.per_prompt)
    is_effective = rollouts.is_effective
    solved = (by_group == 1).sum(dim=1)
    prefix = f"train/{task}/all/agent"
    row = {
        f"{prefix}/reward/mean": float(by_group.mean()),
        f"{prefix}/solved_none": float((solved == 0).float().mean()),
        f"{prefix}/solved_all": float((solved == rollouts.per_prompt).float().mean()),
    }
    is_some = (solved > 0) & (solved < rollouts.per_prompt)
    row[f"{prefix}/solved_some"] = float(is_some.float().mean())
    if bool(is_effective.any()):
        row[f"train/{task}/effective/agent/reward/mean"] = float(by_group[is_effective].mean())
    return row


@torch.no_grad()
def policy_metrics(
    rollouts: Rollouts, trainer_logprobs: Tensor, all_logprobs: Tensor
) -> dict[str, float]:
    """Return mismatch KL over all sampled tokens and entropy over those that are trained on.

    Both in nats, absent where there is no token to average over.

    Args:
        trainer_logprobs: [sequences, response tokens].
        all_logprobs: [sequences, response tokens, vocabulary], of the trainer after temperature.
    """
    row = {}
    is_finite = ~is_nonfinite(trainer_logprobs, rollouts.inference_logprobs)
    is_counted = rollouts.response_mask & is_finite
    num_counted = int(is_counted.sum())
    if num_counted:
        k3 = mismatch_k3(trainer_logprobs, rollouts.inference_logprobs)
        total = torch.where(is_counted, k3, 0.0).sum(dtype=torch.float64)
        row["mismatch_kl/sampled/mean"] = float(total) / num_counted
    is_trained = rollouts.loss_mask & is_finite
    num_trained = int(is_trained.sum())
    if num_trained:
        entropy = -(all_logprobs.exp() * all_logprobs).sum(-1)
        total = torch.where(is_trained, entropy, 0.0).sum(dtype=torch.float64)
        row["entropy/all/mean"] = float(total) / num_trained
    return row
