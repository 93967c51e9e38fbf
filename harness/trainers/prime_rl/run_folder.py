"""prime-rl's folder of one run: where it goes on from, and what is in the way of a new start."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError

CHECKPOINTS = "checkpoints"
METRICS_FILES = ("metrics.jsonl", "monitors/file/metrics.jsonl")
"""By version."""

_STEP = re.compile(r"step_(0|[1-9][0-9]*)")
_TRAINER_DONE = Path("trainer", ".metadata")
"""Written last: before, other ranks may still be writing."""
_ORCHESTRATOR_DONE = Path("orchestrator", "progress.pt")
_LAUNCHER_FILES = ("configs", "launcher", "rl.sbatch", "sft.sbatch", "job_*.log")
"""What prime-rl writes before a run begins, and starts a new run over."""


@dataclass(frozen=True)
class RunFolder:
    """Where a run of prime-rl leaves its files.

    Attributes:
        root: the folder by the run's name.
        checkpoint_dir: where the trainer keeps its checkpoints instead; None for below `root`.
    """

    root: Path
    checkpoint_dir: Path | None = None

    def newest_whole_step(self) -> int | None:
        """Return the newest step that trainer and orchestrator both have saved whole."""
        for step in sorted(self._steps(), reverse=True):
            if all(part.is_file() for part in self.parts_of(step)):
                return step
        return None

    def parts_of(self, step: int) -> tuple[Path, Path]:
        """Return the files that are both there once the checkpoint of `step` is whole."""
        name = f"step_{step}"
        return (
            self._trainer_checkpoints() / name / _TRAINER_DONE,
            self.root / CHECKPOINTS / name / _ORCHESTRATOR_DONE,
        )

    def has_artifacts(self) -> bool:
        """Whether a run began here: prime-rl refuses to begin another."""
        return self.root.is_dir() and any(
            not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in _LAUNCHER_FILES)
            for entry in self.root.iterdir()
        )

    def refuse_used(self) -> None:
        """Refuse a folder with files of a run, for a run that has not begun.

        Raises:
            HarnessError: there are some, or checkpoints elsewhere.
        """
        if self.has_artifacts():
            raise HarnessError(
                f"`{self.root}` holds the files of a run, but this run has not begun before",
                "move that folder away, or give the sweep another name",
            )
        self._refuse_stray_checkpoints()

    def move_aside(self) -> list[Path]:
        """Make room for a new start; return where the old files went. Nothing is deleted.

        Raises:
            HarnessError: a checkpoint folder that no run began here has filled.
        """
        if not self.has_artifacts():
            self._refuse_stray_checkpoints()
            return []
        moved = [_move(self.root)]
        if self.checkpoint_dir is not None and self._has_checkpoints_elsewhere():
            moved.append(_move(self.checkpoint_dir))
        return moved

    def _has_checkpoints_elsewhere(self) -> bool:
        folder = self.checkpoint_dir
        return folder is not None and _is_filled(folder / CHECKPOINTS)

    def _refuse_stray_checkpoints(self) -> None:
        if self._has_checkpoints_elsewhere():
            raise HarnessError(
                f"`{self.checkpoint_dir}` holds checkpoints, but this run has not begun before",
                "another run of this name wrote them: move them, or change `ckpt.output_dir`",
            )

    def _steps(self) -> set[int]:
        folder = self._trainer_checkpoints()
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return {int(match[1]) for name in names if (match := _STEP.fullmatch(name))}

    def _trainer_checkpoints(self) -> Path:
        return (self.checkpoint_dir or self.root) / CHECKPOINTS


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _move(folder: Path) -> Path:
    number = 1
    while (target := folder.with_name(f"{folder.name}.lost_{number}")).exists():
        number += 1
    return folder.rename(target)
