from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.checkpoint import (
    BUILTIN,
    OTHER,
    PRIME_RL,
    find_entries,
    hash_content,
    open_checkpoint,
    stamp_content,
)
from harness.errors import UsageError
from harness.records.files import write_json

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def make_builtin(folder: Path, step: int = 20) -> Path:
    path = folder / f"step_{step:06d}"
    path.mkdir(parents=True)
    (path / "state.pt").touch()
    about = {"task": {"type": "reverse"}}
    write_json(path / "manifest.json", {"step": step, "sha256": EMPTY_SHA256, "about": about})
    return path


def make_prime_rl(folder: Path) -> Path:
    path = folder / "step_50"
    for part in ("trainer/.metadata", "trainer/0.distcp", "orchestrator/progress.pt"):
        (path / part).parent.mkdir(parents=True, exist_ok=True)
        (path / part).write_text(part)
    return path


def test_checkpoints_are_told_by_their_files(tmp_path: Path) -> None:
    other = tmp_path / "step_7.pt"
    other.write_bytes(b"weights")
    found = [open_checkpoint(p) for p in (make_builtin(tmp_path), make_prime_rl(tmp_path), other)]
    assert [(c.step, c.kind) for c in found] == [(20, BUILTIN), (50, PRIME_RL), (7, OTHER)]
    assert found[0].about == {"task": {"type": "reverse"}}
    (tmp_path / ".tmp-1").mkdir()
    assert list(find_entries(tmp_path)) == [7, 20, 50]
    assert find_entries(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("step_000020/manifest.json", "it has no `manifest.json`"),
        ("step_000020/state.pt", "it has no `state.pt`"),
        ("step_50/trainer/.metadata", "it has no `trainer/.metadata`"),
        ("step_50/orchestrator/progress.pt", "it has no `orchestrator/progress.pt`"),
        ("step_50/orchestrator", "it has no `orchestrator/progress.pt`"),
    ],
)
def test_a_half_written_checkpoint_is_refused(tmp_path: Path, missing: str, reason: str) -> None:
    make_builtin(tmp_path)
    make_prime_rl(tmp_path)
    path = tmp_path / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UsageError, match="damaged or half-written") as caught:
        open_checkpoint(tmp_path / missing.partition("/")[0])
    assert reason in caught.value.message
    assert f"`{tmp_path}` has those of step" in caught.value.hint


def test_a_torn_state_an_empty_folder_and_a_wrong_name_are_refused(tmp_path: Path) -> None:
    torn = make_builtin(tmp_path)
    (torn / "state.pt").write_bytes(b"torn")
    with pytest.raises(UsageError, match="is not what its manifest says"):
        open_checkpoint(torn)
    renamed = make_builtin(tmp_path, 30).rename(tmp_path / "step_000040")
    with pytest.raises(UsageError, match="it is of step 30"):
        open_checkpoint(renamed)
    (tmp_path / "step_1").mkdir()
    with pytest.raises(UsageError, match="it holds no file"):
        open_checkpoint(tmp_path / "step_1")
    with pytest.raises(UsageError, match="its name is not `step_N`"):
        open_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        open_checkpoint(tmp_path / "step_99")


def test_the_hash_is_of_content_alone_and_the_stamp_of_times_too(tmp_path: Path) -> None:
    path = make_prime_rl(tmp_path / "one")
    copy = make_prime_rl(tmp_path / "other")
    os.utime(copy / "trainer" / "0.distcp", (0, 0))
    assert hash_content(path) == hash_content(copy)
    assert stamp_content(path) != stamp_content(copy)
    (copy / "trainer" / "0.distcp").rename(copy / "trainer" / "1.distcp")
    assert hash_content(path) != hash_content(copy)
