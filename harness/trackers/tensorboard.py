"""Metrics as TensorBoard event files."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from harness.trackers.interface import Row

FOLDER = "tensorboard"


class TensorboardTracker:
    """Writes every metric as a scalar under its key.

    `first_step` is where this attempt begins: what an earlier one wrote from there on is hidden.
    """

    def __init__(self, trainer_dir: Path, *, first_step: int) -> None:
        self._writer = SummaryWriter(str(trainer_dir / FOLDER), purge_step=first_step)

    def log(self, row: Row) -> None:
        for key, value in row.items():
            self._writer.add_scalar(key, value, int(row["step"]), walltime=row.get("time"))

    def close(self) -> None:
        self._writer.close()
