from __future__ import annotations

from pathlib import Path

import pytest

from harness.runner.failure import explain_exit, last_error, last_traceback, read_tail, signal_name

CHAINED = """\
step 1
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in f
    g(
    ^^
RuntimeError: CUDA error: out of memory
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

wandb: View run at https://example.org
"""


BOX = """\
2026-08-21 10:00:00 INFO | starting | 3 |
╭─ Config file error ─────────────────────────────────────╮
│ Failed to validate config:                              │
│ ─────────────────────────────────────────────────────── │
│ 1 validation error for RLConfig                         │
│ --orchestrator                                          │
│ Value error, an eval needs                              │
│ a source                                                │
╰─────────────────────────────────────────────────────────╯

wandb: View run at https://example.org
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BOX, "orchestrator: Value error, an eval needs a source"),
        (CHAINED + BOX, "orchestrator: Value error, an eval needs a source"),
        (
            "+- Error -----+\n| No such     |\n| option: --x |\n+-------------+\n",
            "No such option: --x",
        ),
        (BOX + "it went on\n", "it went on"),
        ("| 1 | 2 |\n| 3 | 4 |\n", "| 3 | 4 |"),
        (
            "Traceback (most recent call last):\n  File x\n"
            "pydantic.ValidationError: 1 validation error for C\na.b\n"
            "  Field required [type=missing, input_value={}, input_type=dict]\n\n"
            "srun: error: task 0\n",
            "a.b: Field required",
        ),
    ],
    ids=["box", "traceback-then-box", "ascii", "box-then-line", "table", "validation"],
)
def test_a_refused_configuration_is_told_by_key_and_message(text: str, line: str) -> None:
    assert last_error(text) == line


def test_last_error_is_the_last_exception_of_a_chain() -> None:
    assert last_error(CHAINED) == "RuntimeError: CUDA error: out of memory"


def test_last_traceback_begins_at_its_head_and_ends_with_its_exception() -> None:
    assert last_traceback(CHAINED).splitlines() == [
        "Traceback (most recent call last):",
        '  File "b.py", line 2, in f',
        "    g(",
        "    ^^",
        "RuntimeError: CUDA error: out of memory",
    ]


def test_traceback_behind_a_rank_prefix_is_found() -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "a.py", line 3, in <module>\n'
        "[rank1]: ValueError: no\n"
        "[rank0] shutting down\n"
    )
    assert last_error(text) == "[rank1]: ValueError: no"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n  \n----\n", ""),
        ("bad option --lr\n\n=====\n", "bad option --lr"),
        ("no space left\nwandb: waiting\nsrun: error: task 0\n", "no space left"),
        ("out of cards\n 50%|#####     | 5/10 [00:01<00:01]\n", "out of cards"),
        ("  indented end  \n", "indented end"),
    ],
)
def test_last_error_skips_what_says_nothing(text: str, line: str) -> None:
    assert last_error(text) == line


def test_overlong_line_is_cut() -> None:
    assert len(last_error("x" * 10_000)) == 500


def test_read_tail_keeps_what_a_terminal_would_still_show(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"10%\r20%\r30%\r\n\x1b[31mred\x1b[0m\r\n\xff end")
    assert read_tail(path) == "30%\nred\n\ufffd end"


def test_read_tail_begins_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first line\nsecond\nthird\n")
    assert read_tail(path, max_bytes=10) == "third\n"
    assert read_tail(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("code", "number", "step", "log", "expected"),
    [
        (0, None, 12, "fine\n", "exited 0 at step 12 of 100"),
        (0, None, None, "fine\n", "exited 0 without a logged step, of 100"),
        (2, None, 5, "", "exited 2 and logged nothing"),
        (2, None, 5, "usage: x\n", "exited 2: usage: x"),
        (1, None, 5, CHAINED, "RuntimeError: CUDA error: out of memory"),
        (None, 9, 5, "", "killed by SIGKILL and logged nothing"),
        (None, 11, 5, "step 5\n", "killed by SIGSEGV"),
        (None, 9, 21, "Step 21 | Reward 0.4565\n", "killed by SIGKILL"),
        (
            None,
            6,
            5,
            "terminate called: CUDA Error\n",
            "killed by SIGABRT: terminate called: CUDA Error",
        ),
        (None, 9, 5, "Killed\n", "killed by SIGKILL: Killed"),
        (None, 9, 5, CHAINED, "killed by SIGKILL: RuntimeError: CUDA error: out of memory"),
        (1, None, None, BOX, "exited 1: orchestrator: Value error, an eval needs a source"),
    ],
)
def test_explain_exit(
    tmp_path: Path, code: int | None, number: int | None, step: int | None, log: str, expected: str
) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert explain_exit(code, number, step, 100, path) == expected


def test_signal_name_of_a_number_without_name() -> None:
    assert (signal_name(15), signal_name(99)) == ("SIGTERM", "signal 99")


def test_traceback_of_a_part_explains_what_the_launcher_only_reports(tmp_path: Path) -> None:
    log, part = tmp_path / "log", tmp_path / "trainer.log"
    log.write_text("Error: trainer exited with code 1\n")
    part.write_text("Traceback (most recent call last):\n  File x\nValueError: no batch\n")
    explained = explain_exit(1, None, 3, 10, log, {"trainer": part})
    assert explained == "trainer: ValueError: no batch"
    assert explain_exit(1, None, 3, 10, log, {}) == "exited 1: Error: trainer exited with code 1"
