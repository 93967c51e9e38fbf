"""Real offline runs of wandb, each in a process of its own, as it is in training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.records.files import write_json
from harness.records.layout import ReportPaths, RunPaths, SweepPaths
from harness.records.model import RunRecord, read_record, to_record
from harness.trackers.wandb import wandb_run_id

SCRIPT = """
import sys
from pathlib import Path
from harness.records.layout import RunPaths
from harness.records.model import RunRecord, read_record
from harness.trackers.config import TrackersConfig, WandbConfig
from harness.trackers.group import open_trackers

for folder in sys.argv[1:]:
    paths = RunPaths(Path(folder))
    trackers = open_trackers(
        TrackersConfig(wandb=WandbConfig(mode="offline", project="losses")),
        paths,
        record=lambda: read_record(RunRecord, paths.record),
        config={"loss": {"type": "ipo-of-this-test"}},
        first_step=1,
    )
    for step in (1, 2):
        trackers.log({"step": step, "some/metric": 0.5})
    trackers.close()
"""


def make_run(sweep_dir: Path, arm: str) -> RunPaths:
    paths = SweepPaths(sweep_dir).run(arm, 3)
    record = RunRecord(
        schema_version=1,
        sweep=sweep_dir.name,
        arm=arm,
        seed=3,
        identity=f"identity-of-{arm}",
        trainer="builtin",
        metrics="trainer/metrics.jsonl",
        metrics_format="prime_rl",
    )
    write_json(paths.record, to_record(record))
    return paths


def log_two_steps(*runs: RunPaths, **variables: str) -> subprocess.CompletedProcess[str]:
    folders = [str(paths.root) for paths in runs]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *folders],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def run_id_of(paths: RunPaths) -> str:
    return wandb_run_id(read_record(RunRecord, paths.record))


def test_offline_files_stand_in_the_trainers_folder_under_the_runs_own_id(tmp_path: Path) -> None:
    arms = [make_run(tmp_path / "my_sweep", arm) for arm in ("ipo", "icepop")]
    # What a shell or an outer job may have set, and what would make one run of both arms.
    output = log_two_steps(
        *arms,
        WANDB_RUN_ID="of-the-shell",
        WANDB_RUN_GROUP="of-the-shell",
        WANDB_NAME="of-the-shell",
        WANDB_SWEEP_ID="of-the-shell",
        WANDB_RESUME="must",
        WANDB_MODE="disabled",
        WANDB_DIR=str(tmp_path / "elsewhere"),
    )
    assert output.returncode == 0, output.stderr
    assert "warning" not in output.stderr
    ids = [run_id_of(paths) for paths in arms]
    assert len(set(ids)) == 2
    for paths, run_id in zip(arms, ids, strict=True):
        [folder] = (paths.trainer_dir / "wandb").glob("offline-run-*")
        assert folder.name.endswith(f"-{run_id}")
        content = (folder / f"run-{run_id}.wandb").read_bytes()
        for text in ("my_sweep", f"{paths.arm}-s3", "losses", "some/metric", "ipo-of-this-test"):
            assert text.encode() in content
        assert b"of-the-shell" not in content
        rows = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
        assert [row["step"] for row in rows] == [1, 2]
    assert not (tmp_path / "elsewhere").exists()


def test_attempts_of_a_run_share_its_id(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "sweep", "ipo")
    before = run_id_of(paths)
    assert run_id_of(make_run(tmp_path / "elsewhere" / "sweep", "ipo")) == before
    assert run_id_of(make_run(tmp_path / "other_sweep", "ipo")) != before


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "sweep", "ipo")
    paths.trainer_dir.mkdir(parents=True)
    (paths.trainer_dir / "wandb").write_text("a file where the folder should be")
    output = log_two_steps(paths)
    assert output.returncode == 0, output.stderr
    assert output.stderr.count("warning: tracker wandb is off") == 1
    assert len(paths.metrics.read_text().splitlines()) == 2


@pytest.mark.parametrize("field", ["sweep", "arm", "seed", "identity", "nonce"])
def test_run_id_depends_on_who_the_run_is(field: str) -> None:
    record = {"sweep": "s", "arm": "a", "seed": 0, "identity": "i", "nonce": "n"}
    other = record | {field: 1 if field == "seed" else "other"}

    def id_of(fields: dict[str, object]) -> str:
        rest = {"schema_version": 1, "trainer": "t", "metrics": "m", "metrics_format": "f"}
        return wandb_run_id(RunRecord(**fields, **rest))  # type: ignore[arg-type]

    assert id_of(record) == id_of(dict(record))
    assert id_of(record) != id_of(other)


REPORT_SCRIPT = """
import sys
from pathlib import Path
from harness.records.layout import ReportPaths
from harness.trackers.wandb import log_report

print(log_report(ReportPaths(Path(sys.argv[1])), "team/losses", "toy"))
"""


def test_a_report_is_logged_as_an_artifact_with_its_tables(tmp_path: Path) -> None:
    paths = ReportPaths(tmp_path / "report")
    paths.root.mkdir()
    paths.json.write_text("{}")
    paths.runs_csv.write_text("arm,seed\nipo-of-this-test,0\n")
    paths.comparisons_csv.write_text("arm,verdict\nipo,better\n")
    done = subprocess.run(
        [sys.executable, "-c", REPORT_SCRIPT, str(paths.root)],
        env={**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    [log] = Path(done.stdout.strip()).glob("*.wandb")
    content = log.read_bytes()
    assert b"report-toy" in content
    assert b"report.json" in content
    [table] = tmp_path.rglob("runs*.table.json")
    assert json.loads(table.read_text())["data"] == [["ipo-of-this-test", "0"]]
