"""Metrics in Weights & Biases, online or in an offline folder. The only module that knows wandb."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from harness.errors import HarnessError
from harness.records.layout import ReportPaths
from harness.records.model import RunRecord
from harness.trackers.config import WandbConfig
from harness.trackers.interface import Row

_INIT_TIMEOUT_S = 60.0
_IDENTITY_VARIABLES = (
    "WANDB_DIR",
    "WANDB_DISABLED",
    "WANDB_MODE",
    "WANDB_NAME",
    "WANDB_PROJECT",
    "WANDB_RESUME",
    "WANDB_RUN_DIR",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_ID",
    "WANDB_RUN_STORAGE_ID",
    "WANDB_SERVICE",
    "WANDB_SWEEP_ID",
)


def wandb_run_id(record: RunRecord) -> str:
    """Return the run's id: the same for every attempt, different for every arm, seed and config,
    and for another execution of the same run."""
    name = f"{record.sweep}/{record.arm}/seed_{record.seed}/{record.identity}/{record.nonce}"
    return hashlib.sha256(name.encode()).hexdigest()[:20]


class WandbTracker:
    """One W&B run per run of the harness; attempts continue it. Group: the sweep.

    Its local folder is `<trainer_dir>/wandb`. Rows carry `step`, which is every metric's x axis.

    Raises:
        OSError: the folder can't be written.
    """

    def __init__(
        self,
        trainer_dir: Path,
        settings: WandbConfig,
        record: RunRecord,
        config: Mapping[str, Any],
    ) -> None:
        # Inherited from the shell of a sweep, these would make one W&B run of all arms.
        for variable in _IDENTITY_VARIABLES:
            os.environ.pop(variable, None)
        folder = trainer_dir / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            # wandb would silently write to a temporary folder.
            raise PermissionError(f"`{folder}` is not writable")
        self._run = wandb.init(
            mode="online" if settings.mode == "online" else "offline",
            dir=str(trainer_dir),
            project=settings.project,
            entity=settings.entity,
            group=record.sweep,
            name=f"{record.arm}-s{record.seed}",
            id=wandb_run_id(record),
            resume="allow",
            config={**config, "arm": record.arm, "sweep": record.sweep},
            settings=wandb.Settings(
                console="off", disable_git=True, init_timeout=_INIT_TIMEOUT_S, silent=True
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Row) -> None:
        self._run.log(dict(row))

    def close(self) -> None:
        self._run.finish()


def log_report(paths: ReportPaths, project: str, name: str) -> str:
    """Log a report as an artifact, and its tables as tables; return where they are.

    Online or offline as `WANDB_MODE` says.

    Args:
        project: `PROJECT` or `ENTITY/PROJECT`.

    Raises:
        HarnessError: W&B doesn't take it.
    """
    entity, _, project_name = project.rpartition("/")
    try:
        run = wandb.init(
            project=project_name,
            entity=entity or None,
            name=f"report-{name}",
            job_type="report",
            settings=wandb.Settings(
                console="off", disable_git=True, init_timeout=_INIT_TIMEOUT_S, silent=True
            ),
        )
        for path in (paths.runs_csv, paths.comparisons_csv):
            with path.open(encoding="utf-8", newline="") as file:
                head, *rows = csv.reader(file)
            columns: list[str | int] = [*head]
            data: list[Any] = [*rows]
            run.log({path.stem: wandb.Table(columns=columns, data=data)})
        artifact = wandb.Artifact(f"report-{name}", type="report")
        artifact.add_dir(str(paths.root))
        run.log_artifact(artifact)
        where = run.url or str(Path(run.dir).parent)
        run.finish()
    except (wandb.Error, OSError) as error:
        [reason, *_] = str(error).splitlines() or ["no reason given"]
        raise HarnessError(
            f"W&B didn't take the report: {reason}",
            f"it lies in `{paths.root}`; `wandb login`, or WANDB_MODE=offline, and try again",
        ) from error
    return where
