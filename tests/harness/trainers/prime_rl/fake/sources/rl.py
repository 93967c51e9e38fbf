# mypy: ignore-errors
# ruff: noqa: RUF012
"""TEST DOUBLE of prime-rl: the config of a whole run (the keys used here)."""

import uuid
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from prime_rl.configs.inference import InferenceConfig
from prime_rl.configs.monitors import FileMonitorConfig, PrimeMonitorConfig
from prime_rl.configs.orchestrator import OrchestratorConfig
from prime_rl.configs.shared import (
    EnvVars,
    FileSystemWeightBroadcastConfig,
    NCCLWeightBroadcastConfig,
    ResumeConfig,
    RunConfig,
    SlurmConfig,
    TokenizerConfig,
    TransportConfig,
    WeightBroadcastConfig,
)
from prime_rl.configs.trainer import TrainerConfig
from prime_rl.utils.config import BaseConfig
from prime_rl.utils.validation import check_parts, share
from pydantic import Field, model_validator


class SharedLogConfig(BaseConfig):
    level: str | None = None
    json_logging: bool = False


class SharedWandbConfig(BaseConfig):
    project: str | None = "prime-rl"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    tags: list[str] | None = None
    offline: bool | None = False

    @model_validator(mode="after")
    def check_online(self):
        if self.offline:
            raise ValueError("monitors.wandb.offline: trainer and orchestrator share one run")
        return self


class SharedMonitorsConfig(BaseConfig):
    wandb: SharedWandbConfig | None = None
    file: FileMonitorConfig | None = None
    prime: PrimeMonitorConfig | None = None


class SharedCheckpointConfig(BaseConfig):
    output_dir: Path | None = None
    interval: int | None = None
    keep_last: int | None = Field(None, ge=1)
    keep_interval: int | None = Field(None, ge=1)


class SharedModelConfig(BaseConfig):
    name: str = "Qwen/Qwen3-0.6B"


class BaseDeploymentConfig(BaseConfig):
    gpus_per_node: int = 8


class SingleNodeDeploymentConfig(BaseDeploymentConfig):
    type: Literal["single_node"] = "single_node"
    num_train_gpus: int = 1
    num_infer_gpus: int = 1

    @model_validator(mode="after")
    def check_gpus(self):
        if self.num_train_gpus + self.num_infer_gpus > self.gpus_per_node:
            raise ValueError("num_train_gpus + num_infer_gpus exceeds gpus_per_node")
        return self


class MultiNodeDeploymentConfig(BaseDeploymentConfig):
    type: Literal["multi_node"] = "multi_node"
    num_train_nodes: int
    num_infer_nodes: int | None = Field(None, ge=0)
    num_infer_replicas: int = Field(1, ge=1)
    nodes_per_fsdp_group: int | None = None
    orchestrator_on_inference: bool = False


DeploymentConfig: TypeAlias = Annotated[
    SingleNodeDeploymentConfig | MultiNodeDeploymentConfig, Field(discriminator="type")
]


class RLConfig(BaseConfig):
    trainer: TrainerConfig
    orchestrator: OrchestratorConfig
    inference: InferenceConfig | None = None
    env_vars: EnvVars = {}
    run: RunConfig = Field(default_factory=RunConfig)
    output_dir: Path = Path("outputs")
    clean: bool = False
    log: SharedLogConfig = SharedLogConfig()
    ckpt: SharedCheckpointConfig | None = None
    resume: ResumeConfig | None = None
    monitors: SharedMonitorsConfig = SharedMonitorsConfig()
    model: SharedModelConfig | None = None
    tokenizer: TokenizerConfig | None = None
    max_steps: int | None = None
    seq_len: int | None = None
    weight_broadcast: WeightBroadcastConfig | None = None
    rollout_transport: TransportConfig | None = None
    deployment: DeploymentConfig = SingleNodeDeploymentConfig()
    slurm: SlurmConfig | None = None
    dry_run: bool = False

    @property
    def run_dir(self) -> Path:
        return self.output_dir / self.run.dir

    @model_validator(mode="before")
    @classmethod
    def share_fields(cls, data: Any) -> Any:
        return share(data)

    @model_validator(mode="after")
    def name_run(self):
        if self.run.name is None:
            self.run.name = f"{self.trainer.model.name.split('/')[-1]}--{uuid.uuid4().hex[:8]}"
        if self.run.dir is None:
            self.run.dir = self.run.name
        for part in (self.trainer, self.orchestrator):
            if "output_dir" in part.model_fields_set and part.output_dir != self.run_dir:
                raise ValueError("output_dir of a part is not the run's: set output_dir, run.name")
            part.output_dir = self.run_dir
        tables = [p.monitors.wandb for p in (self, self.trainer, self.orchestrator)]
        tables += [self.monitors.prime, self.orchestrator.monitors.prime]
        for table in tables:
            if table is not None and table.name is None:
                table.name = self.run.name
        return self

    @model_validator(mode="after")
    def share_objects(self):
        if self.resume is not None:
            self.trainer.resume = self.resume.model_copy()
            self.orchestrator.resume = self.resume.model_copy()
        if self.weight_broadcast is None:
            is_filed = self.trainer.model.lora is not None or self.inference is None
            kind = FileSystemWeightBroadcastConfig if is_filed else NCCLWeightBroadcastConfig
            self.weight_broadcast = kind()
        self.trainer.weight_broadcast = self.weight_broadcast.model_copy()
        self.orchestrator.weight_broadcast = self.weight_broadcast.model_copy()
        if self.inference is not None:
            self.inference.weight_broadcast.type = self.weight_broadcast.type
        if self.rollout_transport is None:
            self.rollout_transport = self.trainer.rollout_transport
        check_parts(self)
        return self

    @model_validator(mode="after")
    def check_deployment(self):
        deployment, inference = self.deployment, self.inference
        if deployment.type == "single_node":
            return self
        if self.slurm is None:
            raise ValueError("a deployment on several nodes needs [slurm]")
        if deployment.num_infer_nodes is None:
            deployment.num_infer_nodes = (
                0 if inference is None else getattr(inference.deployment, "num_nodes", 1)
            )
        if (inference is None) != (deployment.num_infer_nodes == 0):
            raise ValueError("[inference] and deployment.num_infer_nodes contradict each other")
        if inference is not None and inference.router is None:
            raise ValueError("several nodes need inference.router")
        if inference is None and self.trainer.data.fake is None:
            raise ValueError("without inference nodes trainer.data.fake is needed")
        return self
