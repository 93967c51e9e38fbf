"""Files of verl's file logger, written by hand after its format: stand-ins for real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.sources.locate import open_source
from analysis.sources.verl import read_verl
from harness.errors import UsageError

ROWS = (
    '{"step": 1, "data": {"actor/entropy": 0.4, "rollout_corr/k3_kl": 0.001, "note": "x"}}\n'
    '{"step": 2, "data": {"actor/entropy": 0.3, "rollout_corr/k3_kl": null}}\n'
    '{"step": 2, "data": {"val-core/math/reward/mean@4": 0.5}}\n'
)


def test_rows_are_nested_and_null_is_a_value_that_was_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text(ROWS)
    run = read_verl(path, wanted=lambda key: True)
    assert (run.label, run.framework, run.config, run.problems) == ("exp", "verl", None, ())
    [file] = run.files
    kl = file.series["rollout_corr/k3_kl"]
    assert kl.steps.tolist() == [1, 2]
    assert kl.values[0] == 0.001
    assert np.isnan(kl.values[1])
    assert file.keys == {"actor/entropy", "rollout_corr/k3_kl", "val-core/math/reward/mean@4"}


def test_validation_of_a_step_joins_its_training_row(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text(ROWS)
    [file] = read_verl(path, wanted=lambda key: True).files
    assert file.series["val-core/math/reward/mean@4"].steps.tolist() == [2]
    assert file.row_steps.tolist() == [1, 2, 2]


def test_only_wanted_keys_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text(ROWS)
    [file] = read_verl(path, wanted=lambda key: key == "actor/entropy").files
    assert file.series.keys() == {"actor/entropy"}


def test_a_file_that_a_restart_emptied_is_named(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text('{"step": 51, "data": {"actor/entropy": 0.4}}\n')
    assert read_verl(path, wanted=lambda key: True).problems == (
        "begins at step 51: verl's file logger empties its file when a run starts again, so that "
        "the steps before a restart are lost",
    )


def test_rows_of_another_shape_have_no_step(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text(ROWS + '{"step": 3, "data": 7}\n{"step": 4, "da\n')
    provenance = read_verl(path, wanted=lambda key: True).files[0].provenance
    assert provenance.num_rows_without_step == 1
    assert provenance.bad_lines == (5,)


def test_a_folder_with_one_file_is_read_and_several_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(ROWS)
    (tmp_path / "notes.jsonl").write_text('{"text": "x"}\n')
    assert read_verl(tmp_path, wanted=lambda key: True).label == "a"
    (tmp_path / "b.jsonl").write_text(ROWS)
    with pytest.raises(UsageError, match="several runs of verl: `a.jsonl`, `b.jsonl`"):
        read_verl(tmp_path, wanted=lambda key: True)


def test_it_is_recognised_by_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "exp.jsonl"
    path.write_text('{"torn\n' + ROWS)
    assert open_source(str(path), wanted=lambda key: True).framework == "verl"


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    run = read_verl(tmp_path / "gone.jsonl", wanted=lambda key: True)
    assert run.files[0].provenance.problem == "can't be read: No such file or directory"
