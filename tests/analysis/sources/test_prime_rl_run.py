"""Run folders of prime-rl, written by hand after its formats: stand-ins for files of the real one.

Layout generations are A (`metrics.jsonl` in the run folder) and B (`monitors/file/metrics.jsonl`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.series import first_steps, superseded
from analysis.sources.interface import SourceRun
from analysis.sources.locate import open_source
from analysis.sources.prime_rl_run import read_prime_rl_run
from harness.errors import UsageError

TRAINER = {"max_steps": 3, "loss": {"type": "ipo", "eps": 0.3}, "output_dir": "/scratch/run"}
REWARD = "train/swe/all/agent/reward/mean"
KL = "mismatch_kl/all/mean"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_rows(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def step_rows(step: int, time: float, kl: float, **extra: Any) -> list[dict[str, Any]]:
    """Rows of one step as the trainer and the orchestrator append them."""
    return [
        {"step": step, "time": time, "optim/lr": 1e-6, **extra},
        {"step": step, "time": time + 0.1, KL: kl},
        {"step": step, "time": time + 0.2, "time/step": 210.0, "time/save_ckpt": 0},
        {"step": step, "time": time - 9, REWARD: 0.5, "time/step": 205.0},
    ]


def read(path: Path) -> SourceRun:
    return read_prime_rl_run(path, wanted=lambda key: True)


def test_generation_a_is_one_file_of_two_processes(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", *step_rows(1, 100, 1e-3), *step_rows(2, 200, 2e-3))
    for name in ("trainer", "orchestrator", "inference"):
        write_json(tmp_path / f"configs/{name}.json", TRAINER if name == "trainer" else {"a": 1})
    run = read(tmp_path)
    assert run.framework == "prime_rl"
    assert run.attempt_groups == (1,)
    [file] = run.files
    assert file.series[KL].values.tolist() == [1e-3, 2e-3]
    assert file.series[REWARD].steps.tolist() == [1, 2]
    assert file.series["time/step"].values.tolist() == [210.0, 210.0]
    assert run.config == {"trainer": TRAINER, "orchestrator": {"a": 1}, "inference": {"a": 1}}
    assert run.max_steps == 3
    assert run.state == "unknown"
    assert run.problems == ()


def test_generation_b_names_producers_and_has_rows_without_a_step(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "monitors/file/metrics.jsonl",
        {"step": 1, "time": 5.0, "producer": "trainer", "time/step": 2.0, KL: 1e-3},
        {"step": 1, "time": 6.0, "producer": "orchestrator", "time/step": 9.0, REWARD: 0.5},
        {"step": None, "time": 6.5, "producer": "inference", "inference/agg/running": 4},
    )
    write_json(tmp_path / "configs/attempt_1/resolved/trainer.json", TRAINER)
    run = read(tmp_path)
    [file] = run.files
    assert file.series["time/step"].values.tolist() == [2.0]
    assert file.provenance.num_rows_without_step == 1
    assert run.config == {"trainer": TRAINER}


def test_an_upgrade_in_the_middle_leaves_two_files_in_order(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "metrics.jsonl",
        *step_rows(1, 100, 1e-3),
        *step_rows(2, 200, 2e-3),
        *step_rows(3, 300, 3e-3),
    )
    write_rows(
        tmp_path / "monitors/file/metrics.jsonl",
        *step_rows(2, 400, 2.5e-3, producer="trainer"),
        *step_rows(3, 500, 3.5e-3, producer="trainer"),
    )
    run = read(tmp_path)
    assert [Path(f.provenance.path).parent.name for f in run.files] == [tmp_path.name, "file"]
    assert run.attempt_groups == (1, 2)


def test_steps_made_again_after_a_resume_are_told_by_row_times(tmp_path: Path) -> None:
    rows = [*step_rows(1, 100, 1.0), *step_rows(2, 200, 2.0), *step_rows(3, 300, 3.0)]
    again = [*step_rows(2, 400, 20.0)]
    write_rows(tmp_path / "metrics.jsonl", *rows, *again)
    [file] = read(tmp_path).files
    gone = superseded(file.series[KL], first_steps(file.row_steps, file.row_attempts))
    assert file.series[KL].values[~gone].tolist() == [1.0, 20.0]


def test_a_file_that_two_names_lead_to_is_read_once(tmp_path: Path) -> None:
    write_rows(tmp_path / "monitors/file/metrics.jsonl", *step_rows(1, 100, 1e-3))
    (tmp_path / "metrics.jsonl").symlink_to("monitors/file/metrics.jsonl")
    run = read(tmp_path)
    assert len(run.files) == 1
    assert run.files[0].provenance.num_rows == 4


@pytest.mark.parametrize(
    "config",
    [
        {"file_monitor": {"filename": "logged/rows.jsonl"}},
        {"monitors": {"file": {"path": "logged/rows.jsonl"}}},
        # The folder was copied from the machine that made it.
        {
            "output_dir": "/scratch/run",
            "monitors": {"file": {"path": "/scratch/run/logged/rows.jsonl"}},
        },
    ],
)
def test_a_configured_metrics_file_is_found(tmp_path: Path, config: dict[str, Any]) -> None:
    write_json(tmp_path / "configs/trainer.json", config)
    write_rows(tmp_path / "logged/rows.jsonl", *step_rows(1, 100, 1e-3))
    run = open_source(str(tmp_path), wanted=lambda key: True)
    assert run.files[0].series[KL].values.tolist() == [1e-3]


def test_a_config_cannot_make_the_reader_open_other_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "secret.jsonl", {"step": 1, "x": 1})
    write_json(
        tmp_path / "run/configs/trainer.json", {"monitors": {"file": {"path": "../secret.jsonl"}}}
    )
    run = read(tmp_path / "run")
    assert run.files == ()
    assert run.problems == (
        "`monitors.file.path` is `../secret.jsonl`, outside the run's folder: not read; name that "
        "file itself if it belongs to the run",
        "no metrics file: neither `metrics.jsonl` nor `monitors/file/metrics.jsonl`",
    )


@pytest.mark.parametrize(
    ("steps", "state"),
    [([1, 2, 3], "finished"), ([0, 1, 2], "finished"), ([1, 2], "unknown"), ([], "unknown")],
)
def test_a_run_is_finished_when_the_trainer_made_its_last_step(
    tmp_path: Path, steps: list[int], state: str
) -> None:
    write_json(tmp_path / "configs/trainer.json", TRAINER)
    write_rows(tmp_path / "metrics.jsonl", *(r for s in steps for r in step_rows(s, s, 1e-3)))
    assert read(tmp_path).state == state


def test_a_shipped_batch_is_no_finished_step(tmp_path: Path) -> None:
    write_json(tmp_path / "configs/trainer.json", TRAINER)
    write_rows(
        tmp_path / "metrics.jsonl",
        *step_rows(1, 1, 1e-3),
        *step_rows(2, 2, 1e-3),
        {"step": 3, "time": 3.0, REWARD: 0.5},
    )
    assert read(tmp_path).state == "unknown"


def test_the_newest_config_counts_and_another_loss_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", *step_rows(1, 1, 1e-3))
    first, second = ({"loss": {"type": "ipo", "eps": eps}} for eps in (0.1, 0.3))
    write_json(tmp_path / "configs/attempt_2/resolved/trainer.json", first)
    write_json(tmp_path / "configs/attempt_10/resolved/trainer.json", second)
    (tmp_path / "configs/latest").symlink_to("attempt_10")
    run = read(tmp_path)
    assert run.config == {"trainer": second}
    assert run.problems == (
        "`configs/attempt_2` has another `trainer.loss` than `configs/latest`, which is shown: "
        "{'type': 'ipo', 'eps': 0.1} became {'type': 'ipo', 'eps': 0.3}",
    )


def test_parts_of_the_whole_config_stand_in_for_missing_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", *step_rows(1, 1, 1e-3))
    write_json(
        tmp_path / "configs/rl.json", {"max_steps": 7, "trainer": {"loss": {"type": "kpop"}}}
    )
    run = read(tmp_path)
    assert run.config == {"trainer": {"loss": {"type": "kpop"}}}
    assert run.max_steps == 7


def test_a_torn_config_is_named_with_its_line(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", *step_rows(1, 1, 1e-3))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/trainer.json").write_text('{\n  "loss": {\n')
    run = read(tmp_path)
    assert run.config is None
    assert len(run.problems) == 1
    assert run.problems[0].startswith("`configs/trainer.json`: not JSON (line ")


def test_torn_lines_anywhere_are_counted(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        f'{{"step": 1, "{KL}": 0.25}}\n{{"step": 2, "{KL}": 0.{{"step": 2, "a": 1}}\n'
        f'{{"step": 3, "{KL}": 0.5}}\n{{"step": 4,'
    )
    [file] = read(tmp_path).files
    assert file.provenance.bad_lines == (2, 4)
    assert file.series[KL].steps.tolist() == [1, 3]


def test_a_metrics_file_finds_the_config_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "run/monitors/file/metrics.jsonl"
    write_rows(path, *step_rows(1, 1, 1e-3))
    write_rows(tmp_path / "run/metrics.jsonl", *step_rows(1, 1, 9.0))
    write_json(tmp_path / "run/configs/trainer.json", TRAINER)
    run = open_source(str(path), wanted=lambda key: True)
    assert run.label == "run"
    assert run.config == {"trainer": TRAINER}
    assert [file.provenance.path for file in run.files] == [str(path)]


def test_a_run_that_has_not_begun_has_no_rows(tmp_path: Path) -> None:
    write_json(tmp_path / "configs/trainer.json", TRAINER)
    run = open_source(str(tmp_path), wanted=lambda key: True)
    assert run.files == ()
    assert run.problems == (
        "no metrics file: neither `metrics.jsonl` nor `monitors/file/metrics.jsonl`",
    )


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run folder of prime-rl") as caught:
        read(tmp_path)
    assert caught.value.hint == "name the folder `<output_dir>/<run.name>`"
