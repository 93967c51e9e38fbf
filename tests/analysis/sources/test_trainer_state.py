"""Files like Hugging Face's `trainer_state.json`, written by hand: stand-ins for real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.sources.locate import open_source
from analysis.sources.trainer_state import read_trainer_state
from harness.errors import UsageError


def write_state(folder: Path, step: int, *, max_steps: int = 4, loss: float = 0.1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    history: list[dict[str, Any]] = [{"step": s, "epoch": s / 10, "loss": loss} for s in _to(step)]
    state = {"global_step": step, "max_steps": max_steps, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))


def _to(step: int) -> range:
    return range(1, step + 1)


def test_the_furthest_checkpoint_counts(tmp_path: Path) -> None:
    for step in (2, 4, 3):
        write_state(tmp_path / f"checkpoint-{step}", step)
    run = read_trainer_state(tmp_path, wanted=lambda key: True)
    assert run.label == tmp_path.name
    assert (run.framework, run.state, run.max_steps) == ("trl", "finished", 4)
    assert run.files[0].series["loss"].steps.tolist() == [1, 2, 3, 4]
    assert run.problems == ()
    assert len(run.files) == 1


def test_a_run_short_of_its_last_step_is_not_finished(tmp_path: Path) -> None:
    write_state(tmp_path, 3)
    assert read_trainer_state(tmp_path, wanted=lambda key: True).state == "unknown"


def test_a_checkpoint_with_other_values_is_named(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-2", 2, loss=0.7)
    write_state(tmp_path / "checkpoint-3", 3)
    run = read_trainer_state(tmp_path, wanted=lambda key: True)
    assert run.files[0].series["loss"].values.tolist() == [0.1, 0.1, 0.1]
    assert run.problems == (
        "`checkpoint-2/trainer_state.json` holds another `loss` at step 1 than "
        "`checkpoint-3/trainer_state.json`, which is read: it may be of another run or from "
        "before a restart",
    )


def test_a_torn_file_is_named_and_the_next_one_read(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-2", 2)
    write_state(tmp_path / "checkpoint-3", 3)
    torn = tmp_path / "checkpoint-3/trainer_state.json"
    torn.write_text(torn.read_text()[:60])
    run = read_trainer_state(tmp_path, wanted=lambda key: True)
    assert run.files[0].series["loss"].steps.tolist() == [1, 2]
    assert len(run.problems) == 1
    assert run.problems[0].startswith("`checkpoint-3/trainer_state.json`: not JSON (line ")


def test_null_and_bare_nan_are_values_that_were_not_finite(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(
        '{"global_step": 3, "log_history": [{"step": 1, "reward": NaN}, {"step": 2, "reward": null}'
        ', {"step": 2, "eval_reward": 0.5}, {"step": 3, "train_runtime": 7.5}, 5]}'
    )
    run = read_trainer_state(tmp_path, wanted=lambda key: True)
    [file] = run.files
    assert file.series["reward"].steps.tolist() == [1, 2]
    assert np.isnan(file.series["reward"].values).all()
    assert file.series["eval_reward"].values.tolist() == [0.5]
    assert file.provenance.num_bad_lines == 1
    assert run.max_steps is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON (line 1: Expecting value)"),
        ("[1]", "not a JSON object"),
        ('{"global_step": 3}', "no `log_history` list in it"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(content)
    run = open_source(str(path), wanted=lambda key: True)
    assert run.files[0].provenance.problem == problem
    assert run.state == "unknown"


def test_it_is_recognised_under_another_name(tmp_path: Path) -> None:
    write_state(tmp_path, 2)
    path = (tmp_path / "trainer_state.json").rename(tmp_path / "ipo.json")
    assert open_source(str(path), wanted=lambda key: True).framework == "trl"


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no `trainer_state.json`"):
        read_trainer_state(tmp_path, wanted=lambda key: True)


def test_a_file_too_large_to_parse_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    [file_read] = read_trainer_state(tmp_path, wanted=lambda key: True).files
    assert file_read.provenance.problem == "larger than 512 MiB"
