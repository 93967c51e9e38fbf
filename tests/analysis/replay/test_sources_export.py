"""prime-rl's token export, converted to Parquet and read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.replay.sources import open_tokens
from harness.errors import UsageError
from tests.analysis.replay.token_files import (
    as_float32,
    export_record,
    read_all,
    to_lines,
    write_export,
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("tokens-*"))


def make_old(path: Path) -> None:
    """Set the times of a file and of its marker back, as if nobody wrote them any more."""
    for one in (path, path.parent / "STABLE"):
        os.utime(one, (1_700_000_000, 1_700_000_000))


def test_only_tokens_inside_the_loss_mask_count(tmp_path: Path) -> None:
    write_export(tmp_path / "run", [export_record()])
    source = open_tokens([str(tmp_path / "run")])
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == as_float32([-1.609, -0.105])
    assert tokens.inference_logprobs.tolist() == as_float32([-0.105, -1.61])
    assert tokens.advantages is not None
    assert tokens.advantages.tolist() == [0.5, 0.5]
    assert tokens.steps is not None
    assert tokens.steps.tolist() == [7, 7]
    assert tokens.stored_masks is None
    (file,) = source.files()
    assert (file.num_tokens, file.excluded) == (2, {"outside the loss mask": 1})


def test_null_inside_the_loss_mask_is_counted(tmp_path: Path) -> None:
    record = export_record(trainer_logprobs=[None, None, -0.105])
    write_export(tmp_path, [record])
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 1
    assert source.files()[0].excluded == {"outside the loss mask": 1, "null": 1}


def test_tokens_of_weight_0_are_outside_the_loss_mask(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record(rl_weights=[1.0, 0.0, 2.0])])
    source = open_tokens([str(tmp_path)])
    assert read_all(source).trainer_logprobs.tolist() == as_float32([-0.105])
    assert source.files()[0].excluded == {"outside the loss mask": 2}


def test_stored_decisions_are_read(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record(is_masked=[False, True, False])])
    source = open_tokens([str(tmp_path)])
    assert source.columns.stored_masks
    tokens = read_all(source)
    assert tokens.stored_masks is not None
    assert tokens.stored_masks.tolist() == [True, False]


def test_each_record_is_a_sequence_across_files(tmp_path: Path) -> None:
    records = [export_record(micro_sequence_idx=i, export_sequence_idx=i) for i in range(2)]
    write_export(tmp_path, records, step=7)
    write_export(tmp_path, [export_record(step=10)], step=10)
    tokens = read_all(open_tokens([str(tmp_path)]))
    assert tokens.sequences is not None
    assert tokens.steps is not None
    assert tokens.sequences.tolist() == [0, 0, 1, 1, 2, 2]
    assert tokens.steps.tolist() == [7, 7, 7, 7, 10, 10]


def test_a_step_without_marker_is_counted_and_left_out(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record()], step=7)
    write_export(tmp_path, [export_record(step=8)], step=8, is_stable=False)
    source = open_tokens([str(tmp_path)])
    tokens = read_all(source)
    assert tokens.steps is not None
    assert tokens.steps.tolist() == [7, 7]
    assert source.files()[1].excluded == {
        "outside the loss mask": 1,
        "step without completion marker": 2,
    }
    unstable = read_all(open_tokens([str(tmp_path)], unstable_ok=True))
    assert len(unstable) == 4


def test_only_steps_without_marker_is_an_error(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record()], is_stable=False)
    source = open_tokens([str(tmp_path)])
    with pytest.raises(UsageError, match="2 step without completion marker"):
        list(source.chunks())


def test_a_sequence_written_again_replaces_the_earlier_one(tmp_path: Path) -> None:
    again = export_record(trainer_logprobs=[0.0, -2.0, -3.0])
    other = export_record(micro_sequence_idx=1, export_sequence_idx=1)
    write_export(tmp_path, [export_record(), other, again])
    source = open_tokens([str(tmp_path)])
    assert read_all(source).trainer_logprobs.tolist() == as_float32([-1.609, -0.105, -2.0, -3.0])
    assert source.files()[0].excluded == {"outside the loss mask": 3, "superseded by a resume": 2}


def test_torn_and_foreign_lines_are_counted_by_number(tmp_path: Path) -> None:
    path = write_export(tmp_path, [export_record()])
    line = to_lines([export_record(export_sequence_idx=1)])
    path.write_text(line + "{}\n\n" + to_lines([export_record()]) + line[: len(line) // 2])
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 4
    assert source.files()[0].num_bad_lines == 2
    assert source.problems() == (f"`{path}`: 2 lines are no record (line 2, 5)",)


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer_logprobs": [-1.0, -2.0]},
        {"trainer_logprobs": [-1.0, -2.0, "-3"]},
        {"trainer_logprobs": [[-1.0], -2.0, -3.0]},
        {"loss_mask": [False, True, 2]},
        {"step": "7"},
        {"advantages": [0.5]},
    ],
)
def test_a_record_whose_lists_do_not_fit_is_a_bad_line(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    good = export_record(export_sequence_idx=1)
    write_export(tmp_path, [good, export_record() | changes])
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 2
    assert source.files()[0].num_bad_lines == 1


def test_values_are_those_of_a_json_parser(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    records = []
    for number in range(300):
        length = int(generator.integers(1, 40))
        q = -generator.exponential(3.0, length)
        # Every other value in float32's shortest form, as trainers write it.
        p = np.where(generator.random(length) < 0.5, q.astype(np.float32), q * 1.0000001)
        trainer: list[float | None] = p.tolist()
        if number % 7 == 0:
            trainer[0] = None
        records.append(
            export_record(
                export_sequence_idx=number,
                loss_mask=(generator.random(length) < 0.7).tolist(),
                advantages=generator.normal(size=length).tolist(),
                inference_logprobs=(q * 10.0 ** generator.integers(-30, 2)).tolist(),
                trainer_logprobs=trainer,
            )
        )
    path = write_export(tmp_path, records)
    tokens = read_all(open_tokens([str(tmp_path)]))
    expected: dict[str, list[float]] = {"trainer": [], "inference": [], "advantage": []}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        rows = zip(
            record["loss_mask"],
            record["trainer_logprobs"],
            record["inference_logprobs"],
            record["advantages"],
            strict=True,
        )
        for is_member, p_log, q_log, advantage in rows:
            if is_member and p_log is not None:
                expected["trainer"].append(p_log)
                expected["inference"].append(q_log)
                expected["advantage"].append(advantage)
    assert tokens.advantages is not None
    assert tokens.trainer_logprobs.tolist() == as_float32(expected["trainer"])
    assert tokens.inference_logprobs.tolist() == as_float32(expected["inference"])
    assert tokens.advantages.tolist() == as_float32(expected["advantage"])


def test_a_file_is_converted_once(tmp_path: Path) -> None:
    path = write_export(tmp_path / "run", [export_record()])
    make_old(path)
    first = open_tokens([str(path)])
    assert len(read_all(first)) == 2
    (entry,) = entries(tmp_path)
    written = entry.stat().st_mtime_ns
    again = open_tokens([str(path)])
    assert again.num_tokens == 2
    assert read_all(again).trainer_logprobs.tolist() == as_float32([-1.609, -0.105])
    assert again.files() == first.files()
    assert entry.stat().st_mtime_ns == written


def test_a_changed_file_is_converted_again(tmp_path: Path) -> None:
    path = write_export(tmp_path / "run", [export_record()])
    make_old(path)
    read_all(open_tokens([str(path)]))
    path.write_text(to_lines([export_record(), export_record(export_sequence_idx=1)]))
    make_old(path)
    assert len(read_all(open_tokens([str(path)]))) == 4
    assert len(entries(tmp_path)) == 1


def test_a_marker_that_came_later_is_noticed(tmp_path: Path) -> None:
    path = write_export(tmp_path / "run", [export_record()], is_stable=False)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    with pytest.raises(UsageError, match="no token that counts"):
        list(open_tokens([str(path)]).chunks())
    (path.parent / "STABLE").touch()
    assert len(read_all(open_tokens([str(path)]))) == 2


def test_a_damaged_entry_is_written_anew(tmp_path: Path) -> None:
    path = write_export(tmp_path / "run", [export_record()])
    make_old(path)
    read_all(open_tokens([str(path)]))
    (entry,) = entries(tmp_path)
    entry.write_bytes(b"PAR1 nothing")
    assert len(read_all(open_tokens([str(path)]))) == 2


def test_without_a_cache_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", "off")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    path = write_export(tmp_path / "run", [export_record()])
    make_old(path)
    assert len(read_all(open_tokens([str(path)]))) == 2
    assert list((tmp_path / "scratch").iterdir()) == []
    assert entries(tmp_path) == []


def test_the_loss_is_that_of_the_resolved_config(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record()])
    (tmp_path / "configs").mkdir()
    loss = {"type": "ipo", "eps": 0.1}
    (tmp_path / "configs" / "trainer.json").write_text(json.dumps({"loss": loss}))
    assert open_tokens([str(tmp_path)]).loss == loss


def test_a_line_longer_than_the_first_bytes_is_recognised(tmp_path: Path) -> None:
    length = 20_000
    record = export_record(
        loss_mask=[True] * length,
        advantages=[0.5] * length,
        inference_logprobs=[-0.25] * length,
        trainer_logprobs=[-0.5] * length,
    )
    path = tmp_path / "tokens.jsonl"
    path.write_text(to_lines([record]))
    assert len(read_all(open_tokens([str(path)]))) == length


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    path = write_export(tmp_path, [export_record()])
    (path.parent / "rank_1.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"rank_1.jsonl` can't be read"):
        open_tokens([str(tmp_path)])


def test_a_step_that_is_no_step_is_a_bad_line(tmp_path: Path) -> None:
    write_export(tmp_path, [export_record(), export_record(step=10**30, micro_step=1)])
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 2
    assert source.files()[0].num_bad_lines == 1
