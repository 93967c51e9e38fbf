# mypy: ignore-errors
"""TEST DOUBLE of prime-rl: the folders of a run."""

import os
import shutil
from pathlib import Path

from prime_rl.utils.layout import LAYOUT, OWN_FILES


def next_attempt(folder: Path) -> Path:
    """Make `attempt_<n>` below `folder` and point `latest` at it."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [path.name.removeprefix("attempt_") for path in folder.glob("attempt_*")]
    attempt = folder / f"attempt_{1 + max((int(n) for n in numbers if n.isdigit()), default=0)}"
    attempt.mkdir()
    link = folder / f".{attempt.name}"
    link.unlink(missing_ok=True)
    link.symlink_to(attempt.name)
    os.replace(link, folder / "latest")
    return attempt


def make_config_dir(run_dir: Path) -> Path:
    """Return the folder for the resolved configs of this launch."""
    folder = run_dir / "configs"
    if LAYOUT == "newest":
        folder = next_attempt(folder) / "resolved"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps that have a folder, whole or not."""
    return sorted(int(path.name.removeprefix("step_")) for path in folder.glob("step_*"))


def check_run_dir(config) -> None:
    """Refuse a folder that an earlier run has used, unless it is resumed or cleaned."""
    run_dir = config.run_dir
    folders = [run_dir]
    if config.ckpt is not None and config.ckpt.output_dir is not None:
        folders.append(config.ckpt.output_dir)
    if config.resume is not None:
        return
    if config.clean:
        if not run_dir.resolve().is_relative_to(config.output_dir.resolve()):
            raise ValueError(f"clean: {run_dir} is not below {config.output_dir}")
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        return
    own = {path for pattern in OWN_FILES for path in run_dir.glob(pattern)}
    if run_dir.exists() and any(path not in own for path in run_dir.iterdir()):
        raise FileExistsError(f"run directory '{run_dir}' holds files of an earlier run: resume it")
    if any(path for folder in folders[1:] for path in (folder / "checkpoints").glob("*")):
        raise FileExistsError(f"checkpoint directory '{folders[1]}' holds those of an earlier run")


def clean_future_steps(run_dir: Path, step: int) -> None:
    """Remove rollouts and broadcasts beyond `step`."""
    for name in ("rollouts", "broadcasts"):
        for found in checkpoint_steps(run_dir / name):
            if found > step:
                shutil.rmtree(run_dir / name / f"step_{found}")
