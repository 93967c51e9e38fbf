from __future__ import annotations

from pathlib import Path

import pytest

from harness.runner.metrics_tail import Latest, MetricsTail


def make_tail(
    path: Path, metrics_format: str = "prime_rl", keys: dict[str, str] | None = None
) -> MetricsTail:
    return MetricsTail(path, metrics_format, keys or {}, attempt=2)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_file_that_does_not_exist_yet_has_no_values(tmp_path: Path) -> None:
    assert make_tail(tmp_path / "metrics.jsonl").poll() == Latest()


def test_torn_line_counts_only_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = make_tail(path)
    append(path, '{"step": 1}\n{"step": ')
    assert tail.poll().step == 1
    append(path, "2}")
    assert tail.poll().step == 1
    append(path, "\n")
    assert tail.poll().step == 2


def test_values_of_several_processes_and_tasks_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = make_tail(path)
    append(path, '{"step": 4, "mismatch_kl/all/mean": 0.5, "progress/tokens": 100}\n')
    append(
        path,
        '{"step": 3, "train/a/all/agent/reward/mean": 0.2, "train/b/c/all/agent/reward/mean": 0.6,'
        ' "train/a/effective/agent/reward/mean": 0.9}\n',
    )
    latest = tail.poll()
    assert (latest.step, latest.tokens, latest.mismatch_kl) == (4, 100, 0.5)
    assert latest.solve_rate == pytest.approx(0.4, abs=1e-15)


def test_own_names_replace_the_usual_keys(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tail = make_tail(path, "jsonl", {"step": "it", "mismatch_kl": "kl"})
    append(path, '{"it": 7, "step": 900, "kl": 0.1, "mismatch_kl": 9, "solve_rate": 0.75}\n')
    assert tail.poll() == Latest(step=7, tokens=None, mismatch_kl=0.1, solve_rate=0.75)


def test_rows_of_an_earlier_attempt_show_where_it_stood_until_the_first_own_row(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    append(path, '{"step": 59, "attempt": 1}\n{"step": 60, "attempt": 1}\n{"ste')
    tail = make_tail(path)
    assert tail.poll().step == 60
    append(path, '\n{"step": 61, "attempt": 1}\n{"step": 51, "attempt": 2}\n')
    assert tail.poll().step == 51
    append(path, '{"step": 50, "attempt": 2}\n')
    assert tail.poll().step == 51


def test_file_that_was_cut_or_replaced_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = make_tail(path)
    append(path, '{"step": 1}\n{"step": 2, "mismatch_kl/all/mean": 1}\n')
    tail.poll()
    path.write_text('{"step": 3}\n')
    assert tail.poll().step == 3
    replacement = tmp_path / "new"
    replacement.write_text('{"step": 4}\n' + '{"x": 1}\n' * 100)
    replacement.replace(path)
    assert tail.poll().step == 4


@pytest.mark.parametrize(
    "line",
    [
        '{"step": -1}',
        '{"step": 1.5}',
        '{"step": NaN}',
        '{"step": Infinity}',
        '{"step": "9"}',
        '{"step": true}',
        '{"step": ' + "9" * 400 + "}",
        '{"step": null}',
        "9",
        "",
        "\x00",
    ],
)
def test_line_that_names_no_step_changes_nothing(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = make_tail(path)
    append(path, f'{{"step": 5}}\n{line}\n')
    assert tail.poll() == Latest(step=5)


def test_csv_is_read_by_its_header_also_by_a_later_attempt(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    keys = {"step": "it", "mismatch_kl": "kl, nats"}
    append(path, 'it,"kl, nats",note\r\n1,0.25,"a, b"\r\n2,nan\r\n')
    tail = make_tail(path, "csv", keys)
    assert tail.poll() == Latest(step=1, mismatch_kl=0.25)
    append(path, "3,0.5,\r\n4,0.7")
    assert tail.poll() == Latest(step=3, mismatch_kl=0.5)


def test_csv_header_that_arrives_later_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    tail = make_tail(path, "csv")
    append(path, "step,solve_rate\n")
    assert tail.poll() == Latest()
    append(path, "1,0.5\n")
    assert tail.poll() == Latest(step=1, solve_rate=0.5)


def test_long_history_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "mismatch_kl/all/mean": 0.5}\n' + '{"step": 2}\n' * 20_000)
    assert make_tail(path).poll() == Latest(step=2)


def test_first_step_is_the_first_of_this_attempt(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    tail = MetricsTail(path, "prime_rl", {}, attempt=2)
    assert (tail.poll().step, tail.first_step) == (2, None)
    with path.open("a") as file:
        file.write('{"step": 2, "attempt": 1}\n{"loss": 1}\n{"step": 2, "attempt": 2}\n')
        file.write('{"step": 3, "attempt": 2}\n')
    assert (tail.poll().step, tail.first_step) == (3, 2)


@pytest.mark.parametrize("name", ["metrics.jsonl", "monitors/file/metrics.jsonl"])
def test_run_folder_of_prime_rl_is_followed_in_every_layout(tmp_path: Path, name: str) -> None:
    tail = make_tail(tmp_path, "prime_rl_run")
    assert tail.poll() == Latest()
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    append(path, '{"step": 3, "mismatch_kl/all/mean": 0.5}\n')
    append(path, '{"step": 9, "train/swe/all/agent/reward/mean": 0.25}\n')
    latest = tail.poll()
    assert (latest.step, latest.mismatch_kl, latest.solve_rate) == (3, 0.5, 0.25)


def test_steps_of_prime_rl_that_count_from_0_are_counted_from_1(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "prime_rl_run")
    path = tmp_path / "metrics.jsonl"
    append(path, '{"step": 0, "loss/mean": 0.5}\n{"step": 1, "loss/mean": 0.5}\n')
    assert tail.poll().step == 2


def test_evaluation_before_the_first_step_does_not_shift_the_steps(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "prime_rl_run")
    path = tmp_path / "metrics.jsonl"
    append(path, '{"step": 0, "eval/swe/avg@1": 0.5}\n{"step": 1, "loss/mean": 0.5}\n')
    assert tail.poll().step == 1


def test_kl_that_prime_rl_stopped_logging_is_not_shown_as_current(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "prime_rl_run")
    path = tmp_path / "metrics.jsonl"
    append(path, '{"step": 1, "mismatch_kl/all/mean": 0.5}\n{"step": 2, "optim/lr": 1e-6}\n')
    assert tail.poll().mismatch_kl == 0.5  # its row of this step may still come
    append(path, '{"step": 3, "optim/lr": 1e-6}\n')
    assert (tail.poll().step, tail.poll().mismatch_kl) == (3, None)
