"""What a user may type for an arm. The runs are written by hand: stand-ins for real ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.sources.interface import SourceRun
from analysis.sources.join import join_runs
from analysis.sources.locate import KINDS, open_source
from harness.errors import UsageError
from tests.analysis.conftest import HEALTHY, MakeSweep

ARMS = {"ipo": HEALTHY, "icepop": HEALTHY}
KL = "mismatch_kl/all/mean"
REWARD = "train/swe/all/agent/reward/mean"


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(source: str | Path) -> SourceRun:
    return open_source(str(source), wanted=lambda key: True)


def refusal(source: str | Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(source)
    return caught.value


def formats(run: SourceRun) -> list[str]:
    return [file.provenance.format for file in run.files]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.log", '{"step": 1, "producer": "trainer", "x": 1}\n', "prime_rl"),
        ("a.log", '{"step": 1, "mismatch_kl/all/mean": 1}\n', "prime_rl"),
        ("a.log", '{"step": 1, "x": 1}\n', "jsonl"),
        ("a.csv", '{"step": 1, "x": 1}\n', "jsonl"),
        ("a.txt", "step,x\n1,2\n", "csv"),
        ("a.jsonl", "step,x\n1,2\n", "csv"),
        ("a.jsonl", '{"step": 1, "x', "jsonl"),
        ("a.txt", '{"step": 1, "data": {"x": 1}}\n', "verl"),
    ],
)
def test_a_file_is_what_its_content_says(
    tmp_path: Path, name: str, content: str, kind: str
) -> None:
    (tmp_path / name).write_text(content)
    assert formats(read(tmp_path / name)) == [kind]


def test_a_prefix_overrides_the_content(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.txt", {"step": 1, KL: 1})
    assert formats(read(f"jsonl:{path}")) == ["jsonl"]
    assert read(f"prime_rl:{path}").framework == "prime_rl"


def test_a_path_that_exists_wins_over_prefix_and_joint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("csv:a+b.jsonl", "a+b/m.jsonl"):
        write_rows(tmp_path / name, {"step": 1, "x": 1})
    monkeypatch.chdir(tmp_path)
    assert read("csv:a+b.jsonl").label == "csv:a+b"
    assert read(f"jsonl:{tmp_path}/a+b/m.jsonl").label == "m"
    assert read(f"{tmp_path}/a+b").label == "m"


def test_trainer_and_orchestrator_are_joined_as_one_attempt(tmp_path: Path) -> None:
    trainer = write_rows(tmp_path / "t.jsonl", {"step": 1, "time": 5, KL: 1, "loss/mean": 2})
    orchestrator = write_rows(tmp_path / "o+1.jsonl", {"step": 1, "time": 4, REWARD: 0.5})
    run = read(f"{trainer}+jsonl:{orchestrator}")
    assert run.label == tmp_path.name
    assert run.framework == "prime_rl"
    assert run.attempt_groups == (1, 1)
    assert {key for file in run.files for key in file.keys} == {KL, REWARD, "loss/mean"}


def test_parts_with_the_same_keys_are_attempts_by_their_times(tmp_path: Path) -> None:
    parts = {}
    for name, time in (("t2", 30), ("t1", 10)):
        parts[name] = write_rows(tmp_path / f"{name}.jsonl", {"step": 1, "time": time, KL: time})
    for name, time in (("o2", 31), ("o1", 11)):
        row = {"step": 1, "time": time, REWARD: 0.5, "time/step": 1}
        parts[name] = write_rows(tmp_path / f"{name}.jsonl", row)
    run = read("+".join(str(path) for path in parts.values()))
    names = [Path(file.provenance.path).stem for file in run.files]
    assert names == ["t1", "t2", "o1", "o2"]
    assert run.attempt_groups == (1, 2, 1, 2)


def test_parts_that_cannot_be_paired_are_of_one_attempt(tmp_path: Path) -> None:
    t1 = write_rows(tmp_path / "t1.jsonl", {"step": 1, "time": 10, KL: 1})
    t2 = write_rows(tmp_path / "t2.jsonl", {"step": 1, "time": 30, KL: 2})
    o1 = write_rows(tmp_path / "o1.jsonl", {"step": 1, "time": 11, REWARD: 0.5})
    assert read(f"{t1}+{o1}+{t2}").attempt_groups == (1, 1, 1)


def test_a_part_that_is_joined_twice_is_read_once(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"step": 1, "x": 1})
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    run = read(f"{path}+{tmp_path / 'b.jsonl'}")
    assert len(run.files) == 1
    assert run.problems == (f"`{tmp_path / 'b.jsonl'}` is the same file as `{path}`: read once",)


def test_joined_configs_fill_each_other_and_the_newest_counts() -> None:
    first = SourceRun("a", "", (), (), {"loss": {"eps": 1, "type": "ipo"}}, versions={"x": "1"})
    second = SourceRun("b", "trl", (), (), {"loss": {"eps": 2}}, max_steps=7, state="finished")
    run = join_runs([first, second])
    assert run.max_steps == 7
    assert run.framework == "trl"
    assert run.config == {"loss": {"eps": 1, "type": "ipo"}}
    assert run.versions == {"x": "1"}


def test_a_folder_with_one_run_in_it_is_that_run(tmp_path: Path) -> None:
    write_rows(tmp_path / "ipo/metrics.jsonl", {"step": 1, KL: 1})
    (tmp_path / "latest").symlink_to("ipo")
    (tmp_path / "notes.txt").write_text("nothing\n")
    assert read(tmp_path).label == "ipo"
    assert read(f"prime_rl:{tmp_path}").label == "ipo"


def test_a_run_is_found_two_folders_down(tmp_path: Path) -> None:
    write_rows(tmp_path / "project/ipo/metrics.jsonl", {"step": 1, KL: 1})
    assert read(tmp_path).label == "ipo"
    assert read(f"prime_rl:{tmp_path}").label == "ipo"
    write_rows(tmp_path / "project/kpop/metrics.jsonl", {"step": 1, KL: 1})
    expected = f"`{tmp_path}` holds 2 runs: `project/ipo`, `project/kpop`"
    assert refusal(tmp_path).message == expected


def test_a_folder_with_several_runs_lists_them(tmp_path: Path) -> None:
    for name in ("ipo", "kpop"):
        write_rows(tmp_path / name / "metrics.jsonl", {"step": 1, KL: 1})
    (tmp_path / "extra.csv").write_text("step,x\n1,2\n")
    error = refusal(tmp_path)
    assert error.message == f"`{tmp_path}` holds 3 runs: `extra.csv`, `ipo`, `kpop`"
    assert error.hint == (
        f"name one of them, as in `{tmp_path}/extra.csv`, or join what one run left with `+`"
    )
    assert refusal(f"prime_rl:{tmp_path}").message == f"`{tmp_path}` holds 2 runs: `ipo`, `kpop`"


def test_own_files_of_a_trainer_win_over_a_trackers_copy(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", {"step": 1, KL: 1})
    (tmp_path / "wandb/offline-run-20260801_120000-abc").mkdir(parents=True)
    (tmp_path / "wandb/offline-run-20260801_120000-abc/run-abc.wandb").write_bytes(b":W&B")
    assert formats(read(tmp_path)) == ["prime_rl"]


def test_logs_of_trackers_are_recognised(tmp_path: Path) -> None:
    log = Path(__file__).parent / "data/wandb_logs/v031_finished.wandb"
    folder = tmp_path / "a/wandb/offline-run-20260801_120000-abc"
    folder.mkdir(parents=True)
    shutil.copy(log, folder / "run-abc.wandb")
    events = tmp_path / "b/events.out.tfevents.1790000000.host"
    events.parent.mkdir()
    events.touch()
    for source in (tmp_path / "a", folder, folder / "run-abc.wandb", f"wandb_offline:{folder}"):
        assert formats(read(source)) == ["wandb_offline"]
    for source in (events.parent, events, f"tb:{events.parent}"):
        assert formats(read(source)) == ["tensorboard"]


def test_an_address_on_a_server_is_no_path() -> None:
    assert refusal("wandb:only/two").message.startswith("`only/two`")


def test_metrics_of_another_shape_are_a_table(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", {"global_step": 1, "x": 1})
    run = read(tmp_path)
    assert formats(run) == ["jsonl"]
    assert run.files[0].row_steps.tolist() == [1]


def test_a_missing_path_names_its_near_miss(tmp_path: Path) -> None:
    write_rows(tmp_path / "icepop/metrics.jsonl", {"step": 1, KL: 1})
    error = refusal(tmp_path / "icepo")
    assert error.message == f"`{tmp_path / 'icepo'}` doesn't exist"
    assert error.hint == f"did you mean `{tmp_path / 'icepop'}`?"
    assert refusal(tmp_path / "a/b/c").hint == f"the first folder that is missing: `{tmp_path}/a`"


def test_an_unknown_kind_names_its_near_miss(tmp_path: Path) -> None:
    error = refusal(f"prime-rl:{tmp_path}")
    assert error.message == f"`prime-rl:{tmp_path}`: there is no kind `prime-rl`"
    assert error.hint == "did you mean `prime_rl`?"


def test_what_is_no_path_lists_the_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal("mlflow:x")
    assert error.message == "`mlflow:x` doesn't exist"
    assert all(kind in error.hint for kind in KINDS)
    assert refusal("csv:").message == "`csv:` names no path"
    assert refusal("").message == "a part of the source names no path"
    assert refusal("x" * 5000).message.endswith("can't be read: File name too long")


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to("gone")
    expected = f"`{tmp_path / 'run'}` is a link to `gone`, which doesn't exist"
    assert refusal(tmp_path / "run").message == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.bin", bytes(range(256)), "is a binary file of no kind that is known"),
        ("a.csv", bytes(range(256)), "is a binary file of no kind that is known"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "is packed with gzip"),
        ("a.log", b"", "is empty"),
        ("a.log", b"all is well\n", "is text of no kind that is known"),
        ("a.json", b'[\n{"step":\n 1}]', "is JSON, but holds no row on a line of its own"),
    ],
)
def test_what_is_no_run_is_one_clear_error(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    error = refusal(tmp_path / name)
    assert error.message.startswith(f"`{tmp_path / name}` {words}")
    assert error.hint


def test_a_folder_without_a_run_says_what_was_looked_for(tmp_path: Path) -> None:
    assert refusal(tmp_path).hint == "the folder is empty"
    (tmp_path / "notes.md").write_text("# Notes\n")
    error = refusal(tmp_path)
    assert "a run folder of prime-rl" in error.message
    assert error.hint == "it holds `notes.md`"
    assert refusal(f"csv:{tmp_path}").message == f"`{tmp_path}` is a folder, want a table in a file"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    expected = f"`{tmp_path / 'a.jsonl'}` is neither a file nor a folder"
    assert refusal(tmp_path / "a.jsonl").message == expected


def test_a_huge_file_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "is a binary file" in refusal(path).message


def test_a_mapping_is_named_where_it_is_not_used(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "metrics.jsonl", {"step": 1, KL: 1})
    run = open_source(str(path), wanted=lambda key: True, columns={"step": "_step"})
    assert run.problems == (
        "`step` is mapped to `_step`, but a run of kind `prime_rl` names it itself: not used",
    )


def test_a_run_of_a_sweep_is_read_with_its_records(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(ARMS, max_steps=5)
    run_dir = sorted((root / "runs").glob("*/seed_*"))[0]
    run = read(run_dir)
    assert run.label == f"{root.name}/{run_dir.parent.name}/{run_dir.name}"
    assert (run.framework, run.state) == ("prime_rl", "finished")
    assert run.max_steps is not None
    assert run.config is not None
    assert run.versions["torch"] == "2.13.0"
    assert np.unique(run.files[0].row_attempts).tolist() == [1]


def test_a_sweep_or_an_arm_is_refused_with_the_runs(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(ARMS, max_steps=5)
    run_dir = sorted((root / "runs").glob("*/seed_*"))[0]
    for folder, what in (
        (root, "a whole sweep"),
        (root / "runs", "all runs of a sweep"),
        (run_dir.parent, "an arm of a sweep"),
    ):
        error = refusal(folder)
        assert error.message == f"`{folder}` is {what}, not a run"
        assert error.hint.startswith("name the folder of one run, such as `")
        assert refusal(f"harness:{root}").message == f"`{root}` is a whole sweep, not a run"


def test_a_damaged_run_record_is_one_clear_error(sweep_maker: MakeSweep) -> None:
    run_dir = sorted((sweep_maker(ARMS, max_steps=5) / "runs").glob("*/seed_*"))[0]
    (run_dir / "run.json").write_text("{")
    assert refusal(run_dir).message.startswith(f"`{run_dir / 'run.json'}` can't be read: ")


def test_a_run_record_cannot_make_the_reader_open_other_files(sweep_maker: MakeSweep) -> None:
    run_dir = sorted((sweep_maker(ARMS, max_steps=5) / "runs").glob("*/seed_*"))[0]
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(record | {"metrics": "../seed_9/x.jsonl"}))
    [file] = read(run_dir).files
    assert file.provenance.problem == "outside the run's folder: not read"
    assert file.series == {}


def test_keys_that_a_run_record_maps_are_named_as_their_metric(sweep_maker: MakeSweep) -> None:
    run_dir = sorted((sweep_maker(ARMS, max_steps=5) / "runs").glob("*/seed_*"))[0]
    record = json.loads((run_dir / "run.json").read_text())
    record |= {"metrics_keys": {"solve_rate": "score", "step": "it"}, "metrics_format": "csv"}
    record |= {"metrics": "trainer/m.csv"}
    (run_dir / "run.json").write_text(json.dumps(record))
    (run_dir / "trainer/m.csv").write_text("it,score\n3,0.5\n")
    [file] = open_source(str(run_dir), wanted=lambda key: False).files
    assert file.series["solve_rate"].values.tolist() == [0.5]
    assert file.keys == {"solve_rate"}
    assert file.row_steps.tolist() == [3]
