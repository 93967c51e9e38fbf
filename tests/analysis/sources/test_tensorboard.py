"""Event files that the real writers wrote (torch's and TensorBoard's own), and damaged copies."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto
from torch.utils.tensorboard import SummaryWriter

from analysis.sources import NO_ATTEMPT
from analysis.sources.interface import KeySeries, SourceRun
from analysis.sources.tensorboard import read_tensorboard
from harness.errors import UsageError
from harness.trackers.tensorboard import TensorboardTracker

START = 1_790_000_000.0
KL = "mismatch_kl/all/mean"


def read(path: Path, wanted: Callable[[str], bool] = lambda key: True) -> SourceRun:
    return read_tensorboard(path, wanted=wanted)


def write(
    folder: Path,
    cells: Mapping[str, list[tuple[int, float]]],
    *,
    name_time: int,
    purge_step: int | None = None,
    first_time: float = START,
) -> Path:
    """Write one event file, as if it had been opened at `name_time`."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob("*tfevents*"))
    with SummaryWriter(str(folder), purge_step=purge_step) as writer:
        for tag, values in cells.items():
            for i, (step, value) in enumerate(values):
                writer.add_scalar(tag, value, step, walltime=first_time + i)
    [made] = set(folder.glob("*tfevents*")) - before
    return made.rename(folder / f"events.out.tfevents.{name_time}.host.1.0")


def cells(series: KeySeries) -> list[tuple[int, float]]:
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def line(steps: range, offset: float = 0.0) -> list[tuple[int, float]]:
    return [(step, step + offset) for step in steps]


def test_every_scalar_is_read_though_there_are_more_than_a_sample_holds(tmp_path: Path) -> None:
    values = [(step, 1.0 if step == 7_777 else 0.5) for step in range(12_000)]
    path = write(tmp_path, {KL: values, "optim/lr": [(0, 0.25), (10, 0.125)]}, name_time=1)
    run = read(tmp_path)
    [file] = run.files
    assert cells(file.series[KL]) == values
    assert cells(file.series["optim/lr"]) == [(0, 0.25), (10, 0.125)]
    assert file.series[KL].times.tolist() == [START + i for i in range(12_000)]
    assert set(file.series[KL].attempts.tolist()) == {NO_ATTEMPT}
    assert file.provenance.path == str(path)
    assert file.provenance.num_bad_lines == 0
    assert (run.label, run.framework, run.state) == (tmp_path.name, "prime_rl", "unknown")
    assert (run.attempt_groups, run.problems, run.config) == ((1,), (), None)


def test_values_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    values = [(0, 1.0), (1, math.nan), (2, math.inf), (3, -math.inf)]
    write(tmp_path, {KL: values}, name_time=1)
    series = read(tmp_path).files[0].series[KL]
    np.testing.assert_array_equal(series.values, [value for _, value in values])


def test_only_wanted_keys_are_kept_and_all_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, {KL: line(range(3)), "loss": line(range(3))}, name_time=1)
    [file] = read(path, wanted=lambda key: key == KL).files
    assert set(file.series) == {KL}
    assert file.keys == {KL, "loss"}


def test_a_resumed_run_is_two_attempts_in_the_order_of_the_file_names(tmp_path: Path) -> None:
    # Written in the other order.
    write(tmp_path, {KL: line(range(50, 101), 1000.0)}, name_time=20, first_time=START + 500)
    write(tmp_path, {KL: line(range(61))}, name_time=3)
    run = read(tmp_path)
    assert run.attempt_groups == (1, 2)
    assert cells(run.files[0].series[KL]) == line(range(61))
    assert cells(run.files[1].series[KL]) == line(range(50, 101), 1000.0)


def test_a_restart_with_a_purge_step_hides_what_was_logged_from_there_on(tmp_path: Path) -> None:
    write(tmp_path, {KL: line(range(61)), "loss": line(range(61))}, name_time=1)
    write(
        tmp_path,
        {KL: line(range(55, 100), 1000.0)},
        name_time=2,
        purge_step=50,
        first_time=START + 500,
    )
    run = read(tmp_path)
    assert cells(run.files[0].series[KL]) == line(range(50))
    assert cells(run.files[0].series["loss"]) == line(range(50))
    assert run.problems == ("values that a restart hid with its `purge_step`: 22, left out",)


def test_writers_that_run_side_by_side_are_one_attempt(tmp_path: Path) -> None:
    write(tmp_path, {KL: line(range(20))}, name_time=1)
    write(tmp_path, {KL: line(range(20))}, name_time=2, first_time=START + 5)
    write(tmp_path, {"eval/score": line(range(1))}, name_time=3, first_time=START + 900)
    assert read(tmp_path).attempt_groups == (1, 1, 1)


def test_the_harness_own_event_files_are_read(tmp_path: Path) -> None:
    for first, attempt in ((1, 1), (3, 2)):
        tracker = TensorboardTracker(tmp_path, first_step=first)
        for step in range(first, first + 3):
            time = START + 100 * attempt + step
            tracker.log({"step": step, "time": time, "attempt": attempt, KL: step / 4})
        tracker.close()
    run = read(tmp_path)
    found = [
        (one.steps.tolist(), one.attempts.tolist()) for one in (f.series[KL] for f in run.files)
    ]
    assert found == [([1, 2], [1, 1]), ([3, 4, 5], [2, 2, 2])]
    assert run.files[1].series[KL].times.tolist() == [START + 203, START + 204, START + 205]
    assert run.files[0].keys == {KL}


def test_scalars_that_are_tensors_are_read_and_other_tensors_are_not(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    for tag, data in (("int", 3), ("float", 0.5), ("text", "words"), ("vector", [1.0, 2.0])):
        value = Summary.Value(
            tag=tag, metadata=create_summary_metadata(tag, ""), tensor=make_tensor_proto(data)
        )
        writer.add_event(Event(wall_time=START, step=4, summary=Summary(value=[value])))
    writer.close()
    [file] = read(tmp_path).files
    assert {tag: cells(series) for tag, series in file.series.items()} == {
        "int": [(4, 3.0)],
        "float": [(4, 0.5)],
    }


def test_hyperparameters_are_the_config(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_hparams(
            {"loss": "ipo", "max_steps": 40, "fast": True}, {"score": 1.0}, run_name="."
        )
    run = read(tmp_path)
    assert run.config == {"loss": "ipo", "max_steps": 40.0, "fast": True}
    assert run.max_steps == 40


def test_a_file_that_is_cut_anywhere_gives_a_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "whole", {KL: line(range(60))}, name_time=1)
    content = path.read_bytes()
    cut = tmp_path / path.name
    lengths = []
    for size in range(1, len(content), 23):
        cut.write_bytes(content[:size])
        [file] = read(cut).files
        found = cells(file.series[KL]) if KL in file.series else []
        assert found == line(range(len(found)))
        assert file.provenance.num_bad_lines in (0, 1)
        lengths.append(len(found))
    assert lengths == sorted(lengths)
    assert lengths[-1] == 59


def test_a_damaged_record_is_counted_and_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, {KL: line(range(10))}, name_time=1)
    content = bytearray(path.read_bytes())
    offset = content.index(KL.encode(), content.index(KL.encode()) + 40)
    content[offset] ^= 1
    path.write_bytes(content)
    run = read(tmp_path)
    assert cells(run.files[0].series[KL]) == [(0, 0.0), *line(range(2, 10))]
    assert run.files[0].provenance.num_bad_lines == 1
    [problem] = run.problems
    assert problem.startswith(f"`{path.name}`: bad checksum of the record at byte ")


def test_a_damaged_length_ends_the_file_there(tmp_path: Path) -> None:
    path = write(tmp_path, {KL: line(range(10))}, name_time=1)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    run = read(tmp_path)
    assert cells(run.files[0].series[KL]) == line(range(10))
    assert run.problems == (
        f"`{path.name}`: no record begins at byte {size}; what stands before it was read",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "empty"), (b"no events at all, but text", "it does not begin as an event file does")],
)
def test_a_file_that_holds_nothing_says_why_and_the_others_are_read(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    write(tmp_path, {KL: line(range(10))}, name_time=1)
    (tmp_path / "events.out.tfevents.2.host.1.0").write_bytes(content)
    run = read(tmp_path)
    assert [file.provenance.problem for file in run.files] == ["", problem]
    assert run.attempt_groups == (1, 1)


def test_no_more_than_the_head_is_read_of_what_is_no_event_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "events.out.tfevents.1.host").open("wb") as file:
        file.truncate(2 << 30)
    monkeypatch.delattr(Path, "read_bytes")
    [read_file] = read(tmp_path).files
    assert read_file.provenance.problem == "it does not begin as an event file does"


def test_the_only_folder_with_event_files_is_the_run(tmp_path: Path) -> None:
    write(tmp_path / "a" / "tensorboard", {KL: line(range(3))}, name_time=1)
    assert cells(read(tmp_path).files[0].series[KL]) == line(range(3))


def test_several_folders_with_event_files_are_listed(tmp_path: Path) -> None:
    for name in ("icepop", "ipo/tb"):
        write(tmp_path / name, {KL: line(range(3))}, name_time=1)
    with pytest.raises(UsageError) as error:
        read(tmp_path)
    assert error.value.message == f"`{tmp_path}` holds 2 runs of TensorBoard: `icepop`, `ipo/tb`"
    assert error.value.hint.startswith(f"name one of them, as in `{tmp_path / 'icepop'}`")


def test_folders_below_a_run_are_named_and_not_read(tmp_path: Path) -> None:
    write(tmp_path, {KL: line(range(3))}, name_time=1)
    write(tmp_path / "loss_train", {"loss": line(range(3))}, name_time=1)
    run = read(tmp_path)
    assert set(run.files[0].series) == {KL}
    assert run.problems == ("event files in folders below were not read: `loss_train`",)


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_place_without_event_files_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="holds no event file of TensorBoard"):
        read(tmp_path / name)


def test_one_file_seen_under_two_names_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, {KL: line(range(3))}, name_time=1)
    (tmp_path / "latest.tfevents").symlink_to(path)
    assert len(read(tmp_path).files) == 1


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path, {KL: line(range(3))}, name_time=1)
    # As on a machine where it is not installed: the import fails.
    program = """
        import sys
        from pathlib import Path

        sys.modules["tensorboard"] = None
        from analysis.sources.tensorboard import read_tensorboard
        from harness.errors import UsageError

        try:
            read_tensorboard(Path(sys.argv[1]), wanted=bool)
        except UsageError as error:
            print(error.message, error.hint, sep=" | ")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True)
    assert output.stdout == (
        "event files are read with the package `tensorboard`, which is not installed"
        " | pip install tensorboard\n"
    ), output.stderr
