# mypy: ignore-errors
from typing import Annotated, Any, Literal, TypeAlias

from prime_rl.utils.config import BaseConfig
from pydantic import Field


class DefaultLossConfig(BaseConfig):
    type: Literal["default"] = "default"
    dppo_mask_low: float = Field(0.2, ge=0)
    dppo_mask_high: float = Field(0.2, ge=0)
    adv_tau: float = Field(1.0, ge=0)
    kl_tau: float = Field(1e-3, ge=0)


class IPOLossConfig(BaseConfig):
    type: Literal["ipo"] = "ipo"
    ipo_threshold: float = Field(0.1, ge=0)
    adv_tau: float = Field(1.0, ge=0)
    kl_tau: float = Field(1e-3, ge=0)


class CustomLossConfig(BaseConfig):
    type: Literal["custom"] = "custom"
    import_path: str
    kwargs: dict[str, Any] = Field(default_factory=dict)


LossConfig: TypeAlias = Annotated[
    DefaultLossConfig | IPOLossConfig | CustomLossConfig, Field(discriminator="type")
]
DEFAULT_LOSS = DefaultLossConfig()
