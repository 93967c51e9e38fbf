"""Metrics of planned runs by the format that their run.json names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

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


def write_verl(path: Path, kl: float, *steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": step, "data": {"rollout_corr/k3_kl": kl}} for step in steps]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_each_attempt_of_verl_may_have_a_folder(tmp_path: Path) -> None:
    write_verl(tmp_path / "attempt_10" / "study" / "ipo.jsonl", 0.25, 5, 6)
    write_verl(tmp_path / "attempt_9" / "study" / "ipo.jsonl", 0.5, 1, 5)
    (tmp_path / "attempt_11").mkdir()
    read = read_planned(tmp_path, "verl", wanted=wanted)
    assert (read.framework, read.attempt_groups, read.problems) == ("verl", (9, 10, 11), ())
    steps = [file.row_steps.tolist() for file in read.files]
    assert steps == [[1, 5], [5, 6], []]
    assert "no file of verl's file logger" in read.files[2].provenance.problem


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics/study/ipo.jsonl"])
def test_verl_may_log_to_one_file(tmp_path: Path, name: str) -> None:
    write_verl(tmp_path / name, 0.5, 3, 4)
    read = read_planned(tmp_path / Path(name).parts[0], "verl", wanted=wanted)
    (file,) = read.files
    assert file.series["rollout_corr/k3_kl"].steps.tolist() == [3, 4]
    assert read.framework == "verl"
    assert read.problems[0].startswith("begins at step 3")


def test_an_output_folder_of_trl_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "output" / "checkpoint-2"
    folder.mkdir(parents=True)
    history = [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 1.0}]
    state = {"global_step": 2, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    read = read_planned(tmp_path / "output", "trainer_state", wanted=wanted)
    (file,) = read.files
    assert file.series["reward"].values.tolist() == [0.5, 1.0]
    assert (read.framework, read.attempt_groups, read.problems) == ("trl", (1,), ())


def test_event_files_are_read_in_a_folder_per_attempt(tmp_path: Path) -> None:
    for attempt, steps in ((1, (1, 2)), (2, (2, 3))):
        with SummaryWriter(str(tmp_path / f"attempt_{attempt}" / "runs")) as writer:
            for step in steps:
                writer.add_scalar("train/kl", attempt, step)
    read = read_planned(tmp_path, "tensorboard", wanted=wanted)
    assert [file.series["train/kl"].steps.tolist() for file in read.files] == [[1, 2], [2, 3]]
    assert (read.attempt_groups, read.problems) == ((1, 2), ())


@pytest.mark.parametrize("kind", ["verl", "trainer_state", "tensorboard"])
def test_a_folder_that_holds_nothing_yet_is_no_error(tmp_path: Path, kind: str) -> None:
    assert read_planned(tmp_path / "later", kind, wanted=wanted).files[0].provenance.problem == (
        "missing"
    )
    (file,) = read_planned(tmp_path, kind, wanted=wanted).files
    assert "holds no" in file.provenance.problem
