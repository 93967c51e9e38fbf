from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checkpoint import hash_content, stamp_content
from harness.errors import HarnessError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import RunRecord, StartRecord
from harness.runner.start import find_start
from harness.trainers.interface import Start


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "outputs/parent/runs/none/seed_0/trainer/checkpoints/step_20"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"0123")
    return path


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return SweepPaths(tmp_path / "outputs" / "fork").run("ipo", 1)


@pytest.fixture
def record(checkpoint: Path) -> RunRecord:
    start = StartRecord(
        seed=None,
        asked={"run": "parent/none/0"},
        step=20,
        sha256=hash_content(checkpoint),
        stamp=stamp_content(checkpoint),
        checkpoint="../parent/runs/none/seed_0/trainer/checkpoints/step_20",
    )
    return RunRecord(
        schema_version=1,
        sweep="fork",
        arm="ipo",
        seed=1,
        identity="x",
        trainer="command",
        metrics="trainer/metrics.jsonl",
        metrics_format="prime_rl",
        checkpoints="trainer/ckpt",
        start_from=start,
    )


def test_a_run_from_scratch_starts_nowhere(run: RunPaths, record: RunRecord) -> None:
    assert find_start(run, replace(record, start_from=None)) is None


def test_a_checkpoint_of_the_same_content_counts_whatever_its_times(
    run: RunPaths, record: RunRecord, checkpoint: Path
) -> None:
    os.utime(checkpoint / "weights", (0, 0))
    assert find_start(run, record) == Start(checkpoint, 20)


def test_a_checkpoint_that_changed_or_went_is_one_error(
    run: RunPaths, record: RunRecord, checkpoint: Path
) -> None:
    (checkpoint / "weights").write_bytes(b"4567")
    with pytest.raises(HarnessError, match="has changed since the plan"):
        find_start(run, record)
    shutil.rmtree(checkpoint)
    with pytest.raises(HarnessError, match="that this run starts from is gone"):
        find_start(run, record)


def test_a_run_with_a_checkpoint_of_its_own_needs_its_parent_no_more(
    run: RunPaths, record: RunRecord, checkpoint: Path
) -> None:
    (run.trainer_dir / "ckpt" / "step_30").mkdir(parents=True)
    shutil.rmtree(checkpoint)
    assert find_start(run, record) == Start(checkpoint, 20)
