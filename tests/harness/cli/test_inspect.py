from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from harness.cli.inspect import print_states
from harness.state.status import RunState, RunStatus

REASON = "ValueError: the [batch] is empty, as no group of the last eight steps had any signal"
FAILED = RunStatus("icepop_wide", 0, RunState.FAILED, reason=REASON, step=12, max_steps=100)
RUNNING = RunStatus(
    "ipo",
    12,
    RunState.RUNNING,
    step=40,
    max_steps=100,
    steps_per_s=2.0,
    mismatch_kl=0.0123,
    solve_rate=0.5,
)


def render(*states: RunStatus, width: int) -> list[str]:
    file = io.StringIO()
    print_states(states, Console(file=file, width=width))
    return file.getvalue().splitlines()


def test_a_wide_terminal_shows_every_column_and_the_reason_in_its_row() -> None:
    head, failed, running = render(FAILED, RUNNING, width=200)
    assert head.split() == [
        "run",
        "state",
        "age",
        "step",
        "steps/s",
        "ETA",
        "KL",
        "solve",
        "rate",
        "note",
    ]
    assert failed.split()[:3] == ["icepop_wide/0", "failed", "12/100"]
    assert failed.rstrip().endswith(REASON)
    assert running.split() == ["ipo/12", "running", "40/100", "2.0", "30", "s", "0.0123", "0.500"]


def test_a_narrow_terminal_drops_columns_and_shows_the_reason_below_its_row() -> None:
    lines = render(FAILED, RUNNING, width=60)
    assert lines[0].split() == ["run", "state", "age", "step", "KL", "solve", "rate"]
    assert lines[1].split() == ["icepop_wide/0", "failed", "12/100"]
    assert " ".join(line.strip() for line in lines[2:4]) == REASON
    assert lines[4].split() == ["ipo/12", "running", "40/100", "0.0123", "0.500"]
    assert len(lines) == 5
    assert all(len(line) <= 60 for line in lines)


def test_a_very_narrow_terminal_keeps_run_state_and_reason() -> None:
    lines = render(FAILED, width=24)
    assert lines[0].split() == ["run", "state"]
    assert lines[1].split() == ["icepop_wide/0", "failed"]
    assert " ".join(line.strip() for line in lines[2:]) == REASON


def test_a_run_that_went_further_than_is_asked_now_shows_both_numbers() -> None:
    done = replace(RUNNING, state=RunState.DONE, step=393, max_steps=5)
    assert "393, asked 5" in render(done, width=120)[1]


def test_text_of_programs_cannot_steer_the_terminal() -> None:
    failed = replace(FAILED, reason="\x1b[2Jerased \x07\x1bc", is_planned=False)
    for width in (30, 200):
        output = " ".join(" ".join(render(failed, width=width)).split())
        assert "left the plan; erased \\x07\\x1bc" in output
        assert "\x1b" not in output
        assert "\x07" not in output
