from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.errors import HarnessError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import RunRecord
from harness.trackers.config import TrackersConfig, WandbConfig
from harness.trackers.file import FileTracker
from harness.trackers.group import TrackerGroup, open_trackers
from harness.trackers.interface import Row


class FailingService:
    """A service that accepts rows up to one step: a double of one that loses its connection."""

    def __init__(self, last_step: int) -> None:
        self.last_step = last_step
        self.steps: list[int] = []

    def log(self, row: Row) -> None:
        if row["step"] > self.last_step:
            raise ConnectionError("the network is down")
        self.steps.append(int(row["step"]))

    def close(self) -> None:
        raise ConnectionError("the network is down")


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return SweepPaths(tmp_path / "sweep").run("arm", 0)


def no_record() -> RunRecord:
    raise HarnessError("run.json is missing")


def test_values_that_are_not_finite_are_dropped(paths: RunPaths) -> None:
    trackers = TrackerGroup(FileTracker(paths.metrics))
    trackers.log({"step": 1, "a": math.nan, "b": math.inf, "c": 0.5})
    trackers.close()
    assert paths.metrics.read_text() == '{"step": 1, "c": 0.5}\n'


def test_a_failing_service_is_named_once_and_the_file_goes_on(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    service = FailingService(last_step=1)
    trackers = TrackerGroup(FileTracker(paths.metrics))
    trackers.add("cloud", lambda: service)
    for step in (1, 2, 3):
        trackers.log({"step": step})
    trackers.close()
    assert service.steps == [1]
    assert len(paths.metrics.read_text().splitlines()) == 3
    assert capsys.readouterr().err == (
        "warning: tracker cloud is off: ConnectionError: the network is down\n"
    )


def test_a_service_that_fails_when_it_closes_is_a_warning(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers = TrackerGroup(FileTracker(paths.metrics))
    trackers.add("cloud", lambda: FailingService(last_step=9))
    trackers.close()
    assert capsys.readouterr().err.count("warning: tracker cloud is off") == 1


def test_a_service_that_cannot_start_is_a_warning(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = TrackersConfig(wandb=WandbConfig(mode="offline"))
    trackers = open_trackers(settings, paths, record=no_record, config={}, first_step=1)
    trackers.log({"step": 1})
    trackers.close()
    assert paths.metrics.read_text() == '{"step": 1}\n'
    assert capsys.readouterr().err.count("warning: tracker wandb is off") == 1


def test_by_default_there_is_the_file_alone(paths: RunPaths) -> None:
    trackers = open_trackers(TrackersConfig(), paths, record=no_record, config={}, first_step=1)
    trackers.log({"step": 1})
    trackers.close()
    assert [path.name for path in paths.trainer_dir.iterdir()] == ["metrics.jsonl"]


def test_tensorboard_gets_every_metric(paths: RunPaths) -> None:
    settings = TrackersConfig(tensorboard=True)
    for first_step, last_step in ((1, 3), (3, 4)):
        trackers = open_trackers(
            settings, paths, record=no_record, config={}, first_step=first_step
        )
        for step in range(first_step, last_step + 1):
            trackers.log({"step": step, "time": 1000.0 + step, "loss/mean": step / 4 + first_step})
        trackers.close()
    events = EventAccumulator(str(paths.trainer_dir / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    # The second attempt repeats step 3: what the first wrote of it is hidden.
    scalars = [(event.step, event.value) for event in events.Scalars("loss/mean")]
    assert scalars == [(1, 1.25), (2, 1.5), (3, 3.75), (4, 4.0)]
    assert [event.wall_time for event in events.Scalars("loss/mean")][-1] == 1004.0


def test_services_are_imported_only_when_asked_for() -> None:
    code = "import harness.trackers.group, sys; print({'wandb', 'torch'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout == "set()\n", output.stderr
