"""Supervised training before RL: made once per seed, shared by the seed's arms."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import HarnessError
from harness.records.files import canonical_json, read_json, write_json
from harness.trainers.builtin.config import OptimConfig, ResolvedConfig
from harness.trainers.builtin.engine import EXACT_ENGINE, load_weights, make_engine, sample
from harness.trainers.builtin.model import Model, compute_logits, init_parameters, unflatten
from harness.trainers.builtin.optimizer import init_optimizer, update_parameters
from harness.trainers.builtin.rollouts import append_separator, draw_prompts
from harness.trainers.builtin.seeds import draw_gumbel, make_generator
from harness.trainers.builtin.tasks.task import Task

_FORMAT = 1
"""Goes up when the code computes other warm starts from the same settings."""
_WEIGHTS = "weights.pt"
_MANIFEST = "manifest.json"


class StoppedError(Exception):
    """The process was asked to stop."""


@dataclass(frozen=True)
class WarmStart:
    """`parameters` [num_parameters] after `steps` steps with the sampled `solve_rate`."""

    parameters: Tensor
    steps: int
    solve_rate: float


def warm_start_key(config: ResolvedConfig) -> str:
    """Return a name for everything that shapes the warm start, so that equal means shareable."""
    return hashlib.sha256(canonical_json(_shaping(config))).hexdigest()[:16]


def _shaping(config: ResolvedConfig) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "model": dataclasses.asdict(config.model),
        "seed": config.seed,
        "task": dataclasses.asdict(config.task),
        "temperature": config.trainer.rollouts.temperature,
        "warm_start": dataclasses.asdict(config.trainer.warm_start),
    }


def load_or_make_warm_start(
    folder: Path, config: ResolvedConfig, task: Task, model: Model, should_stop: Callable[[], bool]
) -> WarmStart:
    """Return the warm start in `folder`, made first where there is none yet.

    Publication is one rename: of several makers at once, all return what the first published.

    Raises:
        HarnessError: the solve rate was not reached, or `folder` is damaged or of other settings.
        StoppedError: `should_stop` said so.
    """
    if not folder.exists():
        _publish(folder, config, _make(config, task, model, should_stop))
    return _load(folder, config, model)


def _make(
    config: ResolvedConfig, task: Task, model: Model, should_stop: Callable[[], bool]
) -> WarmStart:
    settings = config.trainer.warm_start
    device = model.causal_mask.device
    parameters = init_parameters(model, make_generator(config.seed, "init")).to(device)
    optim = OptimConfig(type="adamw", lr=settings.lr, max_grad_norm=None)
    state = init_optimizer(optim, parameters)
    best = 0.0
    for step in range(settings.max_steps + 1):
        if step % settings.eval_every == 0 or step == settings.max_steps:
            solve_rate = _sampled_solve_rate(config, task, model, parameters, step)
            best = max(best, solve_rate)
            if solve_rate >= settings.solve_rate:
                return WarmStart(parameters, step, solve_rate)
        if should_stop():
            raise StoppedError
        gradient = _supervised_gradient(config, task, model, parameters, step)
        update_parameters(optim, state, parameters, gradient, lr=settings.lr)
    raise HarnessError(
        f"the warm start of `task.type` {config.task.type!r} did not reach "
        f"`trainer.warm_start.solve_rate` {settings.solve_rate} within `max_steps` "
        f"{settings.max_steps} (best {best:.3f})",
        "raise `trainer.warm_start.max_steps`, lower `solve_rate`, or use a larger model",
    )


def _supervised_gradient(
    config: ResolvedConfig, task: Task, model: Model, parameters: Tensor, step: int
) -> Tensor:
    generator = make_generator(config.seed, "warm_start", step)
    prompts = draw_prompts(task, config.trainer.warm_start.batch_size, generator)
    prompts = prompts.to(parameters.device)
    answers = task.answer(prompts)
    inputs = torch.cat([append_separator(task, prompts), answers[:, :-1]], dim=1)
    leaf = parameters.detach().requires_grad_()
    logits = compute_logits(model, unflatten(model, leaf), inputs, first=task.prompt_length)
    targets = answers.masked_fill(~task.response_mask(answers), -100)
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient


def _sampled_solve_rate(
    config: ResolvedConfig, task: Task, model: Model, parameters: Tensor, step: int
) -> float:
    num_prompts = config.trainer.warm_start.eval_prompts
    generator = make_generator(config.seed, "warm_start_eval", step)
    prompts = draw_prompts(task, num_prompts, generator)
    noise = draw_gumbel((num_prompts, task.response_length, task.vocabulary_size), generator)
    prompts = prompts.to(parameters.device)
    engine = make_engine(model, EXACT_ENGINE, seed=config.seed)
    samples = sample(
        engine,
        load_weights(engine, parameters, policy_step=0),
        append_separator(task, prompts),
        noise.to(parameters.device),
        temperature=config.trainer.rollouts.temperature,
        end_token=task.end_token,
    )
    return float(task.rewards(prompts, samples.responses).mean())


def _publish(folder: Path, config: ResolvedConfig, made: WarmStart) -> None:
    content = io.BytesIO()
    torch.save({"parameters": made.parameters.cpu()}, content)
    manifest = {
        "settings": _shaping(config),
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
        "solve_rate": made.solve_rate,
        "steps": made.steps,
    }
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir(parents=True)
    try:
        (temporary / _WEIGHTS).write_bytes(content.getvalue())
        write_json(temporary / _MANIFEST, manifest)
        os.rename(temporary, folder)  # noqa: PTH104 - the publication step, kept visible as such
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _load(folder: Path, config: ResolvedConfig, model: Model) -> WarmStart:
    hint = f"remove `{folder}`; the next run makes it anew"
    manifest = read_json(folder / _MANIFEST)
    if manifest.get("settings") != _shaping(config):
        raise HarnessError(f"`{folder}` holds a warm start of other settings", hint)
    try:
        content = (folder / _WEIGHTS).read_bytes()
    except OSError as error:
        raise HarnessError(f"`{folder / _WEIGHTS}` can't be read: {error}", hint) from error
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise HarnessError(f"`{folder / _WEIGHTS}` is damaged: its hash is not the recorded", hint)
    saved = torch.load(io.BytesIO(content), weights_only=True)
    parameters = saved["parameters"]
    if parameters.shape != (model.num_parameters,):
        raise HarnessError(f"`{folder / _WEIGHTS}` holds another model", hint)
    return WarmStart(
        parameters.to(model.causal_mask.device),
        steps=int(manifest["steps"]),
        solve_rate=float(manifest["solve_rate"]),
    )
