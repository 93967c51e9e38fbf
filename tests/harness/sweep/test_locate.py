from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.records.layout import SweepPaths
from harness.sweep.locate import check_outputs_root, find_planned, find_sweep_file

LONG = "a" * 300


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder: sweeps/ok.yaml and sweeps/new.yaml; outputs/ok has been planned."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "ok.yaml").write_text("")
    (tmp_path / "sweeps" / "new.yaml").write_text("")
    make_planned(tmp_path / "outputs" / "ok")
    return tmp_path


def make_planned(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "plan.json").write_text("{}")


@pytest.mark.parametrize("word", ["ok", "sweeps/ok.yaml", "outputs/ok", "./outputs/ok/"])
def test_a_planned_sweep_is_found_by_name_file_or_folder(word: str) -> None:
    found = find_planned(word)
    assert found.root.resolve() == Path("outputs/ok").resolve()
    assert found.name == "ok"


def test_a_folder_elsewhere_is_a_sweep_where_it_holds_a_plan(tmp_path: Path) -> None:
    make_planned(tmp_path / "archive" / "old")
    assert find_planned("archive/old") == SweepPaths(Path("archive/old"))


def test_the_working_folder_may_be_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "outputs" / "ok")
    assert find_planned(".").name == "ok"


@pytest.mark.parametrize(
    ("word", "error", "hint"),
    [
        ("/nonexist/zzz/ok", "`/nonexist/zzz/ok` does not exist", "did you mean `ok`?"),
        ("zzz/ok.yaml", "the sweep file `zzz/ok.yaml` does not exist", "`sweeps/ok.yaml`"),
        ("ok.yaml", "the sweep file `ok.yaml` does not exist", "did you mean `sweeps/ok.yaml`?"),
        ("ok/", "`ok/` does not exist", "did you mean `ok`?"),
        ("sweeps/", "`sweeps/` is no folder of a sweep: it holds no `plan.json`", "its name"),
        ("outputs/ok/plan.json", "`outputs/ok/plan.json` does not", ""),
        ("new", "the sweep `new` has not been run", "harness run new"),
        ("sweeps/new.yaml", "the sweep `new` has not been run", "harness run sweeps/new.yaml"),
        ("okk", "there is no sweep `okk`", "did you mean `ok`?"),
        ("../ok", "`../ok` does not exist", "`ok`"),
        ("", "there is no sweep ``", "sweeps: `new`, `ok`"),
        (LONG, "there is no sweep", "sweeps: `new`, `ok`"),
        (f"{LONG}/x", "does not exist", "sweeps: `new`, `ok`"),
    ],
)
def test_a_planned_sweep_is_never_guessed(word: str, error: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_planned(word)
    assert error in raised.value.message
    assert hint in raised.value.hint
    assert raised.value.hint != ""


@pytest.mark.parametrize(
    ("word", "error", "hint"),
    [
        ("ok.yaml", "the sweep file `ok.yaml` does not exist", "did you mean `sweeps/ok.yaml`?"),
        ("sweeps/okk.yaml", "`sweeps/okk.yaml` does not exist", "`sweeps/ok.yaml`"),
        ("outputs/ok", "`outputs/ok` is a folder", "did you mean `ok`?"),
        (LONG, "there is no sweep", "sweeps: `new`, `ok`"),
        (f"{LONG}.yaml", "does not exist", "sweeps: `new`, `ok`"),
    ],
)
def test_a_sweep_file_that_is_not_there_is_refused(word: str, error: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_sweep_file(word)
    assert error in raised.value.message
    assert hint in raised.value.hint


def test_where_there_are_no_sweeps_the_hint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for word in ("ok", "ok.yaml"):
        with pytest.raises(UsageError) as raised:
            find_sweep_file(word)
        assert raised.value.hint == (
            "there is no sweep in `sweeps/` here, and none has run; give a sweep file's path"
        )


def test_a_folder_that_can_be_made_may_hold_outputs(tmp_path: Path) -> None:
    check_outputs_root(tmp_path / "a" / "b")
    check_outputs_root(Path("outputs"))
    assert not (tmp_path / "a").exists()


def test_folders_that_cannot_hold_outputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for root, error in [
        (tmp_path / "file" / "x", "file` is not a folder you may write to"),
        (tmp_path / "dangling", "dangling` is not a folder you may write to"),
        (tmp_path / LONG, "File name too long"),
        (tmp_path / "a:b", "path with `:`"),
        (Path("a:b/ok"), "path with `:`"),
    ]:
        with pytest.raises(UsageError) as raised:
            check_outputs_root(root)
        assert error in raised.value.message
        assert "HARNESS_OUTPUTS" in raised.value.hint
