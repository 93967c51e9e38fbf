from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.layout import SweepPaths, repair_hint


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "toy")


def make_run(sweep: SweepPaths, arm: str, folder: str) -> None:
    path = sweep.runs_dir / arm / folder
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")


def test_runs_are_listed_by_arm_and_seed(sweep: SweepPaths) -> None:
    for arm, folder in [("b", "seed_10"), ("b", "seed_9"), ("a", "seed_0")]:
        make_run(sweep, arm, folder)
    assert [(r.arm, r.seed) for r in sweep.runs()] == [("a", 0), ("b", 9), ("b", 10)]


@pytest.mark.parametrize(
    "folder", ["seed_x", "seed_", "seed_-1", "seed_1.bak", "seed_01", "seed_٣"]
)
def test_folders_that_are_no_seed_are_no_runs(sweep: SweepPaths, folder: str) -> None:
    make_run(sweep, "ipo", "seed_1")
    make_run(sweep, "ipo", folder)
    assert [r.root.name for r in sweep.runs()] == ["seed_1"]


def test_attempts_are_numbered_folders_with_a_claim(sweep: SweepPaths) -> None:
    run = sweep.run("ipo", 0)
    for name in ("10", "9", "1", "01", "0", "x", "٣"):
        (run.attempts_dir / name).mkdir(parents=True)
        (run.attempts_dir / name / "claim.json").write_text("{}")
    (run.attempts_dir / "11").mkdir()
    assert [attempt.number for attempt in run.attempts()] == [1, 9, 10]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("s/plan.json", "copy the newest of `s/plans` over it"),
        ("s/runs/a/seed_0/run.json", "delete the run `s/runs/a/seed_0`"),
        ("r/attempts/2/claim.json", "delete the folder `r/attempts/2`"),
        ("r/attempts/2/exit.json", "restore it, or delete it"),
        ("s/submissions/0001-ab/intent.json", "delete the folder `s/submissions/0001-ab`"),
        ("s/submissions/0001-ab/requests/cancel-1.json", "restore it from a copy, or delete it"),
    ],
)
def test_a_damaged_record_has_a_way_out(path: str, hint: str) -> None:
    assert hint in repair_hint(Path(path))
