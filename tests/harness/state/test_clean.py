from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.dispatch.lock import acquire_lock
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json, write_json
from harness.records.model import StartRecord, to_record
from harness.state.clean import Candidate, clean

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]
    WaitUntil = Callable[..., None]

TRAINS = ("trains", "METRICS", "0")
WITH_CHECKPOINTS: dict[str, Any] = {"checkpoints": "ckpt"}


def make_checkpoints(sweep: DiskSweep, arm: str, steps: list[int]) -> list[Path]:
    folder = sweep.run(arm).trainer_dir / "ckpt"
    paths = [folder / f"step_{step}" for step in steps]
    for path in paths:
        path.mkdir(parents=True)
        (path / "model.pt").write_bytes(b"x" * 100)
    return paths


def run_all(sweep: DiskSweep, *arms: str) -> None:
    submission = sweep.submit()
    for arm in arms:
        sweep.start_runner(arm, submission).wait()


def found(candidates: tuple[Candidate, ...]) -> set[tuple[str, Path]]:
    return {(candidate.kind, candidate.path) for candidate in candidates}


def age(path: Path) -> None:
    os.utime(path, (0, 0), follow_symlinks=False)


def test_older_checkpoints_of_done_runs_go_and_others_stay(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(
        {"ok": TRAINS, "bad": ("raises", "METRICS")}, max_steps=5, trainer=WITH_CHECKPOINTS
    )
    run_all(sweep, "ok", "bad")
    paths = make_checkpoints(sweep, "ok", [10, 20, 9])
    make_checkpoints(sweep, "bad", [1, 2])
    (paths[0].parent / "notes").mkdir()
    candidates = clean(sweep.paths, dry_run=True).candidates
    assert found(candidates) == {("checkpoint", paths[0]), ("checkpoint", paths[2])}
    assert [c.num_bytes for c in candidates] == [100, 100]
    assert all(path.exists() for path in paths)
    assert clean(sweep.paths).candidates == candidates
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["notes", "step_20"]
    assert len(list((sweep.run("bad").trainer_dir / "ckpt").iterdir())) == 2
    assert clean(sweep.paths).candidates == ()


def test_checkpoints_that_the_recipe_keeps_stay(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok")
    config = read_json(sweep.run("ok").config)
    config["trainer"]["checkpoints"] = {"every": 5, "keep_every": 10}
    write_json(sweep.run("ok").config, config)
    paths = make_checkpoints(sweep, "ok", [5, 10, 15, 20, 25])
    assert found(clean(sweep.paths, dry_run=True).candidates) == {
        ("checkpoint", paths[0]),
        ("checkpoint", paths[2]),
    }


def test_code_that_an_attempt_or_the_plan_used_stays(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    run_all(sweep, "ok")
    claim = sweep.run("ok").attempt(1).claim
    write_json(claim, read_json(claim) | {"code_hash": "by an attempt"})
    for name in ("0" * 64, "by an attempt", "by none"):
        sweep.paths.code_dir(name).mkdir(parents=True)
    assert found(clean(sweep.paths).candidates) == {("code", sweep.paths.code_dir("by none"))}
    assert len(list(sweep.paths.code_root.iterdir())) == 2


def test_old_temporary_files_go_and_fresh_ones_stay(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    old = sweep.run("ok").root / ".run.json.123.0123abcd.tmp"
    fresh = sweep.run("ok").root / ".run.json.124.0123abcd.tmp"
    user_file = sweep.run("ok").root / ".notes.tmp"
    for path in (old, fresh, user_file):
        path.touch()
    age(old)
    age(user_file)
    assert found(clean(sweep.paths).candidates) == {("temporary", old)}
    assert (old.exists(), fresh.exists(), user_file.exists()) == (False, True, True)


def test_runs_that_left_the_plan_go_only_when_asked(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS, "gone": TRAINS}, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok", "gone")
    make_checkpoints(sweep, "gone", [1, 2])
    sweep.replan({"ok": TRAINS}, trainer=WITH_CHECKPOINTS)
    assert clean(sweep.paths).candidates == ()
    assert found(clean(sweep.paths, include_left=True).candidates) == {
        ("run", sweep.run("gone").root)
    }
    assert not sweep.run("gone").root.exists()
    assert sweep.run("ok").root.exists()


def start_at(sweep: DiskSweep, checkpoint: Path, arm: str, name: str = "fork") -> None:
    """Write the plan of a sweep beside `sweep` whose runs start from a checkpoint of `arm`."""
    start = StartRecord(
        seed=None,
        asked={},
        step=10,
        sha256="",
        stamp="",
        checkpoint=f"../toy/{checkpoint.relative_to(sweep.paths.root)}",
        parent=f"toy/{arm}/seed_0",
        parent_dir=f"../toy/runs/{arm}/seed_0",
    )
    path = sweep.paths.root.parent / name / "plan.json"
    write_json(path, to_record(replace(sweep.plan, sweep=name, start_from=(start,))))


def test_what_other_sweeps_start_from_stays_and_is_named(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS, "gone": TRAINS}, max_steps=5, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok", "gone")
    [first, second, _] = make_checkpoints(sweep, "ok", [10, 20, 30])
    [left] = make_checkpoints(sweep, "gone", [10])
    start_at(sweep, first, "ok")
    start_at(sweep, first, "ok", "another")
    start_at(sweep, left, "gone", "third")
    sweep.replan({"ok": TRAINS}, max_steps=5, trainer=WITH_CHECKPOINTS)
    result = clean(sweep.paths, include_left=True)
    assert found(result.candidates) == {("checkpoint", second)}
    assert [(c.kind, c.path, c.reason) for c in result.kept] == [
        ("checkpoint", first, "runs of `another`, `fork` start there"),
        ("run", sweep.run("gone").root, "runs of `third` start there"),
    ]
    assert (first.exists(), second.exists(), left.exists()) == (True, False, True)


def test_nothing_goes_while_it_is_unknown_what_a_sweep_starts_from(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, max_steps=5, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok")
    paths = make_checkpoints(sweep, "ok", [10, 20])
    plan = sweep.paths.root.parent / "fork" / "plan.json"
    plan.parent.mkdir()
    plan.write_text("{")
    with pytest.raises(HarnessError, match="start from is unknown"):
        clean(sweep.paths)
    assert all(path.exists() for path in paths)


def test_link_is_removed_not_what_it_points_to(make_sweep: MakeSweep, tmp_path: Path) -> None:
    sweep = make_sweep({"ok": TRAINS})
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    link = sweep.paths.code_root / "old"
    link.parent.mkdir()
    link.symlink_to(target)
    assert found(clean(sweep.paths).candidates) == {("code", link)}
    assert (link.exists(), (target / "file").exists()) == (False, True)


def test_nothing_goes_while_a_queue_is_live(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    sweep.paths.code_dir("by none").mkdir(parents=True)
    lock = acquire_lock(sweep.paths)
    with pytest.raises(UsageError, match="is being run by pid"):
        clean(sweep.paths)
    lock.release()
    assert len(clean(sweep.paths).candidates) == 1


def test_nothing_goes_while_a_run_is_at_work(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0.02")}, max_steps=10_000)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(sweep.run("ok").metrics.exists)
    with pytest.raises(UsageError, match="run `ok/seed_0` is running"):
        clean(sweep.paths)
    runner.process.send_signal(signal.SIGTERM)
    runner.wait()
