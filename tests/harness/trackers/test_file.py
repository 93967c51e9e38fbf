from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from harness.trackers.file import FileTracker


def test_rows_are_lines_of_a_file_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "trainer" / "metrics.jsonl"
    tracker = FileTracker(path)
    tracker.log({"step": 1, "loss/mean": 0.1})
    assert path.read_text() == '{"step": 1, "loss/mean": 0.1}\n', "not before the tracker closes"
    tracker.log({"step": 2, "loss/mean": 1e-30})
    tracker.sync()
    tracker.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"step": 1, "loss/mean": 0.1}, {"step": 2, "loss/mean": 1e-30}]


def test_a_later_attempt_appends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        tracker = FileTracker(path)
        tracker.log({"step": step})
        tracker.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_torn_last_line_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "loss')
    tracker = FileTracker(path)
    tracker.log({"step": 2})
    tracker.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2, "loss\n{"step": 2}\n'


def test_an_empty_file_stays_without_an_empty_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    tracker = FileTracker(path)
    tracker.log({"step": 1})
    tracker.close()
    assert path.read_text() == '{"step": 1}\n'


def test_a_value_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tracker = FileTracker(path)
    with pytest.raises(ValueError, match="JSON compliant"):
        tracker.log({"step": 1, "loss/mean": math.nan})
    tracker.close()
    assert path.read_text() == ""
