"""The training loop of one run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.errors import HarnessError
from harness.losses.config import LossConfig, parse_loss
from harness.losses.metrics import token_metrics
from harness.losses.policy import LossResult, TokenBatch, compute_loss
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import RunRecord, read_record
from harness.trackers.group import TrackerGroup, open_trackers
from harness.trainers.builtin.about import about_checkpoint
from harness.trainers.builtin.checkpoints import (
    SupersededError,
    load_checkpoint,
    load_newest_checkpoint,
    save_checkpoint,
)
from harness.trainers.builtin.config import ResolvedConfig, parse_config
from harness.trainers.builtin.engine import Engine, load_weights, make_engine
from harness.trainers.builtin.metrics import policy_metrics, rollout_metrics
from harness.trainers.builtin.model import Model, compute_logits, make_model, unflatten
from harness.trainers.builtin.optimizer import clip_gradient, learning_rate, update_parameters
from harness.trainers.builtin.rollouts import Rollouts, sample_rollouts
from harness.trainers.builtin.state import (
    TrainState,
    fork_state,
    init_state,
    push_weights,
    state_from_dict,
    state_to_dict,
)
from harness.trainers.builtin.tasks import make_task
from harness.trainers.builtin.tasks.task import Task
from harness.trainers.builtin.warm_start import (
    StoppedError,
    load_or_make_warm_start,
    warm_start_key,
)

_PROGRESS_EVERY_S = 5.0


@dataclass(frozen=True)
class RunRequest:
    """One start of a run: what to train, where it stands, and how far.

    Attributes:
        config: the resolved configuration (config.json).
        sweep: the folder that arms of a seed share things in.
        start: the checkpoint of another run that a fork starts from.
    """

    paths: RunPaths
    sweep: SweepPaths
    config: Mapping[str, Any]
    attempt: int
    max_steps: int
    start: Path | None = None


@dataclass(frozen=True)
class _Setup:
    config: ResolvedConfig
    loss: LossConfig
    task: Task
    model: Model
    engine: Engine


def train(request: RunRequest, *, should_stop: Callable[[], bool]) -> bool:
    """Train from the newest checkpoint, or where the run starts, up to `max_steps`.

    A run starts from its warm start, a fork from its parent's checkpoint: then with the weights,
    the optimiser and the weight queue of that step, and with random numbers of its own.

    Every step appends its metrics row; there is a checkpoint after the last step. Where
    `should_stop` says so, training ends after the step in progress, with a checkpoint.

    Returns:
        Whether `max_steps` was reached.

    Raises:
        HarnessError: no usable device, warm start or checkpoint, or a newer attempt took over.
    """
    config = parse_config(request.config, where=str(request.paths.config))
    setup = _set_up(config)
    checkpoint = load_newest_checkpoint(request.paths.checkpoints_dir)
    if checkpoint is not None:
        state = state_from_dict(checkpoint.state, setup.model.causal_mask.device)
        _say(f"continuing after step {state.step}")
    elif "start_from" in request.config:
        state = _fork(request, setup)
        _say(f"starting after step {state.step} of `{request.start}`")
    else:
        try:
            state = _start(request, setup, should_stop)
        except StoppedError:
            return False
    trackers = open_trackers(
        config.trainer.trackers,
        request.paths,
        record=lambda: read_record(RunRecord, request.paths.record),
        config=request.config,
        first_step=state.step + 1,
    )
    try:
        return _train(request, setup, state, trackers, should_stop)
    finally:
        trackers.close()


def _set_up(config: ResolvedConfig) -> _Setup:
    device = _choose_device(config.trainer.device)
    torch.manual_seed(config.seed)
    task = make_task(config.task)
    model = make_model(
        config.model,
        vocabulary_size=task.vocabulary_size,
        num_positions=task.num_positions,
        device=device,
    )
    engine = make_engine(model, config.trainer.engine, seed=config.seed, replicate=config.replicate)
    return _Setup(config, parse_loss(config.loss), task, model, engine)


def _choose_device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        # Also what makes results independent of how many cores the machine has.
        torch.set_num_threads(1)
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise HarnessError(
            "`trainer.device`: 'cuda' was asked for and torch finds no GPU",
            "trainer.device=auto takes a GPU only when there is one",
        )
    # Has to be set before cuBLAS starts; without it, equal seeds may give other last bits.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device("cuda")


def _start(request: RunRequest, setup: _Setup, should_stop: Callable[[], bool]) -> TrainState:
    folder = request.sweep.warm_start_dir(warm_start_key(setup.config))
    start = time.monotonic()
    warm = load_or_make_warm_start(folder, setup.config, setup.task, setup.model, should_stop)
    _say(
        f"warm start: solve rate {warm.solve_rate:.3f} after {warm.steps} supervised steps "
        f"({time.monotonic() - start:.1f} s)"
    )
    return init_state(setup.config.trainer.optim, warm.parameters)


def _fork(request: RunRequest, setup: _Setup) -> TrainState:
    if request.start is None:
        raise HarnessError(
            f"`{request.paths.config}` says that the run is a fork, and not of which checkpoint",
            "start runs with `harness run`, not by hand",
        )
    checkpoint = load_checkpoint(request.start, request.config["start_from"]["sha256"])
    if checkpoint.state["parameters"].shape != (setup.model.num_parameters,):
        raise HarnessError(
            f"the checkpoint `{request.start}` is of another model:"
            f" {len(checkpoint.state['parameters'])} parameters, not {setup.model.num_parameters}",
            "a fork keeps its parent's `model` and `task`",
        )
    staleness = setup.config.trainer.engine.staleness
    return fork_state(checkpoint.state, setup.model.causal_mask.device, staleness=staleness)


def _train(
    request: RunRequest,
    setup: _Setup,
    state: TrainState,
    trackers: TrackerGroup,
    should_stop: Callable[[], bool],
) -> bool:
    every = setup.config.trainer.checkpoints.every
    first_step, start, said = state.step + 1, time.monotonic(), time.monotonic()
    is_stopping = False
    while state.step < request.max_steps and not is_stopping:
        row = _train_step(request, setup, state)
        trackers.log(row)
        is_stopping = should_stop()
        is_last = state.step == request.max_steps
        if state.step % every == 0 or is_last or is_stopping:
            # Rows first: a run that continues from this checkpoint never writes them again.
            trackers.sync()
            _save(request, setup, state)
        now = time.monotonic()
        if now - said > _PROGRESS_EVERY_S or is_last or is_stopping:
            said = now
            steps_per_s = (state.step - first_step + 1) / (now - start)
            _say(_progress(row, setup, request.max_steps, steps_per_s))
    return state.step >= request.max_steps


def _train_step(request: RunRequest, setup: _Setup, state: TrainState) -> dict[str, float | int]:
    """Sample, train and return the metrics row; `state` is after the update then."""
    start = time.perf_counter()
    config = setup.config
    optim = config.trainer.optim
    step = state.step + 1
    policy_step, served = state.weight_queue[0]
    weights = load_weights(setup.engine, served, policy_step=policy_step)
    rollouts = sample_rollouts(
        config, setup.task, setup.engine, weights, step=step, policy_step=policy_step
    )
    parameters = state.parameters.detach().requires_grad_()
    all_logprobs, batch = _evaluate(setup, parameters, rollouts)
    result = compute_loss(setup.loss, batch)
    (gradient,) = torch.autograd.grad(result.loss, parameters)
    norm = gradient.norm()
    lr = learning_rate(optim, step)
    gradient = clip_gradient(gradient, norm, optim.max_grad_norm)
    update_parameters(optim, state.optimizer, state.parameters, gradient, lr=lr)
    state.step = step
    state.num_tokens += int(rollouts.loss_mask.sum())
    push_weights(state, staleness=config.trainer.engine.staleness)
    _record_tokens(request, setup, rollouts, batch, result, step)
    return {
        "step": step,
        "time": time.time(),
        "attempt": request.attempt,
        **token_metrics(setup.loss, batch, result),
        **policy_metrics(rollouts, batch.trainer_logprobs, all_logprobs),
        **rollout_metrics(rollouts, task=config.task.type),
        "optim/grad_norm": float(norm),
        "optim/lr": lr,
        "off_policy/mean": step - 1 - policy_step,
        "policy_step": policy_step,
        "progress/tokens": state.num_tokens,
        "time/step": time.perf_counter() - start,
    }


def _evaluate(setup: _Setup, parameters: Tensor, rollouts: Rollouts) -> tuple[Tensor, TokenBatch]:
    """Return the trainer's log-probabilities of all tokens, detached, and the loss's input."""
    logits = compute_logits(
        setup.model,
        unflatten(setup.model, parameters),
        rollouts.tokens[:, :-1],
        first=setup.task.prompt_length,
    )
    temperature = setup.config.trainer.rollouts.temperature
    if temperature != 1:
        logits = logits / temperature
    all_logprobs = logits.log_softmax(-1)
    trainer_logprobs = all_logprobs.gather(-1, rollouts.responses.unsqueeze(-1)).squeeze(-1)
    batch = TokenBatch(
        trainer_logprobs=trainer_logprobs,
        inference_logprobs=rollouts.inference_logprobs,
        advantages=rollouts.advantages.unsqueeze(-1).expand_as(trainer_logprobs),
        loss_mask=rollouts.loss_mask,
    )
    return all_logprobs.detach(), batch


def _record_tokens(
    request: RunRequest,
    setup: _Setup,
    rollouts: Rollouts,
    batch: TokenBatch,
    result: LossResult,
    step: int,
) -> None:
    every = setup.config.trainer.tokens.every
    if every == 0 or step % every:
        return
    from harness.trainers.builtin.tokens import write_tokens  # noqa: PLC0415 - pyarrow is slow

    write_tokens(
        request.paths.tokens_file(step),
        rollouts,
        trainer_logprobs=batch.trainer_logprobs,
        advantages=batch.advantages,
        is_masked=result.is_masked,
        loss=setup.config.loss,
        seed=setup.config.seed,
        step=step,
        attempt=request.attempt,
    )


def _save(request: RunRequest, setup: _Setup, state: TrainState) -> None:
    def is_superseded() -> bool:
        return any(attempt.number > request.attempt for attempt in request.paths.attempts())

    try:
        save_checkpoint(
            request.paths.checkpoints_dir,
            state.step,
            state_to_dict(state),
            setup.config.trainer.checkpoints,
            is_superseded=is_superseded,
            about=about_checkpoint(request.config),
        )
    except SupersededError:
        raise HarnessError(
            f"attempt {request.attempt} was superseded by a newer one: nothing published"
        ) from None


def _progress(
    row: Mapping[str, float | int], setup: _Setup, max_steps: int, steps_per_s: float
) -> str:
    solve_rate = row[f"train/{setup.config.task.type}/all/agent/reward/mean"]
    mismatch_kl = row.get("mismatch_kl/all/mean", float("nan"))
    return (
        f"step {row['step']}/{max_steps}, solve rate {solve_rate:.3f}, "
        f"mismatch KL {mismatch_kl:.2e}, {steps_per_s:.1f} steps/s"
    )


def _say(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
