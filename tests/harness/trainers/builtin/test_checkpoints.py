from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.errors import HarnessError
from harness.records.files import read_json, write_json
from harness.trainers.builtin.checkpoints import (
    SupersededError,
    checkpoint_dir,
    list_checkpoints,
    load_newest_checkpoint,
    save_checkpoint,
)
from harness.trainers.builtin.config import CheckpointsConfig

KEEP_ALL = CheckpointsConfig(keep_last=100)


def save(folder: Path, step: int, config: CheckpointsConfig = KEEP_ALL) -> None:
    state = {"step": step, "values": torch.full((3,), float(step))}
    save_checkpoint(folder, step, state, config, is_superseded=lambda: False)


def flip_a_bit(path: Path) -> None:
    content = bytearray((path / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "state.pt").write_bytes(content)


def truncate(path: Path) -> None:
    content = (path / "state.pt").read_bytes()
    (path / "state.pt").write_bytes(content[: len(content) // 2])


def remove_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def remove_state(path: Path) -> None:
    (path / "state.pt").unlink()


def misname(path: Path) -> None:
    manifest = read_json(path / "manifest.json")
    write_json(path / "manifest.json", {**manifest, "step": 7})


def test_the_newest_checkpoint_comes_back(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step)
    checkpoint = load_newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 100
    assert checkpoint.state["values"].tolist() == [100.0] * 3


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_newest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, remove_manifest, remove_state, misname])
def test_a_damaged_checkpoint_is_named_and_the_next_older_one_used(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 50)
    save(tmp_path, 100)
    damage(checkpoint_dir(tmp_path, 100))
    checkpoint = load_newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 50
    message = capsys.readouterr().err
    assert "step_000100" in message
    assert "damaged" in message


def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    save(tmp_path, 50)
    save(tmp_path, 100)
    truncate(checkpoint_dir(tmp_path, 100))
    save(tmp_path, 100)
    checkpoint = load_newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000050", "step_000100"]


def test_another_format_is_refused_not_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 100)
    manifest = read_json(tmp_path / "step_000100/manifest.json")
    write_json(tmp_path / "step_000100/manifest.json", {**manifest, "format": 99})
    with pytest.raises(HarnessError, match="has format 99, this code reads 1"):
        load_newest_checkpoint(tmp_path)


def test_a_foreign_pickle_is_not_executed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
            return Path.touch, (tmp_path / "harmed",)

    folder = checkpoint_dir(tmp_path, 5)
    folder.mkdir(parents=True)
    content = pickle.dumps(Harm(), protocol=2)
    (folder / "state.pt").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    write_json(folder / "manifest.json", {"format": 1, "sha256": digest, "step": 5})
    assert load_newest_checkpoint(tmp_path) is None
    assert "not a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "harmed").exists()


def test_pruning_keeps_the_last_and_the_multiples(tmp_path: Path) -> None:
    config = CheckpointsConfig(keep_last=2, keep_every=30)
    for step in range(10, 101, 10):
        save(tmp_path, step, config)
    assert list_checkpoints(tmp_path) == [30, 60, 90, 100]


def test_pruning_without_multiples(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step, CheckpointsConfig(keep_last=1))
        assert list_checkpoints(tmp_path) == [step]


def test_a_superseded_attempt_publishes_and_removes_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(SupersededError):
        save_checkpoint(tmp_path, 2, {}, CheckpointsConfig(keep_last=1), is_superseded=lambda: True)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_what_a_killed_process_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    leftover = tmp_path / ".tmp-123-abcd"
    leftover.mkdir()
    (leftover / "state.pt").write_bytes(b"half")
    checkpoint = load_newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert not leftover.exists()
