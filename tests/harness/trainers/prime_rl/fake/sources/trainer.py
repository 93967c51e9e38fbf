# mypy: ignore-errors
# ruff: noqa: RUF012
"""TEST DOUBLE of prime-rl: the trainer's config. `make_checkout` puts the losses in front of it."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from losses import DEFAULT_LOSS, LossConfig
from prime_rl.configs.monitors import MonitorsConfig
from prime_rl.configs.shared import (
    BaseModelConfig,
    EnvVars,
    FileSystemWeightBroadcastConfig,
    ResumeConfig,
    TokenizerConfig,
    TrainerLogConfig,
    TransportConfig,
    WeightBroadcastConfig,
    ZMQTransportConfig,
)
from prime_rl.utils.config import BaseConfig
from pydantic import BeforeValidator, Field, model_validator


class ActivationCheckpointConfig(BaseConfig):
    mode: Literal["full", "selective"] = "full"
    freq: int = Field(1, ge=1)


class ActivationOffloadingConfig(BaseConfig):
    pin_memory: bool = True
    max_inflight_activations: int = Field(5, ge=1)


class CompileConfig(BaseConfig):
    fullgraph: bool = False


class OffloadConfig(BaseConfig):
    numa_bind: bool = True


def read_offload(value):
    return {True: {}, False: None}.get(value, value) if isinstance(value, bool) else value


class LoRAConfig(BaseConfig):
    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, ge=0)


class ModelConfig(BaseModelConfig):
    seq_len: int = 2048
    attn: Literal["flash_attention_2", "flash_attention_3", "flash_attention_4", "auto"] = "auto"
    compile: CompileConfig | None = CompileConfig()
    ac: ActivationCheckpointConfig | None = ActivationCheckpointConfig()
    ac_offloading: ActivationOffloadingConfig | None = ActivationOffloadingConfig()
    optim_cpu_offload: bool = True
    full_offload: Annotated[OffloadConfig | None, BeforeValidator(read_offload)] = None
    dp_replicate: int = 1
    ep: int | Literal["auto"] = "auto"
    cp: int = 1
    cp_style: Literal["ring", "ulysses"] = "ring"
    impl: Literal["hf", "custom", "auto"] = "auto"
    lora: LoRAConfig | None = None
    fused_lm_head_token_chunk_size: int | Literal["disabled"] = 8192

    @model_validator(mode="after")
    def check_offload(self):
        if self.optim_cpu_offload and self.full_offload:
            raise ValueError("optim_cpu_offload and full_offload exclude each other")
        return self


class ConstantSchedulerConfig(BaseConfig):
    type: Literal["constant"] = "constant"


class LinearSchedulerConfig(BaseConfig):
    type: Literal["linear"] = "linear"
    warmup_steps: int = Field(10, ge=0)
    decay_steps: int = Field(10, ge=0)
    min_lr: float = Field(0.0, ge=0)


class CosineSchedulerConfig(BaseConfig):
    type: Literal["cosine"] = "cosine"
    warmup_steps: int = Field(10, ge=0)
    min_lr: float = Field(0.0, ge=0)


SchedulerConfig: TypeAlias = Annotated[
    ConstantSchedulerConfig | LinearSchedulerConfig | CosineSchedulerConfig,
    Field(discriminator="type"),
]


class OptimizerConfig(BaseConfig):
    lr: float = Field(1e-6, ge=0)
    weight_decay: float = Field(0.01, ge=0)
    max_norm: float | None = Field(1.0, ge=0)


class AdamWConfig(OptimizerConfig):
    type: Literal["adamw"] = "adamw"
    betas1: float = Field(0.9, ge=0)
    betas2: float = Field(0.999, ge=0)


class MuonConfig(OptimizerConfig):
    type: Literal["muon"] = "muon"
    mu: float = Field(0.95, ge=0)


class SignSGDConfig(OptimizerConfig):
    type: Literal["sign_sgd"] = "sign_sgd"


AnyOptimizerConfig: TypeAlias = Annotated[
    AdamWConfig | MuonConfig | SignSGDConfig, Field(discriminator="type")
]


class CheckpointConfig(BaseConfig):
    output_dir: Path | None = None
    interval: int | None = Field(None, ge=1)
    keep_last: int | None = Field(None, ge=1)
    keep_interval: int | None = Field(None, ge=1)
    skip_progress: bool = False
    skip_optimizer: bool = False


class FakeDataLoaderConfig(BaseConfig):
    batch_size: int = Field(2, ge=1)


class DataLoaderConfig(BaseConfig):
    fake: FakeDataLoaderConfig | None = None


class TrainerConfig(BaseConfig):
    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataLoaderConfig = DataLoaderConfig()
    loss: LossConfig = DEFAULT_LOSS
    optim: AnyOptimizerConfig = AdamWConfig()
    scheduler: SchedulerConfig = ConstantSchedulerConfig()
    ckpt: CheckpointConfig | None = None
    resume: ResumeConfig | None = None
    weight_broadcast: WeightBroadcastConfig = FileSystemWeightBroadcastConfig()
    rollout_transport: TransportConfig = ZMQTransportConfig()
    log: TrainerLogConfig = TrainerLogConfig()
    monitors: MonitorsConfig = MonitorsConfig()
    output_dir: Path = Path("outputs")
    max_steps: int | None = None
    enable_router_replay: bool = False
    dist_timeout_seconds: int = 3600
    enable_token_export: bool = False
    env_vars: EnvVars = {}

    @model_validator(mode="after")
    def complete(self):
        if self.model.full_offload is not None:
            self.optim.max_norm = None
        if self.tokenizer.name is None:
            self.tokenizer.name = self.model.name
        return self
