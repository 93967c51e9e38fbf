from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from harness.runner.foreign_tail import open_tail
from harness.runner.metrics_tail import Latest, MetricsTail


def make_tail(
    path: Path, metrics_format: str, keys: Mapping[str, str] | None = None
) -> MetricsTail:
    return open_tail(path, metrics_format, keys or {}, attempt=2)


def append_verl(path: Path, *steps: int, kl: float = 0.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for step in steps:
            row = {"step": step, "data": {"rollout_corr/k3_kl": kl, "critic/score/mean": -1.0}}
            file.write(json.dumps(row) + "\n")


def write_state(folder: Path, global_step: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": global_step, "log_history": rows}, indent=2))


def rows_of(*steps: int, **values: float) -> list[dict[str, Any]]:
    return [{"step": step, **values} for step in steps]


def add_scalars(writer: EventFileWriter, step: int, **values: float) -> None:
    """Write them as torch and transformers do."""
    cells = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=cells)))
    writer.flush()


def test_the_file_of_verl_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = make_tail(path, "verl")
    append_verl(path, 1, 2)
    assert tail.poll() == Latest(step=2, mismatch_kl=0.5)
    assert tail.first_step == 1


def test_each_attempt_of_verl_has_a_folder(tmp_path: Path) -> None:
    append_verl(tmp_path / "attempt_1" / "study" / "ipo.jsonl", 1, 2, 3)
    append_verl(tmp_path / "attempt_3" / "study" / "ipo.jsonl", 50)
    tail = make_tail(tmp_path, "verl")
    assert (tail.poll().step, tail.first_step) == (3, None)
    (tmp_path / "attempt_2").mkdir()
    assert tail.poll().step == 3
    append_verl(tmp_path / "attempt_2" / "study" / "ipo.jsonl", 2, kl=0.25)
    assert tail.poll() == Latest(step=2, mismatch_kl=0.25)
    append_verl(tmp_path / "attempt_2" / "study" / "ipo.jsonl", 3, 4, kl=0.125)
    assert tail.poll() == Latest(step=4, mismatch_kl=0.125)
    assert tail.first_step == 2


def test_a_folder_without_attempts_holds_the_file_of_verl(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "verl", {"solve_rate": "critic/score/mean"})
    append_verl(tmp_path / "study" / "ipo.jsonl", 7)
    assert tail.poll() == Latest(step=7, mismatch_kl=0.5, solve_rate=-1.0)


def test_checkpoints_of_trl_tell_the_step(tmp_path: Path) -> None:
    tail = make_tail(tmp_path / "output", "trainer_state", {"solve_rate": "reward"})
    assert tail.poll() == Latest()
    rows = rows_of(5, 10, num_tokens=300.0, reward=0.5)
    write_state(tmp_path / "output" / "checkpoint-12", 12, rows)
    assert tail.poll() == Latest(step=12, tokens=300, solve_rate=0.5)
    assert tail.first_step == 5


def test_what_a_checkpoint_repeats_is_no_step_of_the_attempt(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-3", 3, rows_of(1, 2, 3, loss=1.0))
    tail = make_tail(tmp_path, "trainer_state")
    assert (tail.poll().step, tail.first_step) == (3, None)
    new = [*rows_of(1, 2, 3, loss=1.0), *rows_of(4, 5, loss=0.5)]
    write_state(tmp_path / "checkpoint-5", 5, new)
    assert (tail.poll().step, tail.first_step) == (5, 4)


def test_a_run_that_began_again_shows_where_it_is(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-9", 9, rows_of(3, 6, 9, loss=1.0))
    tail = make_tail(tmp_path, "trainer_state")
    write_state(tmp_path / "checkpoint-4", 4, rows_of(2, 4, loss=0.9))
    assert (tail.poll().step, tail.first_step) == (4, 2)


def test_a_checkpoint_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "trainer_state")
    path = tmp_path / "checkpoint-2" / "trainer_state.json"
    path.parent.mkdir()
    path.write_text('{"global_step": 2, "log_hist')
    assert tail.poll() == Latest()
    write_state(path.parent, 2, rows_of(1, 2))
    assert tail.poll().step == 2


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"log_history": 3}', '{"log_history": [3, null]}']
)
def test_a_foreign_file_has_no_values(tmp_path: Path, content: str) -> None:
    (tmp_path / "trainer_state.json").write_text(content)
    assert make_tail(tmp_path, "trainer_state").poll() == Latest()


def test_event_files_are_followed(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "tensorboard", {"mismatch_kl": "train/kl"})
    assert tail.poll() == Latest()
    writer = EventFileWriter(str(tmp_path / "runs"))
    add_scalars(writer, 300, **{"train/kl": 0.25, "train/reward": 1.0})
    assert tail.poll() == Latest(step=300, mismatch_kl=0.25)
    add_scalars(writer, 301, **{"train/kl": 0.5})
    assert tail.poll() == Latest(step=301, mismatch_kl=0.5)
    assert tail.first_step == 300
    writer.close()


def test_scalars_in_tensors_tell_the_step_and_texts_do_not(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "tensorboard")
    writer = EventFileWriter(str(tmp_path))
    scalar = Summary.Value(tag="a", tensor=make_tensor_proto(0.5, dtype="float32"))
    scalar.metadata.CopyFrom(create_summary_metadata("a", ""))
    text = Summary.Value(tag="b", tensor=make_tensor_proto("x"))
    writer.add_event(Event(step=4, summary=Summary(value=[scalar])))
    writer.add_event(Event(step=9, summary=Summary(value=[text])))
    writer.close()
    assert tail.poll().step == 4


def test_an_earlier_event_file_shows_where_the_run_stood(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path), filename_suffix=".1")
    add_scalars(writer, 40, a=1.0)
    writer.close()
    tail = make_tail(tmp_path, "tensorboard")
    assert (tail.poll().step, tail.first_step) == (40, None)
    writer = EventFileWriter(str(tmp_path), filename_suffix=".2")
    add_scalars(writer, 31, a=1.0)
    assert (tail.poll().step, tail.first_step) == (31, 31)
    writer.close()


def test_each_attempt_may_have_a_folder_of_event_files(tmp_path: Path) -> None:
    for name, step in (("attempt_1", 40), ("attempt_3", 90)):
        writer = EventFileWriter(str(tmp_path / name))
        add_scalars(writer, step, a=1.0)
        writer.close()
    tail = make_tail(tmp_path, "tensorboard")
    assert (tail.poll().step, tail.first_step) == (40, None)
    writer = EventFileWriter(str(tmp_path / "attempt_2"))
    add_scalars(writer, 31, a=1.0)
    assert (tail.poll().step, tail.first_step) == (31, 31)
    writer.close()


def test_a_torn_record_counts_once_it_is_whole(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    writer = EventFileWriter(str(whole))
    add_scalars(writer, 8, a=1.0)
    writer.close()
    (source,) = whole.iterdir()
    content = source.read_bytes()
    tail = make_tail(tmp_path / "followed", "tensorboard")
    path = tmp_path / "followed" / source.name
    path.parent.mkdir()
    path.write_bytes(content[:-3])
    assert tail.poll().step is None
    with path.open("ab") as file:
        file.write(content[-3:])
    assert tail.poll().step == 8


def test_a_damaged_record_has_no_values(tmp_path: Path) -> None:
    tail = make_tail(tmp_path, "tensorboard")
    for i, record in enumerate((b"\xff" * 40, b"\x2a\x09\x0a\x40", b"\x11\x00", b"")):
        framed = struct.pack("<QI", len(record), 0) + record + b"\0\0\0\0"
        (tmp_path / f"events.out.tfevents.{i}").write_bytes(framed)
    assert tail.poll() == Latest()
