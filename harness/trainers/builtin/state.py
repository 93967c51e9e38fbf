"""Everything that training carries from one step to the next, and its checkpoint form."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.trainers.builtin.config import OptimConfig
from harness.trainers.builtin.optimizer import OptimizerState, init_optimizer


@dataclass
class TrainState:
    """State after `step` updates.

    Prompts and sampling noise depend on seed, replicate and step alone (`seeds`), so that `step` is
    the data position and the state of their random numbers, too.

    Attributes:
        parameters: [num_parameters], float32.
        weight_queue: (policy step, parameters) of the policies that an engine still samples from,
            oldest first; the newest is the current one.
        num_tokens: tokens trained on so far.
    """

    step: int
    parameters: Tensor
    optimizer: OptimizerState
    weight_queue: deque[tuple[int, Tensor]]
    num_tokens: int


def init_state(config: OptimConfig, parameters: Tensor) -> TrainState:
    """Return the state before the first update."""
    return TrainState(
        step=0,
        parameters=parameters,
        optimizer=init_optimizer(config, parameters),
        weight_queue=deque([(0, parameters.clone())]),
        num_tokens=0,
    )


def push_weights(state: TrainState, *, staleness: int) -> None:
    """Append the current policy to the queue and drop those that no later step samples from.

    Step t trains on a batch of the policy that had seen max(0, t - 1 - staleness) updates.
    """
    state.weight_queue.append((state.step, state.parameters.clone()))
    _drop_unused(state, staleness)


def _drop_unused(state: TrainState, staleness: int) -> None:
    while state.weight_queue[0][0] < state.step - staleness:
        state.weight_queue.popleft()


def state_to_dict(state: TrainState) -> dict[str, Any]:
    """Return what a checkpoint holds; tensors on the CPU. `state_from_dict` reverses it."""
    is_cuda = state.parameters.is_cuda
    return {
        "step": state.step,
        "parameters": state.parameters.cpu(),
        "optimizer": {
            "num_updates": state.optimizer.num_updates,
            "averages": [average.cpu() for average in state.optimizer.averages],
        },
        "weight_queue": {
            "policy_steps": [policy_step for policy_step, _ in state.weight_queue],
            "parameters": torch.stack([weights for _, weights in state.weight_queue]).cpu(),
        },
        "num_tokens": state.num_tokens,
        "torch_rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if is_cuda else [],
    }


def state_from_dict(saved: dict[str, Any], device: torch.device) -> TrainState:
    """Return the state of a checkpoint on `device` and set torch's generators to theirs."""
    torch.set_rng_state(saved["torch_rng"])
    if device.type == "cuda" and saved["cuda_rng"]:
        torch.cuda.set_rng_state_all(saved["cuda_rng"])
    return _restore(saved, device)


def fork_state(saved: dict[str, Any], device: torch.device, *, staleness: int) -> TrainState:
    """Return the state of another run's checkpoint on `device`.

    No random numbers are restored: what is drawn from here on is the new run's own. Of a longer
    queue than `staleness` asks for, the oldest policies are dropped.
    """
    state = _restore(saved, device)
    _drop_unused(state, staleness)
    return state


def _restore(saved: dict[str, Any], device: torch.device) -> TrainState:
    queue = saved["weight_queue"]
    queued = [weights.clone() for weights in queue["parameters"].to(device)]
    averages = tuple(average.to(device) for average in saved["optimizer"]["averages"])
    return TrainState(
        step=saved["step"],
        parameters=saved["parameters"].to(device),
        optimizer=OptimizerState(saved["optimizer"]["num_updates"], averages),
        weight_queue=deque(zip(queue["policy_steps"], queued, strict=True)),
        num_tokens=saved["num_tokens"],
    )
