from __future__ import annotations

import torch

from harness.trainers.builtin.config import OptimConfig
from harness.trainers.builtin.state import (
    TrainState,
    init_state,
    push_weights,
    state_from_dict,
    state_to_dict,
)


def advance(state: TrainState, *, staleness: int) -> None:
    state.step += 1
    state.parameters += 1
    push_weights(state, staleness=staleness)


def test_queue_serves_the_policy_of_staleness_updates_ago() -> None:
    state = init_state(OptimConfig(type="sgd"), torch.zeros(2))
    served = []
    for _ in range(6):
        policy_step, weights = state.weight_queue[0]
        assert weights.tolist() == [float(policy_step)] * 2
        served.append(policy_step)
        advance(state, staleness=3)
    # Steps 1 to 6: sampled by policies of 0, 1, 2, 3, 3, 3 updates ago.
    assert served == [0, 0, 0, 0, 1, 2]
    assert len(state.weight_queue) == 4


def test_without_staleness_the_current_policy_is_served() -> None:
    state = init_state(OptimConfig(type="sgd"), torch.zeros(2))
    for step in range(4):
        assert [policy_step for policy_step, _ in state.weight_queue] == [step]
        advance(state, staleness=0)


def test_state_survives_its_checkpoint_form() -> None:
    state = init_state(OptimConfig(type="adamw"), torch.randn(5))
    state.num_tokens = 77
    state.optimizer.num_updates = 2
    state.optimizer.averages[0].fill_(0.25)
    advance(state, staleness=2)
    saved = state_to_dict(state)
    drawn = torch.rand(3)
    torch.rand(10)
    loaded = state_from_dict(saved, torch.device("cpu"))
    assert torch.equal(torch.rand(3), drawn)
    assert (loaded.step, loaded.num_tokens, loaded.optimizer.num_updates) == (1, 77, 2)
    assert torch.equal(loaded.parameters, state.parameters)
    assert loaded.optimizer.averages[0].tolist() == [0.25] * 5
    assert [policy_step for policy_step, _ in loaded.weight_queue] == [0, 1]
    for (_, ours), (_, theirs) in zip(loaded.weight_queue, state.weight_queue, strict=True):
        assert torch.equal(ours, theirs)
