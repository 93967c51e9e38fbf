"""Runs one run folder, named by the environment: python -m harness.trainers.builtin"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from harness.errors import HarnessError
from harness.records.files import read_json
from harness.records.layout import (
    ATTEMPT_ENV,
    MAX_STEPS_ENV,
    RUN_DIR_ENV,
    SHARED_DIR_ENV,
    START_CHECKPOINT_ENV,
    RunPaths,
    SweepPaths,
)
from harness.trainers.builtin.train import RunRequest, train

_EXIT_STOPPED = 128 + signal.SIGTERM


class _StopSignal:
    """Remembers that SIGTERM came."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_set = True


def parse_request(environment: Mapping[str, str]) -> RunRequest:
    """Return what the runner asks for by environment variables.

    Raises:
        HarnessError: a variable is missing or can't be that, or config.json can't be read.
    """
    paths = RunPaths(Path(_get(environment, RUN_DIR_ENV)))
    shared_dir = Path(_get(environment, SHARED_DIR_ENV))
    sweep = SweepPaths(shared_dir.parent)
    if sweep.shared_dir != shared_dir:
        raise HarnessError(f"`{SHARED_DIR_ENV}`: `{shared_dir}` is not a sweep's shared folder")
    start = environment.get(START_CHECKPOINT_ENV)
    return RunRequest(
        paths=paths,
        sweep=sweep,
        config=read_json(paths.config),
        attempt=_get_count(environment, ATTEMPT_ENV),
        max_steps=_get_count(environment, MAX_STEPS_ENV),
        start=Path(start) if start else None,
    )


def _get(environment: Mapping[str, str], name: str) -> str:
    try:
        return environment[name]
    except KeyError:
        raise HarnessError(
            f"the environment lacks `{name}`", "start runs with `harness run`, not by hand"
        ) from None


def _get_count(environment: Mapping[str, str], name: str) -> int:
    text = _get(environment, name)
    if not text.isdecimal():
        raise HarnessError(f"`{name}` can't be {text!r}", "it is a whole number")
    return int(text)


def main() -> int:
    """Train and return the exit status: 0 at max_steps, 143 stopped by SIGTERM, 1 failed."""
    stop = _StopSignal()
    try:
        is_done = train(parse_request(os.environ), should_stop=lambda: stop.is_set)
    except HarnessError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0 if is_done else _EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
