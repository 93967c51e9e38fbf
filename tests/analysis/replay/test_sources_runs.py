"""Token records of this project's runs and sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.replay.sources import open_tokens, runs_or_files
from harness.errors import UsageError
from harness.records.files import write_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import SCHEMA_VERSION, RunRecord, to_record
from tests.analysis.replay.token_files import as_float32, read_all, write_record

LOSSES: Mapping[str, Mapping[str, Any]] = {
    "icepop": {"type": "icepop"},
    "ipo": {"type": "ipo", "eps": 0.3},
}


def make_run(paths: RunPaths, *, tokens: str | None = "trainer/tokens") -> RunPaths:
    record = RunRecord(
        schema_version=SCHEMA_VERSION,
        sweep="demo",
        arm=paths.arm,
        seed=paths.seed,
        identity="0",
        trainer="builtin",
        metrics="trainer/metrics.jsonl",
        metrics_format="prime_rl",
        tokens=tokens,
        tokens_format="harness_parquet" if tokens else None,
    )
    paths.root.mkdir(parents=True)
    write_json(paths.record, to_record(record))
    return paths


def add_step(run: RunPaths, step: int, **more: Any) -> Path:
    arguments = {"trainer": [-0.5, -1.5], "inference": [-0.25, -1.25], **more}
    return write_record(run.tokens_file(step), step=step, **arguments)


def make_sweep(root: Path, losses: Mapping[str, Mapping[str, Any]]) -> SweepPaths:
    sweep = SweepPaths(root)
    for arm, loss in losses.items():
        for seed in (0, 1):
            run = make_run(sweep.run(arm, seed))
            add_step(run, 1, loss=loss, sequence=[0, 1])
    return sweep


def test_all_steps_of_a_run_are_read_in_order(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    add_step(run, 20, trainer=[-2.0, -3.0], sequence=[0, 1], is_masked=[True, False])
    add_step(run, 10, sequence=[4, 4])
    source = open_tokens([str(run.root)])
    assert source.loss == {"type": "ipo", "eps": 0.3}
    assert source.num_tokens == 4
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == [-0.5, -1.5, -2.0, -3.0]
    assert tokens.steps is not None
    assert tokens.sequences is not None
    assert tokens.stored_masks is not None
    assert tokens.steps.tolist() == [10, 10, 20, 20]
    assert tokens.sequences.tolist() == [0, 0, 1, 2]
    assert tokens.stored_masks.tolist() == [False, False, True, False]
    assert [file.num_tokens for file in source.files()] == [2, 2]


def test_steps_that_a_resume_rewound_are_superseded(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    add_step(run, 1, attempt=1)
    add_step(run, 2, attempt=2)
    add_step(run, 3, attempt=1)
    source = open_tokens([str(run.root)])
    tokens = read_all(source)
    assert tokens.steps is not None
    assert tokens.steps.tolist() == [1, 1, 2, 2]
    assert source.files()[2].excluded == {"superseded by a resume": 2}


def test_a_sweep_is_all_of_its_runs(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, LOSSES)
    source = open_tokens([str(sweep.root)])
    tokens = read_all(source)
    assert tokens.sequences is not None
    assert tokens.sequences.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert source.loss is None
    assert source.problems() == (
        "the runs were trained by 2 different losses (icepop, ipo): name one arm, as "
        "`runs/<arm>`, to check its own decisions",
    )


def test_one_arm_of_a_sweep_has_one_loss(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, LOSSES)
    source = open_tokens([str(sweep.runs_dir / "ipo")])
    assert len(read_all(source)) == 4
    assert source.loss == {"type": "ipo", "eps": 0.3}
    assert source.problems() == ()


def test_a_file_that_two_names_lead_to_is_read_once(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    path = add_step(run, 1)
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    hard = tmp_path / "hard.parquet"
    os.link(path, hard)
    source = open_tokens([str(run.root), str(link), str(hard)])
    assert len(read_all(source)) == 2
    assert len(source.files()) == 1


def test_a_run_without_records_is_named(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, {"ipo": {"type": "ipo"}})
    bare = make_run(sweep.run("kpop", 0), tokens=None)
    source = open_tokens([str(sweep.root)])
    assert source.problems() == (f"no token records in `{bare.root}`",)
    with pytest.raises(UsageError, match="holds no token records") as caught:
        open_tokens([str(bare.root)])
    assert "trainer.tokens.every" in caught.value.hint


def test_records_elsewhere_than_in_the_run_are_never_read(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0), tokens="../../../elsewhere")
    with pytest.raises(UsageError, match="outside the run's folder"):
        open_tokens([str(run.root)])


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    path = add_step(run, 1)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"step_000001.parquet` can't be read as Parquet"):
        open_tokens([str(run.root)])


def test_records_in_any_folder_are_recognised(tmp_path: Path) -> None:
    path = write_record(tmp_path / "a.parquet", trainer=[-0.1], inference=[-0.2])
    source = open_tokens([str(tmp_path)])
    assert read_all(source).trainer_logprobs.tolist() == as_float32([-0.1])
    assert source.loss == {"type": "ipo", "eps": 0.3}
    assert source.files()[0].path == str(path)


def test_a_path_that_is_not_there_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(UsageError, match="doesn't exist") as caught:
        open_tokens([str(tmp_path / "dmo")])
    assert caught.value.hint == f"did you mean `{tmp_path / 'demo'}`?"
    with pytest.raises(UsageError) as caught:
        open_tokens([str(tmp_path / "a" / "b")])
    assert caught.value.hint == f"the first folder that is missing: `{tmp_path / 'a'}`"
    with pytest.raises(UsageError, match="holds no token records"):
        open_tokens([str(tmp_path / "demo")])
    with pytest.raises(UsageError, match="no token records are named"):
        open_tokens([])


def test_files_of_a_run_that_are_named_one_by_one_are_taken_together(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    files = [add_step(run, step, attempt=attempt) for step, attempt in ((1, 1), (2, 2), (3, 1))]
    source = open_tokens([str(path) for path in files])
    assert len(read_all(source)) == 4
    assert [file.excluded for file in source.files()] == [{}, {}, {"superseded by a resume": 2}]


def test_a_run_is_one_piece_however_often_it_is_named(tmp_path: Path) -> None:
    runs = [make_run(SweepPaths(tmp_path).run("ipo", seed)) for seed in (0, 1)]
    files = [add_step(run, step) for run in runs for step in (1, 2)]
    names = [str(run.root) for run in runs]
    assert runs_or_files([str(tmp_path), names[0]]) == [[names[0]], [names[1]]]
    assert runs_or_files([names[1], str(files[3])]) == [[names[1], str(files[3])]]
    named = [str(path) for path in files[:2]]
    assert runs_or_files(named) == [named]


def test_files_of_any_origin_are_pieces_of_their_own(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("trainer,inference\n-1,-1\n")
    (tmp_path / "c.csv").symlink_to("a.csv")
    names = [str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv")]
    assert runs_or_files(names) == [[names[0], names[2]], [names[1]]]


def test_what_a_mapping_of_columns_does_to_records_of_runs_is_said(tmp_path: Path) -> None:
    run = make_run(SweepPaths(tmp_path).run("ipo", 0))
    path = str(add_step(run, 1))
    source = open_tokens([path], columns={"trainer": "trainer_logprob"})
    assert "read as any other table" in source.problems()[0]
    problems = open_tokens([path], probabilities=True).problems()
    assert "these records hold log-probabilities" in problems[0]
