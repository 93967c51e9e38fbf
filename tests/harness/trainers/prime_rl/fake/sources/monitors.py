# mypy: ignore-errors
"""TEST DOUBLE of prime-rl: where it logs to."""

from pathlib import Path

from prime_rl.utils.config import BaseConfig
from prime_rl.utils.layout import METRICS_PATH


class WandbMonitorConfig(BaseConfig):
    project: str = "prime-rl"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    tags: list[str] | None = None
    offline: bool = False


class FileMonitorConfig(BaseConfig):
    path: Path = Path(METRICS_PATH)


class PrimeMonitorConfig(BaseConfig):
    name: str | None = None


class MonitorsConfig(BaseConfig):
    wandb: WandbMonitorConfig | None = None
    file: FileMonitorConfig | None = FileMonitorConfig()


class OrchestratorMonitorsConfig(MonitorsConfig):
    prime: PrimeMonitorConfig | None = None
