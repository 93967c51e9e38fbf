"""The dataclasses behind the `task`, `model` and `trainer` groups of the built-in trainer.

Light: needs no torch, as the planner imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config.fields import choice, number, output
from harness.errors import HarnessError, UsageError
from harness.losses.config import LOSS_TYPES
from harness.records.model import from_record
from harness.trackers.config import TrackersConfig
from harness.trainers.builtin.tasks import TASKS

TASK_TYPES: dict[str, type[Any]] = {name: config_type for name, (config_type, _) in TASKS.items()}
"""By `task.type`."""


@dataclass(frozen=True, kw_only=True)
class MoeTransformerConfig:
    """A causal transformer whose MLPs are mixtures of ReLU experts."""

    type: str = choice("moe_transformer", "moe_transformer")
    dim: int = number(32, ge=1, le=4096)
    """Width of the residual stream."""
    num_layers: int = number(2, ge=1, le=64)
    num_heads: int = number(4, ge=1, le=256)
    """Attention heads; must divide `dim`."""
    num_experts: int = number(4, ge=1, le=256)
    num_active_experts: int = number(2, ge=1, le=256)
    """Experts that each token is routed to."""
    expert_dim: int = number(32, ge=1, le=16384)
    """Hidden units of one expert."""

    def __post_init__(self) -> None:
        if self.dim % self.num_heads:
            raise UsageError(
                f"`model.num_heads`: {self.num_heads} does not divide `model.dim` {self.dim}"
            )
        if self.num_active_experts > self.num_experts:
            raise UsageError(
                f"`model.num_active_experts`: {self.num_active_experts} is more than "
                f"`model.num_experts` {self.num_experts}"
            )


MODEL_TYPES: dict[str, type[Any]] = {"moe_transformer": MoeTransformerConfig}
"""By `model.type`."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    type: str = choice("adamw", "sgd", "adamw", "sign_sgd")
    """`sgd` without momentum; `sign_sgd` steps by the sign of the gradient alone."""
    lr: float = number(3e-4, ge=0.0, le=1e3)
    weight_decay: float = number(0.0, ge=0.0, le=1e3)
    """Decoupled: weights shrink by lr * weight_decay per step."""
    warmup_steps: int = number(0, ge=0)
    """Steps over which lr rises linearly to its value."""
    max_grad_norm: float | None = number(1.0, gt=0.0)
    """Gradients longer than this (2-norm over all parameters) are scaled down; null = never."""
    beta1: float = number(0.9, ge=0.0, lt=1.0)
    """AdamW: decay of the gradient average."""
    beta2: float = number(0.999, ge=0.0, lt=1.0)
    """AdamW: decay of the average of squares."""
    eps: float = number(1e-8, gt=0.0, le=1.0)
    """AdamW: added to the root of the average of squares."""


@dataclass(frozen=True, kw_only=True)
class RolloutsConfig:
    prompts: int = number(8, ge=1, le=65536)
    """Prompts (groups) per step."""
    per_prompt: int = number(8, ge=2, le=65536)
    """Rollouts per prompt; they are each other's baseline."""
    temperature: float = number(1.0, gt=0.0, le=100.0)
    """Logits are divided by it, in the engine and in the trainer."""


@dataclass(frozen=True, kw_only=True)
class DriftConfig:
    """A fault of the inference engine that can be ramped."""

    scale: float = number(0.0, ge=0.0, le=100.0)
    """Relative error of the engine's matrices once the ramp is over; 0 = no fault."""
    start_step: int = number(0, ge=0)
    """Policy step up to which the error is 0."""
    end_step: int = number(0, ge=0)
    """Policy step from which the error has its full scale."""
    seed: int = number(0, ge=0)
    """Picks the error pattern, together with the run's seed."""

    def __post_init__(self) -> None:
        if self.end_step < self.start_step:
            raise UsageError(
                f"`trainer.engine.drift.end_step`: {self.end_step} is before "
                f"`trainer.engine.drift.start_step` {self.start_step}"
            )


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    weights: str = choice("fp8", "fp8", "int8", "int4", "none")
    """Format that the engine's matrices are rounded to, one scale per matrix."""
    activations: str = choice("bf16", "bf16", "none")
    """Format of the engine's matrix inputs and residual stream."""
    kv_cache: str = choice("bf16", "bf16", "fp8", "none")
    """Format of the engine's keys and values."""
    staleness: int = number(4, ge=0, le=1024)
    """Updates between sampling a batch and training on it."""
    drift: DriftConfig = field(default_factory=DriftConfig)


@dataclass(frozen=True, kw_only=True)
class AdvantageConfig:
    normalise: str = choice("none", "none", "std")
    """`std`: divide a group's advantages by the standard deviation of its rewards."""


@dataclass(frozen=True, kw_only=True)
class WarmStartConfig:
    """Supervised training before RL, shared by the arms of a seed."""

    solve_rate: float = number(0.85, ge=0.0, le=1.0)
    """Ends at the first evaluation with at least this solve rate; 0 = no warm start."""
    lr: float = number(1e-3, gt=0.0, le=1e3)
    batch_size: int = number(64, ge=1, le=65536)
    eval_prompts: int = number(256, ge=1, le=1048576)
    """Prompts per evaluation, each sampled once."""
    eval_every: int = number(25, ge=1)
    """Steps between evaluations."""
    max_steps: int = number(20000, ge=1)
    """Giving up, with an error, if the solve rate is not reached by then."""


@dataclass(frozen=True, kw_only=True)
class CheckpointsConfig:
    every: int = number(100, ge=1)
    """Steps between checkpoints; there is always one at the last step."""
    keep_last: int = number(2, ge=1)
    """The newest checkpoints that stay."""
    keep_every: int | None = number(None, ge=1)
    """Checkpoints at multiples of this step stay, too; null = none."""


@dataclass(frozen=True, kw_only=True)
class TokensConfig:
    every: int = number(0, ge=0)
    """Steps between token records; 0 = none."""


@dataclass(frozen=True, kw_only=True)
class BuiltinConfig:
    """The `trainer` group."""

    type: str = choice("builtin", "builtin")
    optim: OptimConfig = field(default_factory=OptimConfig)
    rollouts: RolloutsConfig = field(default_factory=RolloutsConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    filter_zero_advantages: bool = False
    """Whether groups that all succeed or all fail leave the loss and the `all` metrics."""
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    checkpoints: CheckpointsConfig = output(default_factory=CheckpointsConfig)
    tokens: TokensConfig = output(default_factory=TokensConfig)
    trackers: TrackersConfig = output(default_factory=TrackersConfig)
    device: str = choice("auto", "auto", "cpu", "cuda", is_output=True)
    """`auto`: a GPU when there is one."""
    native: dict[str, Any] = field(default_factory=dict)
    """Overrides in a foreign trainer's own tree: there is none here."""

    def __post_init__(self) -> None:
        if self.native:
            raise UsageError(
                f"`trainer.native`: the built-in trainer has no native keys, got "
                f"`{next(iter(self.native))}`",
                "all keys of the built-in trainer stand under `trainer`",
            )


@dataclass(frozen=True)
class ResolvedConfig:
    """A run's resolved config with every group of this trainer as its dataclass.

    Attributes:
        replicate: which replicate of its arm the run belongs to; 0 for an arm that is none.
    """

    loss: Mapping[str, Any]
    task: Any
    model: MoeTransformerConfig
    trainer: BuiltinConfig
    seed: int
    replicate: int = 0


def parse_config(config: Mapping[str, Any], *, where: str = "config") -> ResolvedConfig:
    """Return the typed form of a checked, resolved config.

    Raises:
        HarnessError: a key is missing or of another type, naming `where` and the key.
        UsageError: two keys contradict each other.
    """
    for key in ("loss", "task", "model", "trainer", "seed"):
        if key not in config:
            raise HarnessError(f"`{where}` lacks `{key}`")
    groups = (("loss", LOSS_TYPES), ("task", TASK_TYPES), ("model", MODEL_TYPES))
    for group, types in groups:
        name = config[group].get("type")
        if name not in types:
            raise UsageError(
                f"`{where}`: `{group}.type`: no {group} {name!r}", f"one of {', '.join(types)}"
            )
    return ResolvedConfig(
        loss=config["loss"],
        task=from_record(TASK_TYPES[config["task"]["type"]], config["task"], where=where),
        model=from_record(MODEL_TYPES[config["model"]["type"]], config["model"], where=where),
        trainer=from_record(BuiltinConfig, config["trainer"], where=where),
        seed=config["seed"],
        replicate=config.get("replicate", 0),
    )
