from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from harness.cli.reading import Placement, Reading
from harness.cli.watch import choose_rows, render, sweep_eta_s
from harness.state.model import RunState, RunStatus

NOW = 1_000_000.0


def run(
    seed: int, state: RunState, step: int | None = None, *, reason: str = "", arm: str = "ipo"
) -> RunStatus:
    return RunStatus(
        arm,
        seed,
        state,
        reason=reason,
        since=NOW - 60,
        job_id=f"12_{seed}",
        node="gpu01" if state is RunState.RUNNING else None,
        step=step,
        max_steps=100,
        steps_per_s=2.0 if state is RunState.RUNNING else None,
        mismatch_kl=0.0123 if step else None,
        elapsed_s=60.0,
        limit_s=3600.0,
        gpu_hours=0.5 if step else None,
    )


MIXED = [
    run(0, RunState.RUNNING, 40),
    run(1, RunState.DONE, 100),
    run(2, RunState.FAILED, 10, reason="ValueError: the batch is empty"),
    run(3, RunState.QUEUED, reason="Priority"),
]


def show(
    states: Sequence[RunStatus],
    width: int,
    height: int = 24,
    *,
    stale: str = "",
    planned: float = 8,
) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO())
    reading = Reading(list(states), NOW, stale)
    with console.capture() as capture:
        console.print(render("study", reading, Placement(None, 1.0, planned), console))
    lines = capture.get().splitlines()
    assert all(len(line) <= width for line in lines)
    assert len(lines) < height
    return [line.rstrip() for line in lines]


def test_the_view_has_a_line_for_all_and_a_row_with_a_bar_for_each_run() -> None:
    head, overall, *rows = show(MIXED, 160)
    assert head.startswith("study  4 runs: 1 queued, 1 running, 1 done, 1 failed  ")
    assert overall == "━━━━━━━╸              38 %, about 1:20 left, 1.50 of 8.00 GPU-hours"
    assert rows == [
        "",
        "arm  seed  state                           age  job   node           time     step"
        "  steps/s   ETA      KL  solve rate  GPU-h  note",
        "ipo     0  running  ━━━━━━━━              1:00  12_0  gpu01  1:00/1:00:00   40/100"
        "      2.0  30 s  0.0123               0.50",
        "ipo     1  done     ━━━━━━━━━━━━━━━━━━━━  1:00  12_1         1:00/1:00:00  100/100"
        "                 0.0123               0.50",
        "ipo     2  failed   ━━                    1:00  12_2         1:00/1:00:00   10/100"
        "                 0.0123               0.50  ValueError: the batch is empty",
        "ipo     3  queued                         1:00  12_3            -/1:00:00    0/100"
        "                                            Priority",
    ]


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (120, "arm seed state age job node time step ETA KL solve rate GPU-h"),
        (80, "arm seed state age step KL solve rate"),
        (60, "arm seed state age step"),
        (40, "arm seed state"),
    ],
)
def test_a_narrow_terminal_does_without_the_columns_that_are_needed_least(
    width: int, names: str
) -> None:
    assert show(MIXED, width)[3].split() == names.split()


def test_an_answer_of_the_runs_own_records_alone_is_marked() -> None:
    lines = show(MIXED, 80, stale="`squeue` gave no answer within 30 s")
    assert lines[2].startswith("SLURM doesn't answer: `squeue` gave no answer within 30 s; as")


def test_of_more_runs_than_fit_the_ones_at_work_and_in_trouble_are_shown() -> None:
    states = [run(i, RunState.DONE, 100) for i in range(50)]
    states += [run(i, RunState.QUEUED, arm="kpop") for i in range(30)]
    states += [run(i, RunState.RUNNING, 50, arm="icepop") for i in range(6)]
    states += [run(9, RunState.LOST, 7, arm="icepop", reason="no trace")]
    lines = show(states, 120, 20)
    rows = [line.split()[:3] for line in lines[4:-1]]
    assert rows[0] == ["icepop", "9", "lost"]
    assert rows[1:7] == [["icepop", str(i), "running"] for i in range(6)]
    assert {row[2] for row in rows[7:]} == {"queued"}
    left = 30 - len(rows[7:])
    assert lines[-1] == f"… {50 + left} more: {left} queued, 50 done"


def test_trouble_takes_half_of_the_rows_where_others_need_them() -> None:
    trouble = [run(i, RunState.FAILED, 1) for i in range(20)]
    work = [run(i, RunState.RUNNING, 1, arm="kpop") for i in range(20)]
    shown = choose_rows([*trouble, *work], 10)
    assert [s.state for s in shown] == [RunState.FAILED] * 5 + [RunState.RUNNING] * 5
    shown = choose_rows([*trouble, *work[:2]], 10)
    assert [s.state for s in shown] == [RunState.FAILED] * 8 + [RunState.RUNNING] * 2


def test_a_sweep_lasts_as_long_as_its_live_runs_take_at_the_speed_of_now() -> None:
    assert sweep_eta_s(MIXED) == (60 + 100) / 2.0
    assert sweep_eta_s([run(0, RunState.QUEUED)]) is None


def test_text_of_programs_cannot_steer_the_terminal() -> None:
    states = [run(0, RunState.FAILED, 1, reason="\x1b[2Jgone \x07"), *MIXED]
    assert "\x1b" not in "".join(show(states, 160))
    assert "gone \\x07" in "".join(show(states, 160))
