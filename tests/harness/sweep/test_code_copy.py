from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.records.layout import SweepPaths
from harness.sweep.code_copy import freeze_code, read_code


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A git checkout with a tracked, an ignored and an untracked file."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / ".gitignore").write_text("data/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    (folder / "data").mkdir()
    (folder / "data" / "big.bin").write_bytes(b"0" * 1000)
    return folder


def test_the_copy_holds_tracked_and_new_files_as_they_are_now(
    program: Path, tmp_path: Path
) -> None:
    (program / "train.py").write_text("print(2)\n")
    (program / "new.py").write_text("")
    code = read_code(program)
    copy = freeze_code(code, SweepPaths(tmp_path / "sweep"))
    names = sorted(str(p.relative_to(copy / "program")) for p in (copy / "program").rglob("*"))
    assert names == [".gitignore", "new.py", "tool.sh", "train.py"]
    assert (copy / "program/train.py").read_text() == "print(2)\n"
    assert (copy / "program/tool.sh").stat().st_mode & 0o111
    assert (copy / "harness/errors.py").is_file()
    diff = (copy / "uncommitted.diff").read_text()
    assert "+print(2)" in diff
    assert "untracked: new.py" in diff
    assert code.record.program_is_dirty is True


def test_the_hash_follows_the_content_alone(program: Path) -> None:
    first = read_code(program).record
    (program / "data" / "big.bin").write_bytes(b"1")
    assert read_code(program).record.hash == first.hash
    assert first.program_is_dirty is False
    (program / "train.py").write_text("print(3)\n")
    assert read_code(program).record.hash != first.hash


def test_freezing_again_gives_the_same_copy_and_leaves_nothing_else(
    program: Path, tmp_path: Path
) -> None:
    sweep = SweepPaths(tmp_path / "sweep")
    first = freeze_code(read_code(program), sweep)
    assert freeze_code(read_code(program), sweep) == first
    assert [p.name for p in sweep.code_root.iterdir()] == [first.name]


def test_a_folder_outside_git_is_copied_whole(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "train.py").write_text("")
    code = read_code(folder)
    assert code.record.program_commit is None
    assert "program/train.py" in code.files


def test_a_folder_full_of_data_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    with (folder / "data.bin").open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(UsageError, match="holds 60 MB, more than 50"):
        read_code(folder)


def long_path(folder: Path, length: int) -> Path:
    while len(str(folder)) < length:
        folder /= "d" * min(200, length - len(str(folder)) - 1 or 1)
    return folder


@pytest.mark.parametrize("kind", ["file in the way", "path too long"])
def test_a_copy_that_cannot_be_written_is_refused_and_leaves_nothing(
    program: Path, tmp_path: Path, kind: str
) -> None:
    sweep = SweepPaths(tmp_path / "sweep")
    if kind == "path too long":
        sweep = SweepPaths(long_path(tmp_path, 4030))
    sweep.root.mkdir(parents=True)
    if kind == "file in the way":
        sweep.code_root.write_text("")
    before = sorted(sweep.root.iterdir())
    with pytest.raises(UsageError, match="the code can't be copied to") as error:
        freeze_code(read_code(program), sweep)
    assert "HARNESS_OUTPUTS" in error.value.hint
    assert sorted(sweep.root.iterdir()) == before


def test_results_caches_and_environments_beside_the_program_are_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    for name in (
        "train.py",
        "pkg/model.py",
        "outputs/study/plan.json",
        "__pycache__/train.pyc",
        "venv/pyvenv.cfg",
        "venv/lib/big.py",
        ".cache/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    files = [name for name in read_code(tmp_path).files if name.startswith("program/")]
    assert files == ["program/pkg/model.py", "program/train.py"]


def test_results_in_a_git_checkout_that_does_not_ignore_them_are_no_code(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_OUTPUTS", str(program / "results"))
    before = read_code(program).record.hash
    (program / "results").mkdir()
    (program / "results" / "plan.json").write_text("{}")
    assert read_code(program).record.hash == before
