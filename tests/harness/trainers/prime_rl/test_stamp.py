from __future__ import annotations

import hashlib
from pathlib import Path

from harness.trainers.interface import Stamp
from harness.trainers.prime_rl.loss_schema import SOURCE_FILES
from harness.trainers.prime_rl.stamp import stamp
from tests.harness.trainers.prime_rl.arms import git, make_checkout, make_config


def test_a_clean_checkout_is_known_by_its_commit(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout", is_git=True)
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "untracked.txt").touch()
    config = make_config(checkout, "rl.toml")
    assert stamp(config) == Stamp(commit, commit, is_dirty=False)


def test_a_change_gives_another_stamp_until_it_is_taken_back(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout", is_git=True)
    config = make_config(checkout, "rl.toml")
    clean = stamp(config)
    assert clean is not None
    path = checkout / SOURCE_FILES[0]
    text = path.read_text()
    seen = {clean.text}
    for change in ("# one\n", "# two\n"):
        path.write_text(text + change)
        diff = hashlib.sha256(f"{git(checkout, 'diff', 'HEAD', '--full-index')}\n".encode())
        dirty = stamp(config)
        assert dirty == Stamp(f"{clean.commit}+{diff.hexdigest()}", clean.commit, is_dirty=True)
        assert dirty.text not in seen
        seen.add(dirty.text)
    path.write_text(text)
    assert stamp(config) == clean


def test_there_is_no_stamp_outside_git(tmp_path: Path) -> None:
    assert stamp(make_config(make_checkout(tmp_path / "checkout"), "rl.toml")) is None


def test_a_copy_that_another_repository_does_not_track_has_no_stamp(tmp_path: Path) -> None:
    outer = make_checkout(tmp_path / "outer", is_git=True)
    inner = make_checkout(outer / "copy")
    assert stamp(make_config(inner, "rl.toml")) is None
