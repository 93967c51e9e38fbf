"""What a user may ask of trackers. Light: imports no tracker."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.config.fields import choice


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    mode: str = choice("disabled", "disabled", "offline", "online")
    project: str = "ablation-harness"
    entity: str | None = None
    """Team or user that owns the project; null = the account's default."""


@dataclass(frozen=True, kw_only=True)
class TrackersConfig:
    """Where metrics go besides the metrics file."""

    wandb: WandbConfig = field(default_factory=WandbConfig)
    tensorboard: bool = False
