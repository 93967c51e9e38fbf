# mypy: ignore-errors
# ruff: noqa: RUF012
"""TEST DOUBLE of prime-rl: the orchestrator's config (the keys used here).

What stands in `env` of a source is read by another library, so that it is free here.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from prime_rl.configs.monitors import OrchestratorMonitorsConfig
from prime_rl.configs.shared import (
    BaseModelConfig,
    ClientConfig,
    EnvVars,
    FileSystemWeightBroadcastConfig,
    LogConfig,
    ResumeConfig,
    TokenizerConfig,
    TransportConfig,
    WeightBroadcastConfig,
    ZMQTransportConfig,
)
from prime_rl.utils.config import BaseConfig
from pydantic import Field, model_validator


class ModelConfig(BaseModelConfig):
    client: ClientConfig = ClientConfig()


class LinearLengthPenaltyConfig(BaseConfig):
    type: Literal["linear"] = "linear"
    num_output_tokens_weight: float = 1.0
    num_input_tokens_weight: float = 0.0
    num_turns_weight: float = 0.0


class GRPOAlgoConfig(BaseConfig):
    type: Literal["grpo"] = "grpo"
    length_penalty: LinearLengthPenaltyConfig | None = None


class MaxRLAlgoConfig(BaseConfig):
    type: Literal["max_rl"] = "max_rl"


AlgoConfig: TypeAlias = Annotated[GRPOAlgoConfig | MaxRLAlgoConfig, Field(discriminator="type")]


class RendererConfig(BaseConfig):
    name: str = "auto"
    thinking_retention: str | None = None


class SamplingConfig(BaseConfig):
    temperature: float = Field(1.0, ge=0, le=2.0)
    max_completion_tokens: int | None = None
    extra_body: dict[str, Any] = {}


class ServeConfig(BaseConfig):
    address: str | None = None


class SourceConfig(BaseConfig):
    env: dict[str, Any] = {}
    serve: ServeConfig = ServeConfig()
    name: str | None = None
    ratio: float = Field(1.0, gt=0)
    group_size: int = Field(1, ge=1)
    sampling: SamplingConfig = SamplingConfig()

    @property
    def resolved_name(self) -> str:
        return self.name or str(self.env.get("taskset", {}).get("id", ""))

    @model_validator(mode="after")
    def check_env(self):
        if not self.env.get("taskset", {}).get("id"):
            raise ValueError("no env is configured: want env.taskset.id")
        if self.resolved_name == "agg":
            raise ValueError("`agg` is no name for a source")
        return self


class TrainSourceConfig(SourceConfig):
    algo: AlgoConfig | None = None


class EvalSourceConfig(SourceConfig):
    num_examples: int = -1
    interval: int = Field(100, ge=1)


def check_names(sources) -> None:
    names = [source.resolved_name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two sources of one name: {twice}")


class TrainConfig(BaseConfig):
    source: list[TrainSourceConfig] = Field(default_factory=list)
    sampling: SamplingConfig = SamplingConfig()
    filter_zero_advantages: bool = True

    @model_validator(mode="after")
    def check_sources(self):
        check_names(self.source)
        return self


class EvalConfig(BaseConfig):
    source: list[EvalSourceConfig] = Field(default_factory=list)
    sampling: SamplingConfig = SamplingConfig()
    num_examples: int = -1
    group_size: int = Field(1, ge=1)
    interval: int = Field(100, ge=1)
    skip_first_step: bool = False

    @model_validator(mode="after")
    def check_sources(self):
        if not self.source:
            raise ValueError("an eval needs at least one source")
        check_names(self.source)
        return self


class CheckpointConfig(BaseConfig):
    interval: int | None = Field(None, ge=1)
    keep_last: int | None = Field(None, ge=1)
    keep_interval: int | None = Field(None, ge=1)
    skip_progress: bool = False


class OrchestratorConfig(BaseConfig):
    algo: AlgoConfig = GRPOAlgoConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    renderer: RendererConfig = RendererConfig()
    eval: EvalConfig | None = None
    log: LogConfig = LogConfig()
    env_vars: EnvVars = {}
    monitors: OrchestratorMonitorsConfig = OrchestratorMonitorsConfig()
    ckpt: CheckpointConfig | None = None
    resume: ResumeConfig | None = None
    weight_broadcast: WeightBroadcastConfig = FileSystemWeightBroadcastConfig()
    rollout_transport: TransportConfig = ZMQTransportConfig()
    output_dir: Path = Path("outputs")
    env_server_base_port: int = Field(5000, ge=1, le=65535)
    batch_size: int | None = Field(None, ge=1)
    token_batch_size: int | None = Field(None, ge=1)
    group_size: int = Field(1, ge=1)
    seq_len: int = 2048
    max_steps: int | None = None
    max_off_policy_steps: int = Field(8, ge=0)

    @property
    def env_servers(self):
        """(split, source, port) of each server that the launcher starts, eval after train."""
        sources = [("train", source) for source in self.train.source]
        sources += [("eval", source) for source in (self.eval.source if self.eval else [])]
        return [
            (split, source, self.env_server_base_port + i)
            for i, (split, source) in enumerate(sources)
            if source.serve.address is None
        ]

    @model_validator(mode="after")
    def check_batches(self):
        if self.batch_size is not None and self.token_batch_size is not None:
            raise ValueError("batch_size and token_batch_size exclude each other")
        if self.batch_size is None and self.token_batch_size is None:
            self.batch_size = 128
        if self.batch_size is not None and self.batch_size % self.group_size != 0:
            raise ValueError("batch_size is no multiple of group_size")
        for source in self.train.source:
            if source.algo is None:
                source.algo = self.algo.model_copy(deep=True)
            if "group_size" not in source.model_fields_set:
                source.group_size = self.group_size
        return self
