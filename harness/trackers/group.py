"""All trackers of a run behind one call. Only the metrics file may stop a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from harness.records.layout import RunPaths
from harness.records.model import RunRecord
from harness.trackers.config import TrackersConfig
from harness.trackers.file import FileTracker
from harness.trackers.interface import Tracker


class TrackerGroup:
    """Hands every row to the metrics file and to the services that were asked for.

    A service that fails is named once on stderr and gets no further rows.
    """

    def __init__(self, file: FileTracker) -> None:
        self._file = file
        self._services: dict[str, Tracker] = {}

    def add(self, name: str, make: Callable[[], Tracker]) -> None:
        """Start a service under `name`; if it can't start, the run goes on without."""
        try:
            self._services[name] = make()
        except Exception as error:
            _warn(name, error)

    def log(self, row: Mapping[str, float | int]) -> None:
        """Record one row without the values that are not finite (as prime-rl does)."""
        finite = {key: value for key, value in row.items() if math.isfinite(value)}
        self._file.log(finite)
        self._for_each_service(lambda tracker: tracker.log(finite))

    def sync(self) -> None:
        """Return when the metrics file holds every row on the disk."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
        self._for_each_service(lambda tracker: tracker.close())

    def _for_each_service(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._services.items()):
            try:
                call(tracker)
            except Exception as error:
                del self._services[name]
                _warn(name, error)


def open_trackers(
    settings: TrackersConfig,
    paths: RunPaths,
    *,
    record: Callable[[], RunRecord],
    config: Mapping[str, Any],
    first_step: int,
) -> TrackerGroup:
    """Return the trackers of a run.

    Args:
        record: reads run.json; called only where a service needs to know the run.
        config: the resolved configuration, shown by services.
        first_step: the first step that will be logged.
    """
    trackers = TrackerGroup(FileTracker(paths.metrics))
    if settings.wandb.mode != "disabled":
        trackers.add("wandb", lambda: _open_wandb(settings, paths, record(), config))
    if settings.tensorboard:
        trackers.add("tensorboard", lambda: _open_tensorboard(paths, first_step))
    return trackers


def _open_wandb(
    settings: TrackersConfig, paths: RunPaths, record: RunRecord, config: Mapping[str, Any]
) -> Tracker:
    from harness.trackers.wandb import WandbTracker  # noqa: PLC0415 - slow to import

    return WandbTracker(paths.trainer_dir, settings.wandb, record, config)


def _open_tensorboard(paths: RunPaths, first_step: int) -> Tracker:
    from harness.trackers.tensorboard import TensorboardTracker  # noqa: PLC0415 - optional

    return TensorboardTracker(paths.trainer_dir, first_step=first_step)


def _warn(name: str, error: Exception) -> None:
    print(f"warning: tracker {name} is off: {type(error).__name__}: {error}", file=sys.stderr)
