from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from harness.cli.table import format_gpu_hours, format_span, print_states
from harness.state.model import RunState, RunStatus

NOW = 1_000_000.0
REASON = "ValueError: the [batch] is empty, as no group of the last eight steps had any signal"
FAILED = RunStatus("icepop_wide", 0, RunState.FAILED, reason=REASON, step=12, max_steps=100)
RUNNING = RunStatus(
    "ipo",
    12,
    RunState.RUNNING,
    since=NOW - 187,
    step=40,
    max_steps=100,
    steps_per_s=2.0,
    mismatch_kl=0.0123,
    solve_rate=0.5,
)
ON_SLURM = replace(
    RUNNING,
    job_id="123_4",
    node="gpu01",
    elapsed_s=187.0,
    limit_s=86_400.0,
    gpu_hours=0.416,
    lost_gpu_hours=0.004,
)
QUEUED = RunStatus(
    "icepop_wide",
    3,
    RunState.QUEUED,
    reason="Priority",
    since=NOW - 3600,
    job_id="123_5",
    max_steps=100,
    limit_s=86_400.0,
)


def render(*states: RunStatus, width: int) -> list[str]:
    file = io.StringIO()
    print_states(states, Console(file=file, width=width), now=NOW)
    return file.getvalue().splitlines()


def test_a_sweep_of_a_local_queue_has_no_empty_columns_of_a_cluster() -> None:
    assert render(FAILED, RUNNING, width=200) == [
        "arm          seed  state     age    step  steps/s   ETA      KL  solve rate  note",
        f"icepop_wide     0  failed         12/100                                     {REASON}",
        "ipo            12  running  3:07  40/100      2.0  30 s  0.0123       0.500",
    ]


def test_a_sweep_on_a_cluster_shows_jobs_nodes_limits_and_gpu_hours() -> None:
    assert render(ON_SLURM, QUEUED, width=200) == [
        "arm          seed  state        age  job    node            time    step  steps/s   ETA"
        "      KL  solve rate  GPU-h   lost  note",
        "ipo            12  running     3:07  123_4  gpu01  3:07/24:00:00  40/100      2.0  30 s"
        "  0.0123       0.500   0.42  <0.01",
        "icepop_wide     3  queued   1:00:00  123_5            -/24:00:00   0/100               "
        "                                    Priority",
    ]


def test_a_short_note_costs_the_columns_that_are_needed_least() -> None:
    assert render(ON_SLURM, QUEUED, width=120) == [
        "arm          seed  state        age  job    node            time    step   ETA      KL"
        "  solve rate  GPU-h  note",
        "ipo            12  running     3:07  123_4  gpu01  3:07/24:00:00  40/100  30 s  0.0123"
        "       0.500   0.42",
        "icepop_wide     3  queued   1:00:00  123_5            -/24:00:00   0/100              "
        "                     Priority",
    ]


def test_a_narrow_terminal_drops_columns_and_shows_the_reason_below_its_row() -> None:
    assert render(FAILED, RUNNING, width=60) == [
        "arm          seed  state     age    step      KL  solve rate",
        "icepop_wide     0  failed         12/100",
        "  ValueError: the [batch] is empty, as no group of the last",
        "  eight steps had any signal",
        "ipo            12  running  3:07  40/100  0.0123       0.500",
    ]


def test_on_eighty_columns_a_cluster_keeps_what_says_how_the_runs_do() -> None:
    assert render(ON_SLURM, QUEUED, width=80) == [
        "arm          seed  state        age  job      step   ETA      KL  solve rate",
        "ipo            12  running     3:07  123_4  40/100  30 s  0.0123       0.500",
        "icepop_wide     3  queued   1:00:00  123_5   0/100",
        "  Priority",
    ]


def test_a_very_narrow_terminal_keeps_run_state_and_reason() -> None:
    lines = render(FAILED, width=26)
    assert lines[:2] == ["arm          seed  state", "icepop_wide     0  failed"]
    assert " ".join(line.strip() for line in lines[2:]) == REASON


def test_a_long_reason_goes_on_below_itself() -> None:
    indent = " " * len("icepop_wide     0  failed       12/100                       ")
    assert render(FAILED, width=104) == [
        "arm          seed  state   age    step  ETA  KL  solve rate  note",
        "icepop_wide     0  failed       12/100                       ValueError: the [batch] is"
        " empty, as no",
        f"{indent}group of the last eight steps had any",
        f"{indent}signal",
    ]


def test_a_run_that_went_further_than_is_asked_now_shows_both_numbers() -> None:
    done = replace(RUNNING, state=RunState.DONE, step=393, max_steps=5)
    assert "393, asked 5" in render(done, width=120)[1]


def test_text_of_programs_cannot_steer_the_terminal() -> None:
    failed = replace(
        FAILED, reason="\x1b[2Jerased \x07\x1bc", node="gpu\x1b[1m01\x07", is_planned=False
    )
    for width in (30, 200):
        output = " ".join(" ".join(render(failed, width=width)).split())
        assert "left the plan; erased \\x07\\x1bc" in output
        assert "\x1b" not in output
        assert "\x07" not in output


def test_states_are_coloured_on_a_terminal_alone() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="standard")
    print_states([replace(RUNNING, state=RunState.DONE)], console, now=NOW)
    assert "\x1b[32mdone " in file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (187, "3:07"), (93_787, "26:03:07"), (172_800, "2 d 0 h"), (273_600, "3 d 4 h")],
)
def test_long_times_are_told_in_days(seconds: float, text: str) -> None:
    assert format_span(seconds) == text


@pytest.mark.parametrize(
    ("hours", "text"),
    [(None, ""), (0.0, ""), (0.001, "<0.01"), (0.416, "0.42"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_gpu_hours_have_as_many_digits_as_they_need(hours: float | None, text: str) -> None:
    assert format_gpu_hours(hours) == text
