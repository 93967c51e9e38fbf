# mypy: ignore-errors
from typing import Annotated, Any, Literal, TypeAlias

from prime_rl.utils.config import BaseConfig
from pydantic import Field, model_validator


class IPOLossConfig(BaseConfig):
    type: Literal["ipo"] = "ipo"
    eps: float = Field(0.3, ge=0)
    max_importance_ratio: float = Field(1e4, ge=1, allow_inf_nan=False)
    adv_tau: float = Field(1.0, ge=0)
    score_centering: bool = False


class IcePopLossConfig(BaseConfig):
    type: Literal["icepop"] = "icepop"
    ratio_low: float = Field(0.2, gt=0)
    ratio_high: float = Field(5.0, gt=0)
    adv_tau: float = Field(1.0, ge=0)

    @model_validator(mode="after")
    def check_band(self):
        if self.ratio_low > self.ratio_high:
            raise ValueError("ratio_low is above ratio_high")
        return self


class PPOLossConfig(BaseConfig):
    type: Literal["ppo"] = "ppo"
    ratio_low: float = Field(0.8, gt=0, le=1)
    ratio_high: float = Field(1.2, ge=1)
    max_importance_ratio: float = Field(1e4, ge=1, allow_inf_nan=False)
    adv_tau: float = Field(1.0, ge=0)


class CISPOLossConfig(BaseConfig):
    type: Literal["cispo"] = "cispo"
    ratio_low: float = Field(0.0, ge=0)
    ratio_high: float = Field(5.0, gt=0)
    adv_tau: float = Field(1.0, ge=0)


class CustomLossConfig(BaseConfig):
    type: Literal["custom"] = "custom"
    import_path: str
    kwargs: dict[str, Any] = Field(default_factory=dict)


LossConfig: TypeAlias = Annotated[
    IPOLossConfig | IcePopLossConfig | PPOLossConfig | CISPOLossConfig | CustomLossConfig,
    Field(discriminator="type"),
]
DEFAULT_LOSS = IPOLossConfig()
