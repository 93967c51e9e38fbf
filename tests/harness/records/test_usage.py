"""GPU-hours from records that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.records.files import write_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import SCHEMA_VERSION, Claim, Exit, Heartbeat, to_record
from harness.records.usage import (
    AttemptRecords,
    Usage,
    read_usage,
    run_usage,
    sum_usage,
)

HOUR = 3600.0


def make_attempt(
    steps: tuple[int | None, int | None] = (None, None),
    *,
    hours: float = 1.0,
    number: int = 1,
    gpus: int = 1,
    num_nodes: int = 1,
    ended: bool = True,
) -> AttemptRecords:
    """Make an attempt that logged `steps` (first and last)."""
    claim = Claim(
        schema_version=SCHEMA_VERSION,
        attempt=number,
        submission="0001-abcdef",
        nonce="abcdef",
        host="gpu01",
        pid=1,
        pid_started="",
        time=100.0,
        max_steps=100,
        code_hash="",
        machine={},
        gpus=tuple(map(str, range(gpus))),
        num_nodes=num_nodes,
    )
    common: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "attempt": number,
        "max_steps": 100,
        "first_step": steps[0],
    }
    beat = Heartbeat(
        time=100.0 + hours * HOUR,
        step=steps[1],
        tokens=None,
        mismatch_kl=None,
        solve_rate=None,
        steps_per_s=None,
        trainer_pid=None,
        **common,
    )
    end = Exit(
        reason="failed",
        code=1,
        signal=None,
        error="",
        last_step=steps[1],
        nodes=("gpu01",),
        gpus=claim.gpus,
        start=100.0,
        end=100.0 + hours * HOUR,
        **common,
    )
    return AttemptRecords(claim, beat, end if ended else None)


def test_run_that_never_began_has_used_nothing() -> None:
    assert run_usage([]) == Usage(0.0, 0.0)


def test_gpu_hours_multiply_time_gpus_and_nodes() -> None:
    attempt = make_attempt((1, 100), hours=1.5, gpus=8, num_nodes=2)
    assert run_usage([attempt]) == Usage(24.0, 0.0)


def test_run_without_gpus_uses_no_gpu_hours() -> None:
    assert run_usage([make_attempt((1, 100), gpus=0)]) == Usage(0.0, 0.0)


def test_attempt_that_was_cut_off_counts_until_its_last_beat() -> None:
    assert run_usage([make_attempt((1, 50), hours=2.0, ended=False)]) == Usage(2.0, 0.0)


def test_attempt_without_any_beat_has_used_nothing_yet() -> None:
    assert run_usage([AttemptRecords(make_attempt().claim)]) == Usage(0.0, 0.0)


def test_clock_that_was_set_back_gives_no_negative_hours() -> None:
    assert run_usage([make_attempt((1, 50), hours=-1.0)]) == Usage(0.0, 0.0)


@pytest.mark.parametrize(
    ("resumed_at", "lost"),
    [(51, 0.0), (41, 0.2), (1, 1.0), (60, 0.0)],
    ids=["after the last step", "ten of fifty again", "from the start", "beyond"],
)
def test_lost_is_the_share_of_steps_that_the_next_attempt_made_again(
    resumed_at: int, lost: float
) -> None:
    attempts = [make_attempt((1, 50)), make_attempt((resumed_at, 100))]
    assert run_usage(attempts) == Usage(2.0, lost)


def test_attempt_that_went_back_behind_its_predecessor_loses_no_more_than_its_own_time() -> None:
    attempts = [make_attempt((1, 50)), make_attempt((51, 60)), make_attempt((41, 100))]
    assert run_usage(attempts) == Usage(3.0, 1.2)


def test_attempt_without_a_step_is_lost_once_another_went_on() -> None:
    stillborn, last = make_attempt(hours=0.5), make_attempt((1, 100))
    assert run_usage([stillborn]) == Usage(0.5, 0.0)
    assert run_usage([stillborn, last]) == Usage(1.5, 0.5)


def test_stillborn_attempt_between_two_hides_no_loss() -> None:
    attempts = [make_attempt((1, 50)), make_attempt(hours=0.5), make_attempt((26, 100))]
    assert run_usage(attempts) == Usage(2.5, 1.0)


def test_nothing_is_known_to_be_lost_before_the_next_attempt_has_logged() -> None:
    assert run_usage([make_attempt((1, 50)), make_attempt(hours=0.25)]) == Usage(1.25, 0.0)


def test_usages_add_up() -> None:
    assert sum_usage([Usage(1.0, 0.5), Usage(2.0, 0.25)]) == Usage(3.0, 0.75)
    assert sum_usage([]) == Usage()


def test_usage_is_read_from_the_folders_of_a_run(tmp_path: Any) -> None:
    run: RunPaths = SweepPaths(tmp_path / "toy").run("a", 0)
    assert read_usage(run) == Usage()
    for number, records in enumerate([make_attempt((1, 50), gpus=2), make_attempt((26, 100))], 1):
        paths = run.attempt(number)
        write_json(paths.claim, to_record(records.claim) | {"attempt": number})
        write_json(paths.heartbeat, to_record(records.heartbeat))
        write_json(paths.exit, to_record(records.exit))
    assert read_usage(run) == Usage(3.0, 1.0)
