# mypy: ignore-errors
# ruff: noqa: RUF012
"""TEST DOUBLE of prime-rl: the config of the inference server (the keys used here)."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from prime_rl.configs.shared import EnvVars, LogConfig, SlurmConfig
from prime_rl.utils.config import BaseConfig
from pydantic import ConfigDict, Field, model_validator


class ServerConfig(BaseConfig):
    host: str | None = None
    port: int = 8000


class VllmConfig(BaseConfig):
    """Any other key is passed to the server as it is."""

    model_config = ConfigDict(extra="allow")

    model: str = "Qwen/Qwen3-0.6B"
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    max_model_len: int | None = None
    chat_template: str | None = None
    tensor_parallel_size: int = 1
    data_parallel_size: int = Field(1, ge=1)
    data_parallel_rpc_port: int = Field(13345, ge=1, le=65535)
    seed: int = 0
    gpu_memory_utilization: float = 0.9
    quantization: str | None = None
    enable_expert_parallel: bool = False
    enable_return_routed_experts: bool = False


class RouterConfig(BaseConfig):
    type: Literal["vllm-router"] = "vllm-router"
    policy: str = "consistent_hash"


class SingleNodeInferenceDeploymentConfig(BaseConfig):
    type: Literal["single_node"] = "single_node"
    gpus_per_node: int = 8


class MultiNodeInferenceDeploymentConfig(BaseConfig):
    type: Literal["multi_node"] = "multi_node"
    gpus_per_node: int = 8
    num_nodes: int = Field(2, ge=1)


InferenceDeploymentConfig: TypeAlias = Annotated[
    SingleNodeInferenceDeploymentConfig | MultiNodeInferenceDeploymentConfig,
    Field(discriminator="type"),
]


class WeightBroadcastConfig(BaseConfig):
    type: Literal["nccl", "filesystem"] = "filesystem"


class InferenceConfig(BaseConfig):
    server: ServerConfig = ServerConfig()
    router: RouterConfig | None = Field(default_factory=RouterConfig)
    backend_port: int = 8100
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    log: LogConfig = LogConfig()
    env_vars: EnvVars = {}
    weight_broadcast: WeightBroadcastConfig = WeightBroadcastConfig()
    deployment: InferenceDeploymentConfig = SingleNodeInferenceDeploymentConfig()
    slurm: SlurmConfig | None = None
    output_dir: Path = Path("outputs")
    dry_run: bool = False

    @model_validator(mode="after")
    def complete(self):
        if self.deployment.type == "multi_node" and self.slurm is None:
            raise ValueError("inference on several nodes needs [slurm]")
        if self.router is not None and "backend_port" not in self.model_fields_set:
            self.backend_port = self.server.port + 100
        return self
