from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from harness.dispatch.interface import RunProgress, Snapshot
from harness.dispatch.progress import (
    format_duration,
    format_step,
    render_ended,
    render_snapshot,
    show_progress,
)
from harness.records.model import PlannedRun
from harness.state.status import RunState


def make_progress(arm: str, seed: int, state: RunState, **values: object) -> RunProgress:
    return RunProgress(PlannedRun(arm, seed, "id", 400), state, **values)  # type: ignore[arg-type]


def make_snapshot(*runs: RunProgress, elapsed_s: float = 65.0) -> Snapshot:
    return Snapshot("toy", runs, slots=2, elapsed_s=elapsed_s)


RUNNING = make_progress(
    "ipo", 1, RunState.RUNNING, step=100, steps_per_s=30.0, mismatch_kl=0.01234, solve_rate=0.5
)
QUEUED = make_progress("[icepop]", 1, RunState.QUEUED)


def test_eta_counts_the_steps_of_waiting_runs_at_the_speed_of_now() -> None:
    snapshot = make_snapshot(RUNNING, QUEUED)
    assert RUNNING.eta_s == 10.0
    assert snapshot.eta_s == pytest.approx((300 + 400) / 30.0, rel=1e-12)
    assert make_snapshot(QUEUED).eta_s is None


def test_live_table_shows_what_runs_and_what_failed() -> None:
    failed = make_progress("[icepop]", 0, RunState.FAILED, step=7, error="ValueError: [bad] loss")
    console = Console(width=140, file=io.StringIO())
    with console.capture() as capture:
        console.print(render_snapshot(make_snapshot(failed, RUNNING, QUEUED)))
    headline, _, running, last = capture.get().splitlines()
    assert headline.split("  ") == [
        "toy",
        "0/3 done, 1 failed, 1 running, 1 queued",
        "1:05, about 23 s left",
    ]
    # Without colours a bar is as long as what has been done: a quarter of 24.
    bar = 6 * "━"
    assert running.split() == [
        "ipo",
        "1",
        "running",
        bar,
        "100/400",
        "30.0",
        "10",
        "s",
        "0.0123",
        "0.50",
    ]
    assert last.split() == ["[icepop]", "0", "failed", "ValueError:", "[bad]", "loss", "7/400"]


def test_without_a_terminal_each_ended_run_gives_one_line() -> None:
    stream = io.StringIO()
    done = make_progress("ipo", 1, RunState.DONE, step=400, elapsed_s=3.2, solve_rate=0.75)
    failed = make_progress("ipo", 2, RunState.FAILED, error="exited 2")
    with show_progress(stream) as show:
        show(make_snapshot(RUNNING, QUEUED))
        show(make_snapshot(done, QUEUED))
        show(make_snapshot(done, failed))
        show(make_snapshot(done, failed))
    assert stream.getvalue().splitlines() == [
        "[1/2] ipo/seed_1 done: step 400 of 400, 3 s, solve rate 0.75",
        "[2/2] ipo/seed_2 failed: no step of 400 - exited 2",
    ]


def test_a_stream_that_nobody_reads_ends_the_display_and_nothing_else() -> None:
    done = make_progress("ipo", 1, RunState.DONE)
    with Path("/dev/full").open("w") as stream, show_progress(stream) as show:
        for _ in range(2):
            show(make_snapshot(done))
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # closing it must not fail


def test_text_of_programs_cannot_steer_the_terminal() -> None:
    failed = make_progress("ipo", 0, RunState.FAILED, step=7, error="\x1b[2J gone\x07\nand \x1bc")
    line = render_ended(failed, 1, 1)
    assert line == "[1/1] ipo/seed_0 failed: step 7 of 400 - gone\\x07 and \\x1bc"
    console = Console(width=140, file=io.StringIO())
    with console.capture() as capture:
        console.print(render_snapshot(make_snapshot(failed)))
    assert "gone\\x07 and \\x1bc" in capture.get()
    assert "\x1b" not in capture.get()


def test_a_run_that_went_further_than_is_asked_now_shows_both_numbers() -> None:
    progress = make_progress("ipo", 3, RunState.DONE, step=512)
    assert render_ended(progress, 1, 1) == "[1/1] ipo/seed_3 done: step 512, asked 400"
    assert [format_step(40, 100), format_step(100, 100)] == ["40/100", "100/100"]
    assert [format_step(393, 5), format_step(7, None)] == ["393, asked 5", "7"]


def test_ended_run_with_everything() -> None:
    progress = make_progress(
        "ipo", 3, RunState.LOST, step=12, elapsed_s=61, mismatch_kl=1.5e-4, error="gone"
    )
    assert render_ended(progress, 3, 8) == (
        "[3/8] ipo/seed_3 lost: step 12 of 400, 1:01, KL 0.00015 - gone"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (187, "3:07"), (7387, "2:03:07")],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_plain_lines_wait_for_the_end_of_runs_that_slurm_does_not_tell_of() -> None:
    stream = io.StringIO()
    unknown = make_progress("ipo", 0, RunState.UNKNOWN, error="SLURM doesn't answer", is_open=True)
    with show_progress(stream) as show:
        show(make_snapshot(unknown))
        show(make_snapshot(make_progress("ipo", 0, RunState.REQUEUED, error="Priority")))
        assert stream.getvalue() == ""
        show(make_snapshot(make_progress("ipo", 0, RunState.TIMEOUT, step=9, error="at its limit")))
    assert stream.getvalue() == "[1/1] ipo/seed_0 timeout: step 9 of 400 - at its limit\n"


@pytest.mark.parametrize(
    ("state", "is_shown"),
    [
        (RunState.REQUEUED, True),
        (RunState.STALLED, True),
        (RunState.TIMEOUT, True),
        (RunState.OUT_OF_MEMORY, True),
        (RunState.QUEUED, False),
        (RunState.CANCELLED, False),
    ],
)
def test_live_table_shows_why_a_run_does_not_run(state: RunState, is_shown: bool) -> None:
    console = Console(width=140, file=io.StringIO())
    with console.capture() as capture:
        progress = make_progress("ipo", 0, state, step=7, error="words of SLURM")
        console.print(render_snapshot(make_snapshot(progress)))
    assert ("words of SLURM" in capture.get()) == is_shown
