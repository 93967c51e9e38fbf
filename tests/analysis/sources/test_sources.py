from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from analysis.sources import FORMATS, NO_ATTEMPT, MetricsFile, read_metrics
from analysis.sources.interface import parse_step, parse_value


def read(path: Path, content: str | bytes, kind: str = "prime_rl") -> MetricsFile:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_metrics(path, kind, wanted=lambda key: True)


@pytest.mark.parametrize(
    ("raw", "value"),
    [(1, 1.0), (0.5, 0.5), ("1e-3", 1e-3), ("Infinity", math.inf), ("-inf", -math.inf)],
)
def test_numbers_are_read_however_they_are_spelled(raw: object, value: float) -> None:
    assert parse_value(raw) == value


@pytest.mark.parametrize("raw", [None, "NaN", "nan", math.nan])
def test_what_has_no_number_is_nan(raw: object) -> None:
    value = parse_value(raw)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize("raw", ["ipo", "", [1], {"a": 1}, True])
def test_what_is_no_number_is_left_out(raw: object) -> None:
    assert parse_value(raw) is None


@pytest.mark.parametrize("raw", [None, "x", 1.5, math.inf, "NaN", True, 2**70])
def test_a_step_is_a_whole_number(raw: object) -> None:
    assert parse_step(raw) is None


def test_rows_of_a_step_are_merged_across_writers(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        '{"step": 1, "time": 5.0, "mismatch_kl/all/mean": 0.25}\n'
        '{"step": 1, "time": 4.0, "train/a/all/agent/reward/mean": 0.5}\n',
    )
    assert found.series["mismatch_kl/all/mean"].values.tolist() == [0.25]
    assert found.series["train/a/all/agent/reward/mean"].steps.tolist() == [1]
    assert found.provenance.num_rows == 2


def test_unreadable_lines_are_counted_wherever_they_stand(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        b'{"step": 1, "a": 1}\n{"step": 2, "a"\n\n[1]\n\xff\xfe\n{"step": 3, "a": 3}\n{"step": 4,',
    )
    assert found.series["a"].steps.tolist() == [1, 3]
    assert found.provenance.num_bad_lines == 4
    assert found.provenance.bad_lines == (2, 4, 5, 7)


def test_deeply_nested_and_oversized_lines_are_bad_lines(tmp_path: Path) -> None:
    nested = "[" * 100_000
    digits = "9" * 5000
    found = read(tmp_path / "m.jsonl", f'{nested}\n{{"step": {digits}}}\n{{"step": 1, "a": 1}}\n')
    assert found.provenance.num_bad_lines == 2
    assert found.series["a"].values.tolist() == [1.0]


def test_rows_without_a_step_are_counted_and_left_out(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        '{"step": null, "producer": "inference", "a": 1}\n{"a": 2}\n{"step": 1, "a": 3}\n',
    )
    assert found.provenance.num_rows_without_step == 2
    assert found.series["a"].values.tolist() == [3.0]


def test_attempts_and_times_are_kept_with_each_value(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        '{"step": 1, "attempt": 2, "time": 7.5, "a": 1}\n{"step": 2, "a": 1}\n',
    )
    assert found.series["a"].attempts.tolist() == [2, NO_ATTEMPT]
    assert found.series["a"].times[0] == 7.5
    assert np.isnan(found.series["a"].times[1])
    assert not {"step", "attempt", "time"} & found.keys


def test_nonfinite_values_stay_in_the_series(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        '{"step": 3, "x": "NaN"}\n{"step": 4, "x": NaN}\n{"step": 5, "x": "Infinity"}\n'
        '{"step": 6, "x": null}\n{"step": 7, "x": "1e-3"}\n',
    )
    values = found.series["x"].values
    assert np.isnan(values[[0, 1, 3]]).all()
    assert values[2] == math.inf
    assert values[4] == 1e-3


def test_step_time_of_the_orchestrator_is_not_the_trainers(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        '{"step": 1, "time/step": 2.0, "time/save_ckpt": 0}\n'
        '{"step": 1, "time/step": 9.0, "train/a/all/agent/reward/mean": 0.5}\n'
        '{"step": 2, "producer": "orchestrator", "time/step": 9.0}\n'
        '{"step": 3, "time/step": 3.0, "mismatch_kl/all/mean": 1, "train/a/reward/mean": 1}\n',
    )
    assert found.series["time/step"].values.tolist() == [2.0, 3.0]


def test_only_wanted_keys_are_kept_but_all_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "a": 1, "b": 2, "name": "ipo"}\n')
    found = read_metrics(path, "jsonl", wanted=lambda key: key == "a")
    assert found.series.keys() == {"a"}
    assert found.keys == {"a", "b"}


def test_provenance_hashes_the_bytes_that_were_read(tmp_path: Path) -> None:
    content = b'{"step": 1, "a": 1}\n{"torn'
    found = read(tmp_path / "m.jsonl", content)
    assert found.provenance.sha256 == hashlib.sha256(content).hexdigest()
    assert found.provenance.size_bytes == len(content)


def test_jsonl_reads_another_step_key(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"iteration": 4, "step": 0.5, "a": 1}\n')
    found = read_metrics(path, "jsonl", wanted=lambda key: True, step_key="iteration")
    assert found.series["step"].values.tolist() == [0.5]
    assert found.row_steps.tolist() == [4]


def test_csv_reads_a_header_and_leaves_empty_cells_out(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.csv",
        "\ufeffstep, solve_rate ,kl\n1,0.5,\n2,NaN,3e-4\n\n3,0.25\n4,0.75,1\n",
        "csv",
    )
    assert found.series["solve_rate"].steps.tolist() == [1, 2, 4]
    assert found.series["kl"].values.tolist() == [3e-4, 1.0]
    assert found.provenance.num_bad_lines == 1
    assert found.provenance.bad_lines == (5,)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a,b\n1,2\n", "the header has no column `step`"),
        (b"step,a\n\xff\xfe,1\n", "not UTF-8 text (byte 7)"),
    ],
)
def test_csv_that_cannot_be_used_says_why(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    assert read(tmp_path / "m.csv", content, "csv").provenance.problem == problem


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_an_empty_file_has_no_rows_and_no_error(tmp_path: Path, kind: str) -> None:
    found = read(tmp_path / "m", "", kind)
    assert found.provenance.num_rows == 0
    assert found.provenance.problem == ""
    assert found.series == {}


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    missing = read_metrics(tmp_path / "none", "prime_rl", wanted=lambda key: True)
    assert missing.provenance.problem == "missing"
    folder = read_metrics(tmp_path, "prime_rl", wanted=lambda key: True)
    assert folder.provenance.problem == "can't be read: Is a directory"
    unknown = read_metrics(tmp_path, "tensorbored", wanted=lambda key: True)
    assert unknown.provenance.problem.startswith("no reader for format `tensorbored` (known: ")


def test_binary_content_is_bad_lines(tmp_path: Path) -> None:
    found = read(tmp_path / "m.jsonl", bytes(range(256)) * 4)
    assert found.provenance.num_rows == 0
    assert found.provenance.num_bad_lines > 0
