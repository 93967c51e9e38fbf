# mypy: ignore-errors
# ruff: noqa: RUF012
"""TEST DOUBLE of prime-rl: the configs that its parts have in common (the keys used here)."""

import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from prime_rl.utils.config import BaseConfig
from pydantic import AfterValidator, Field, model_validator

OWNED_ENV = ("CUDA_VISIBLE_DEVICES", "PRL_RUN_ID", "PRL_RUN_NAME", "WANDB_RUN_ID")


def refuse_owned(env_vars: dict[str, str]) -> dict[str, str]:
    owned = sorted(set(OWNED_ENV) & set(env_vars))
    if owned:
        raise ValueError(f"env_vars may not set {owned}: the launcher does")
    return env_vars


EnvVars: TypeAlias = Annotated[dict[str, str], AfterValidator(refuse_owned)]


class RunConfig(BaseConfig):
    name: str | None = None
    dir: str | None = None


class ResumeConfig(BaseConfig):
    step: int | None = Field(None, ge=1)
    dir: Path | None = None

    @model_validator(mode="after")
    def check_one(self):
        if self.step is not None and self.dir is not None:
            raise ValueError("resume.step and resume.dir exclude each other")
        if self.dir is not None and not re.fullmatch(r"step_\d+", self.dir.name):
            raise ValueError(f"resume.dir is no folder of a step: {self.dir}")
        return self


class SlurmConfig(BaseConfig):
    job_name: str = "prime-rl"
    project_dir: Path = Path()
    template_path: Path | None = None
    partition: str = "cluster"
    nodelist: str | None = None
    exclude: str | None = None
    account: str | None = None
    time: str | None = None
    pre_run_command: str | None = None
    cleanup_grace_period: int = Field(3600, ge=0)
    shared_fs: bool = True

    @model_validator(mode="after")
    def make_absolute(self):
        self.project_dir = self.project_dir.resolve()
        return self


class BaseModelConfig(BaseConfig):
    name: str = "Qwen/Qwen3-0.6B"
    trust_remote_code: bool = False


class ClientConfig(BaseConfig):
    wait_for_ready_timeout: int = 1800
    base_url: str = "http://localhost:8000/v1"
    api_key_var: str = "VLLM_API_KEY"
    admin_base_url: list[str] | None = None


class LogConfig(BaseConfig):
    level: str = "info"
    vf_level: str = "info"
    json_logging: bool = False
    interval: float = Field(10.0, gt=0)


class TrainerLogConfig(LogConfig):
    ranks_filter: list[int] = [0]


class TokenizerConfig(BaseConfig):
    name: str | None = None
    trust_remote_code: bool | None = None
    chat_template: str | None = None


class FileSystemTransportConfig(BaseConfig):
    type: Literal["filesystem"] = "filesystem"


class ZMQTransportConfig(BaseConfig):
    type: Literal["zmq"] = "zmq"
    host: str = "localhost"
    port: int = 5555
    hwm: int = 10


TransportConfig: TypeAlias = Annotated[
    FileSystemTransportConfig | ZMQTransportConfig, Field(discriminator="type")
]


class FileSystemWeightBroadcastConfig(BaseConfig):
    type: Literal["filesystem"] = "filesystem"


class NCCLWeightBroadcastConfig(BaseConfig):
    type: Literal["nccl"] = "nccl"
    host: str = "localhost"
    port: int = 29501
    timeout: int = 1200
    quantize_in_weight_transfer: bool = False


WeightBroadcastConfig: TypeAlias = Annotated[
    FileSystemWeightBroadcastConfig | NCCLWeightBroadcastConfig, Field(discriminator="type")
]
