"""The knobs of each loss, with their bounds. One dataclass per `loss.type`.

Names and defaults are prime-rl's where prime-rl has the loss (`eps`, `ratio_low`, `ratio_high`,
`max_importance_ratio`, `adv_tau`); elsewhere the symbol of the paper. What a loss computes is told
in `harness.losses.policy`, what it masks in `harness.losses.masks`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from harness.config.fields import choice, number
from harness.errors import UsageError
from harness.near import did_you_mean

MAX_RATIO = 1e30
"""Largest ratio bound or cap. Beyond it a float32 ratio has no headroom left for sums."""


def _adv_tau() -> Any:
    return number(1.0, ge=0, le=1e6)


def _cap(default: float | None) -> Any:
    return number(default, ge=1, le=MAX_RATIO)


@dataclass(frozen=True, kw_only=True)
class IpoConfig:
    """IPO (prime-rl): masks by absolute change of probability."""

    type: str = choice("ipo", "ipo")
    eps: float = number(0.3, ge=0, le=1)
    """Largest |p - q| of a kept token (p trainer, q inference probability)."""
    max_importance_ratio: float = _cap(1e4)
    """Cap on the ratio of a kept token; its gradient stays."""
    adv_tau: float = _adv_tau()
    """Factor on every advantage."""


@dataclass(frozen=True, kw_only=True)
class IcepopConfig:
    """IcePop (Ring-1T; band of prime-rl): masks by ratio."""

    type: str = choice("icepop", "icepop")
    ratio_low: float = number(0.2, ge=0, le=MAX_RATIO)
    """Smallest kept ratio p/q; 0 means no lower bound."""
    ratio_high: float = number(5.0, gt=0, le=MAX_RATIO)
    """Largest kept ratio."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class KpopConfig:
    """KPop (Ring-2.6): masks by binary KL in both directions."""

    type: str = choice("kpop", "kpop")
    phi: float = number(0.1, ge=0, le=100)
    """Largest binary KL, in nats and in either direction, of a kept token."""
    clamp: float = number(1e-6, gt=0, lt=0.5)
    """Probabilities are clamped to [clamp, 1 - clamp]. Decides what phi means near 1."""
    max_importance_ratio: float = _cap(1e4)
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class IpoBandConfig:
    """IPO and IcePop at once: a token is kept when both keep it."""

    type: str = choice("ipo_band", "ipo_band")
    eps: float = number(0.3, ge=0, le=1)
    ratio_low: float = number(0.2, ge=0, le=MAX_RATIO)
    ratio_high: float = number(5.0, gt=0, le=MAX_RATIO)
    max_importance_ratio: float = _cap(1e4)
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class DppoTvConfig:
    """DPPO with binary total variation (arXiv 2602.04879): masks moves that follow the advantage.

    prime-rl had the deltas as `dppo_mask_low` and `dppo_mask_high`.
    """

    type: str = choice("dppo_tv", "dppo_tv")
    delta_low: float = number(0.15, ge=0, le=1)
    """Largest q - p of a kept token whose advantage is not positive."""
    delta_high: float = number(0.15, ge=0, le=1)
    """Largest p - q of a kept token whose advantage is positive."""
    max_importance_ratio: float = _cap(1e4)
    """C, the cap on the detached weight."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class DppoKlConfig:
    """DPPO with binary KL (arXiv 2602.04879): masks moves that follow the advantage."""

    type: str = choice("dppo_kl", "dppo_kl")
    delta: float = number(0.05, ge=0, le=100)
    """Largest binary KL(q || p), in nats, of a kept token that moved with its advantage."""
    max_importance_ratio: float = _cap(1e4)
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """PPO's clipped surrogate on tokens (also GRPO's)."""

    type: str = choice("ppo", "ppo")
    ratio_low: float = number(0.8, gt=0, le=1)
    """The ratio below which a token with negative advantage has no gradient."""
    ratio_high: float = number(1.2, ge=1, le=MAX_RATIO)
    """The ratio above which a token with positive advantage has no gradient."""
    max_importance_ratio: float = _cap(1e4)
    """Cap on the side that PPO leaves open; its gradient stays."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class DapoConfig:
    """DAPO's clip-higher: PPO's surrogate with a wider upper side, averaged over tokens."""

    type: str = choice("dapo", "dapo")
    ratio_low: float = number(0.8, gt=0, le=1)
    ratio_high: float = number(1.28, ge=1, le=MAX_RATIO)
    max_importance_ratio: float = _cap(1e4)
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class CispoConfig:
    """CISPO (MiniMax-M1): clips the detached weight, drops no token."""

    type: str = choice("cispo", "cispo")
    ratio_low: float = number(0.0, ge=0, le=MAX_RATIO)
    """Smallest weight; 0 means no lower clip."""
    ratio_high: float = number(5.0, gt=0, le=MAX_RATIO)
    """Largest weight."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class TisConfig:
    """Truncated importance sampling: caps the detached weight, drops no token."""

    type: str = choice("tis", "tis")
    max_importance_ratio: float = _cap(2.0)
    """C, the cap on the detached weight."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class GspoConfig:
    """GSPO: PPO's surrogate on the geometric mean ratio of a sequence."""

    type: str = choice("gspo", "gspo")
    ratio_low: float = number(0.9997, gt=0, le=1)
    """Lower clip of the sequence ratio."""
    ratio_high: float = number(1.0004, ge=1, le=MAX_RATIO)
    """Upper clip of the sequence ratio."""
    adv_tau: float = _adv_tau()


@dataclass(frozen=True, kw_only=True)
class NoneConfig:
    """Importance-weighted policy gradient without a mask."""

    type: str = choice("none", "none")
    max_importance_ratio: float | None = _cap(None)
    """Cap on the ratio, its gradient kept; null leaves it uncapped."""
    adv_tau: float = _adv_tau()


LossConfig = (
    IpoConfig
    | IcepopConfig
    | KpopConfig
    | IpoBandConfig
    | DppoTvConfig
    | DppoKlConfig
    | PpoConfig
    | DapoConfig
    | CispoConfig
    | TisConfig
    | GspoConfig
    | NoneConfig
)

LOSS_TYPES: dict[str, type[LossConfig]] = {kind.type: kind for kind in get_args(LossConfig)}
"""The dataclass behind each `loss.type` that this project can compute."""

EXTERNAL = "external"
"""The `loss.type` of a loss that only a foreign trainer can compute."""


def parse_loss(loss: Mapping[str, Any]) -> LossConfig:
    """Return the configuration in a `loss` group; knobs that are left out take their defaults.

    Types and bounds of single knobs are `harness.config.check`'s; what holds between knobs is
    checked here (see `check_loss`).

    Raises:
        UsageError: unknown type, unknown knob, or knobs that contradict each other.
    """
    name = loss.get("type")
    if name is None:
        known = ", ".join(f"`{known}`" for known in LOSS_TYPES)
        raise UsageError("`loss.type` is missing", f"loss types: {known}")
    if name == EXTERNAL:
        raise UsageError(
            f"loss `{EXTERNAL}` (`loss.type`) has no formula here: only a foreign trainer knows it",
            "choose it with trainer=command alone, or take a loss of this project",
        )
    if not isinstance(name, str) or name not in LOSS_TYPES:
        raise UsageError(
            f"there is no loss type {name!r} (`loss.type`)",
            did_you_mean(str(name), LOSS_TYPES, what="loss types"),
        )
    kind = LOSS_TYPES[name]
    knobs = [field.name for field in dataclasses.fields(kind)]
    for key in loss:
        if key not in knobs:
            raise UsageError(
                f"loss `{name}` has no knob `loss.{key}`",
                did_you_mean(str(key), knobs, what=f"keys of loss `{name}`"),
            )
    config: LossConfig = kind(**loss)
    check_loss(config)
    return config


def check_loss(config: LossConfig) -> None:
    """Check what must hold between the knobs of one loss.

    Raises:
        UsageError: naming both keys and values.
    """
    knobs = vars(config)
    low, high = knobs.get("ratio_low"), knobs.get("ratio_high")
    if low is not None and high is not None and low > high:
        raise UsageError(
            f"`loss.ratio_low` {low:g} is above `loss.ratio_high` {high:g}",
            "the band is [ratio_low, ratio_high]",
        )
    if isinstance(config, (PpoConfig, DapoConfig)):
        cap, high = config.max_importance_ratio, config.ratio_high
        if cap < high:
            raise UsageError(
                f"`loss.max_importance_ratio` {cap:g} is below `loss.ratio_high` {high:g}",
                f"the cap acts beyond the bound: set it to at least {high:g}",
            )
