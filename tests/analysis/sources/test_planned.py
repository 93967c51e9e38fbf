"""Metrics of planned runs by the format that their run.json names."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.sources.planned import read_planned


def wanted(_key: str) -> bool:
    return True


@pytest.mark.parametrize("name", ["metrics.jsonl", "monitors/file/metrics.jsonl"])
def test_run_folder_of_prime_rl_is_read_in_every_layout(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"step": 1, "time": 1.0, "mismatch_kl/all/mean": 0.5}\n')
    read = read_planned(tmp_path, "prime_rl_run", wanted=wanted)
    (file,) = read.files
    assert file.series["mismatch_kl/all/mean"].values.tolist() == [0.5]
    assert (read.framework, read.attempt_groups, read.problems) == ("prime_rl", (1,), ())


def test_run_folder_that_is_not_there_yet_is_missing_not_an_error(tmp_path: Path) -> None:
    read = read_planned(tmp_path / "later", "prime_rl_run", wanted=wanted)
    assert [file.provenance.problem for file in read.files] == ["missing"]


def test_run_folder_without_metrics_says_so(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "rl.json").write_text('{"trainer": {"loss": {"type": "ipo"}}}')
    (file,) = read_planned(tmp_path, "prime_rl_run", wanted=wanted).files
    assert file.provenance.problem.startswith("no metrics file")


def test_metrics_file_is_read_by_its_format(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"it": 3, "kl": 0.25}\n')
    (file,) = read_planned(path, "jsonl", wanted=wanted, step_key="it").files
    assert (file.series["kl"].steps.tolist(), file.series["kl"].values.tolist()) == ([3], [0.25])
