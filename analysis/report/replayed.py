"""The replay of a sweep's own token records, for its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.runs import Notice, Sweep
from harness.errors import HarnessError

if TYPE_CHECKING:
    from analysis.replay.result import ReplayResult

MAX_BYTES = 256 * 2**20
"""Token records that a report replays by itself; for more there is `harness replay`."""


def replay_of(sweep: Sweep) -> tuple[ReplayResult | None, list[Notice]]:
    """Return the replay of the token records of the baseline's runs; None where there are none.

    The baseline's, as tokens of one loss can be checked against its own decisions, and it is the
    arm that all others are compared with.
    """
    folders, size = _records(sweep)
    if not folders:
        return None, []
    if size > MAX_BYTES:
        message = (
            f"the token records of {sweep.plan.baseline} hold {size / 2**20:,.0f} MiB, so they are"
            f" not replayed here: `harness replay {sweep.plan.sweep}` does"
        )
        return None, [Notice("replay_left_out", message)]
    from analysis.replay import run_replay  # noqa: PLC0415  (numpy alone until there are records)

    try:
        return run_replay(folders), []
    except HarnessError as error:
        return None, [Notice("replay_left_out", f"token records: {error.message}")]


def _records(sweep: Sweep) -> tuple[Sequence[Path], int]:
    folders: list[Path] = []
    size = 0
    for run in sweep.of_arm(sweep.plan.baseline):
        if run.record is None or run.record.tokens is None:
            continue
        root = sweep.paths.run(run.arm, run.seed).root
        files = [path for path in (root / run.record.tokens).glob("*.*") if path.is_file()]
        if files:
            folders.append(root)
            size += sum(path.stat().st_size for path in files)
    return folders, size
