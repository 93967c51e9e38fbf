from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.trainers.prime_rl.run_folder import RunFolder


def _save(root: Path, step: int, *, trainer: bool = True, orchestrator: bool = True) -> None:
    step_dir = root / "checkpoints" / f"step_{step}"
    for is_whole, name in (
        (trainer, "trainer/.metadata"),
        (orchestrator, "orchestrator/progress.pt"),
    ):
        path = step_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_whole:
            path.touch()


def test_the_newest_step_that_both_parts_saved_whole_is_found(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.newest_whole_step() is None
    _save(folder.root, 9)
    _save(folder.root, 10)
    _save(folder.root, 30, trainer=False)
    _save(folder.root, 40, orchestrator=False)
    (folder.root / "checkpoints" / "step_latest").mkdir()
    (folder.root / "checkpoints" / "step_010").mkdir()
    assert folder.newest_whole_step() == 10


def test_the_trainers_part_may_stand_elsewhere(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", tmp_path / "big")
    _save(folder.root, 10, trainer=False)
    assert folder.newest_whole_step() is None
    _save(folder.checkpoint_dir or tmp_path, 10, orchestrator=False)
    assert folder.newest_whole_step() == 10


def test_what_the_launcher_writes_is_no_artifact(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not folder.has_artifacts()
    folder.root.mkdir()
    for name in ("configs", "launcher"):
        (folder.root / name).mkdir()
    for name in ("rl.sbatch", "sft.sbatch", "job_12.log"):
        (folder.root / name).touch()
    assert not folder.has_artifacts()
    assert folder.move_aside() == []
    (folder.root / "logs").mkdir()
    assert folder.has_artifacts()


def test_an_earlier_start_is_moved_aside_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for number in (1, 2):
        folder.root.mkdir()
        (folder.root / "metrics.jsonl").write_text(str(number))
        assert folder.move_aside() == [tmp_path / f"run.lost_{number}"]
        assert not folder.root.exists()
    assert (tmp_path / "run.lost_1" / "metrics.jsonl").read_text() == "1"
    assert (tmp_path / "run.lost_2" / "metrics.jsonl").read_text() == "2"


def test_checkpoints_elsewhere_are_moved_with_their_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", tmp_path / "big" / "run")
    (folder.root / "logs").mkdir(parents=True)
    _save(tmp_path / "big" / "run", 5, orchestrator=False)
    assert folder.move_aside() == [tmp_path / "run.lost_1", tmp_path / "big" / "run.lost_1"]
    assert (tmp_path / "big/run.lost_1/checkpoints/step_5/trainer/.metadata").is_file()


def test_checkpoints_of_another_run_are_left_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", tmp_path / "big" / "run")
    _save(tmp_path / "big" / "run", 5, orchestrator=False)
    with pytest.raises(HarnessError, match="holds checkpoints, but this run has not begun before"):
        folder.move_aside()
    assert (tmp_path / "big" / "run" / "checkpoints").is_dir()
