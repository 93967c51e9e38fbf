from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.dispatch.lock import acquire_lock
from harness.errors import UsageError
from harness.records.files import read_json, write_json
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
    candidates = clean(sweep.paths, dry_run=True)
    assert found(candidates) == {("checkpoint", paths[0]), ("checkpoint", paths[2])}
    assert [c.num_bytes for c in candidates] == [100, 100]
    assert all(path.exists() for path in paths)
    assert clean(sweep.paths) == candidates
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["notes", "step_20"]
    assert len(list((sweep.run("bad").trainer_dir / "ckpt").iterdir())) == 2
    assert clean(sweep.paths) == ()


def test_checkpoints_that_the_recipe_keeps_stay(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok")
    config = read_json(sweep.run("ok").config)
    config["trainer"]["checkpoints"] = {"every": 5, "keep_every": 10}
    write_json(sweep.run("ok").config, config)
    paths = make_checkpoints(sweep, "ok", [5, 10, 15, 20, 25])
    assert found(clean(sweep.paths, dry_run=True)) == {
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
    assert found(clean(sweep.paths)) == {("code", sweep.paths.code_dir("by none"))}
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
    assert found(clean(sweep.paths)) == {("temporary", old)}
    assert (old.exists(), fresh.exists(), user_file.exists()) == (False, True, True)


def test_runs_that_left_the_plan_go_only_when_asked(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS, "gone": TRAINS}, trainer=WITH_CHECKPOINTS)
    run_all(sweep, "ok", "gone")
    make_checkpoints(sweep, "gone", [1, 2])
    sweep.replan({"ok": TRAINS}, trainer=WITH_CHECKPOINTS)
    assert clean(sweep.paths) == ()
    assert found(clean(sweep.paths, include_left=True)) == {("run", sweep.run("gone").root)}
    assert not sweep.run("gone").root.exists()
    assert sweep.run("ok").root.exists()


def test_link_is_removed_not_what_it_points_to(make_sweep: MakeSweep, tmp_path: Path) -> None:
    sweep = make_sweep({"ok": TRAINS})
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    link = sweep.paths.code_root / "old"
    link.parent.mkdir()
    link.symlink_to(target)
    assert found(clean(sweep.paths)) == {("code", link)}
    assert (link.exists(), (target / "file").exists()) == (False, True)


def test_nothing_goes_while_a_queue_is_live(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    sweep.paths.code_dir("by none").mkdir(parents=True)
    lock = acquire_lock(sweep.paths)
    with pytest.raises(UsageError, match="is being run by pid"):
        clean(sweep.paths)
    lock.release()
    assert len(clean(sweep.paths)) == 1


def test_nothing_goes_while_a_run_is_at_work(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0.02")}, max_steps=10_000)
    runner = sweep.start_runner("ok", sweep.submit())
    wait_until(sweep.run("ok").metrics.exists)
    with pytest.raises(UsageError, match="run `ok/seed_0` is running"):
        clean(sweep.paths)
    runner.process.send_signal(signal.SIGTERM)
    runner.wait()
