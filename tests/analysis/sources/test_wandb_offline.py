"""Logs that real versions of wandb wrote (`data/README.md`), and damaged copies of them."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.sources.interface import SourceRun
from analysis.sources.wandb_log import WandbLog, parse_wandb_log
from analysis.sources.wandb_offline import find_wandb_logs, read_wandb_offline
from harness.errors import UsageError
from tests.analysis.sources.data.make_wandb_logs import CONFIG, calls_of_step

LOGS = Path(__file__).parent / "data" / "wandb_logs"
FINISHED = ("v022_finished", "v029_finished", "v031_finished", "v031_typed")
# How many rows had reached the disk.
DIED = {"v022_died": 134, "v029_died": 134, "v031_died": 164}

Cells = dict[str, list[tuple[int, float]]]


def read(path: Path, wanted: Callable[[str], bool] = lambda key: True) -> SourceRun:
    return read_wandb_offline(path, wanted=wanted)


def parse(content: bytes) -> WandbLog:
    return parse_wandb_log(content, keep=lambda key: True)


def logged_rows(steps: range, offset: float = 0.0) -> list[dict[str, Any]]:
    return [row for step in steps for row in calls_of_step(step, offset)]


def expected_cells(rows: list[dict[str, Any]]) -> Cells:
    """Return every number that was logged, by key, as (step, value), without any reader."""
    cells: Cells = defaultdict(list)

    def add(step: int, key: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                add(step, f"{key}.{name}", inner)
        elif value is None:
            cells[key].append((step, math.nan))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            cells[key].append((step, float(value)))

    for row in rows:
        for key, value in row.items():
            if key != "step":
                add(row["step"], key, value)
    return dict(cells)


def assert_cells(run: SourceRun, expected: Cells, file: int = 0) -> None:
    series = run.files[file].series
    assert sorted(series) == sorted(expected)
    for key, cells in expected.items():
        assert series[key].steps.tolist() == [step for step, _ in cells]
        np.testing.assert_array_equal(series[key].values, [value for _, value in cells])


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def chunk(number: int, content: bytes) -> bytes:
    """Return a protobuf field of bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def make_log(*records: bytes) -> bytes:
    """Return a log of small records that fit into its first block."""
    frames = b"".join(
        struct.pack("<IHB", zlib.crc32(b"\x01" + record), len(record), 1) + record
        for record in records
    )
    return b":W&B\xe1\xbe\x00" + frames


def history(*items: bytes, step: int = 0) -> bytes:
    return chunk(2, b"".join(chunk(1, i) for i in items) + chunk(2, b"\x08" + varint(step)))


def json_item(key: str, value: Any) -> bytes:
    return chunk(2, key.encode()) + chunk(16, json.dumps(value).encode())


def lay_out(root: Path, *names: tuple[str, str]) -> Path:
    """Lay logs out as wandb does: (name of the folder, name of the log in `data`)."""
    wandb = root / "wandb"
    for folder, name in names:
        run_id = folder.rpartition("-")[2]
        (wandb / folder).mkdir(parents=True)
        shutil.copy(LOGS / f"{name}.wandb", wandb / folder / f"run-{run_id}.wandb")
    (wandb / "latest-run").symlink_to(names[-1][0])
    return wandb


@pytest.mark.parametrize("name", FINISHED)
def test_every_cell_of_a_finished_run_is_read(name: str) -> None:
    run = read(LOGS / f"{name}.wandb")
    rows = logged_rows(range(40))
    assert_cells(run, expected_cells(rows))
    file = run.files[0]
    assert file.row_steps.tolist() == [row["step"] for row in rows]
    assert file.provenance.num_rows == len(rows) == 164
    assert (file.provenance.num_bad_lines, file.provenance.num_rows_without_step) == (0, 0)
    assert np.isfinite(file.series["mismatch_kl/all/mean"].times).all()
    assert run.config == CONFIG | {"added_later": {"deep": True}}
    assert (run.state, run.max_steps, run.label) == ("finished", 40, "stand-in-name")
    assert run.framework == "prime_rl"
    assert run.problems == ()


@pytest.mark.parametrize(
    ("name", "version"), [("v022_died", "0.22.3"), ("v029_died", "0.29.0"), ("v031_died", "0.31.0")]
)
def test_rows_of_a_run_that_died_are_read_as_far_as_they_were_written(
    name: str, version: str
) -> None:
    run = read(LOGS / f"{name}.wandb")
    assert_cells(run, expected_cells(logged_rows(range(40))[: DIED[name]]))
    assert parse((LOGS / f"{name}.wandb").read_bytes()).is_torn == (name != "v031_died")
    assert run.state == "unknown"
    assert run.versions == {"wandb": version}
    assert run.problems == (
        "wandb wrote no exit: the run is still going, or it was killed and its last rows lost",
    )


def test_only_wanted_keys_are_kept_and_all_numbers_are_listed() -> None:
    run = read(LOGS / "v031_finished.wandb", wanted=lambda key: key == "optim/lr")
    everything = expected_cells(logged_rows(range(40)))
    assert_cells(run, {"optim/lr": everything["optim/lr"]})
    assert run.files[0].keys == everything.keys()


def test_a_log_that_is_cut_anywhere_gives_a_prefix() -> None:
    content = (LOGS / "v031_typed.wandb").read_bytes()
    whole = [json.dumps(row) for row in parse(content).rows]
    lengths = []
    for size in range(0, len(content), 97):
        log = parse(content[:size])
        assert log.damage == ""
        assert log.bad_records == []
        assert log.exit_code is None
        assert [json.dumps(row) for row in log.rows] == whole[: len(log.rows)]
        lengths.append(len(log.rows))
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(whole) == 164


@pytest.mark.parametrize("where", range(1000, 79_000, 6_500))
def test_a_flipped_byte_ends_the_log_at_a_place_that_is_named(tmp_path: Path, where: int) -> None:
    content = bytearray((LOGS / "v031_finished.wandb").read_bytes())
    whole = parse(bytes(content)).rows
    content[where] ^= 0x10
    path = tmp_path / "run-flipped.wandb"
    path.write_bytes(content)
    run = read(path)
    [problem] = run.problems
    named = re.fullmatch(r"`run-flipped.wandb`: .* byte (\d+).*; what stands before .*", problem)
    assert named is not None, problem
    assert where - 32 * 1024 < int(named.group(1)) <= where
    rows = parse(bytes(content)).rows
    assert rows == whole[: len(rows)]
    assert len(rows) < len(whole)
    assert run.state == "unknown"


@pytest.mark.parametrize(
    "content", [b"", b":W&B\xe1\xbe\x00", b":W", b":W&B\xe1\xbe\x00" + b"\x01" * 6]
)
def test_a_log_without_a_record_is_a_run_without_rows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run-abc.wandb").write_bytes(content)
    run = read(tmp_path)
    assert (run.label, run.state, run.files[0].provenance.num_rows) == ("abc", "unknown", 0)
    assert run.files[0].provenance.problem == ("" if content else "empty")


@pytest.mark.parametrize("content", [b"PK\x03\x04 an archive", b"\0" * 40_000])
def test_a_file_that_is_no_log_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run-abc.wandb").write_bytes(content)
    [file] = read(tmp_path).files
    assert file.provenance.problem == "it does not begin as a log of wandb does"


def test_no_more_than_the_head_is_read_of_what_is_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "run-abc.wandb").open("wb") as file:
        file.truncate(2 << 30)
    monkeypatch.delattr(Path, "read_bytes")
    [read_file] = read(tmp_path).files
    assert read_file.provenance.problem == "it does not begin as a log of wandb does"


def test_a_newer_container_says_so(tmp_path: Path) -> None:
    (tmp_path / "run-abc.wandb").write_bytes(b":W&B\xe1\xbe\x01" + b"\0" * 100)
    assert read(tmp_path).problems == (
        "`run-abc.wandb`: version 1 of the log format is not known; what stands before it was read",
    )


def test_a_hole_of_zeros_is_damage(tmp_path: Path) -> None:
    content = (LOGS / "v031_finished.wandb").read_bytes()[: 32 * 1024]
    log = parse(content + b"\0" * 4096)
    assert log.damage == "no record begins at byte 32768"
    assert len(log.rows) > 50


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_record_makes_the_reader_fail(records: list[bytes]) -> None:
    broken = [chunk(2, chunk(1, record)) for record in records]
    log = parse(make_log(*records, *broken, history(json_item("last", 1))))
    assert log.damage == ""
    assert log.rows[-1] == {"last": 1, "_step": 0}


def test_fields_that_are_not_known_are_skipped() -> None:
    item = json_item("a", 1.5) + chunk(999, b"later") + varint(998 << 3) + varint(7)
    record = chunk(4000, b"what") + history(item, step=3) + varint(4001 << 3 | 5) + b"1234"
    log = parse(make_log(chunk(3000, b"\xff\xff"), record))
    assert log.rows == [{"a": 1.5, "_step": 3}]
    assert (log.bad_records, log.damage) == ([], "")


def test_typed_values_without_json_are_read() -> None:
    minus_three = varint(5 << 3) + varint(5)
    items = [
        chunk(2, b"none") + varint(3 << 3) + b"\0",
        chunk(2, b"true") + varint(4 << 3) + b"\x01",
        chunk(2, b"int") + minus_three,
        chunk(2, b"float") + varint(6 << 3 | 1) + struct.pack("<d", 0.1),
        chunk(2, b"nan") + varint(6 << 3 | 1) + struct.pack("<d", math.inf),
        chunk(2, b"text") + chunk(7, b"words"),
        chunk(2, b"json") + chunk(8, b"[1, 2]"),
        chunk(1, b"old key") + chunk(16, b'"NaN"'),
        chunk(2, b"a") + chunk(2, b"b") + varint(5 << 3) + b"\x02",
    ]
    assert parse(make_log(history(*items))).rows == [
        {
            "none": None,
            "true": True,
            "int": -3,
            "float": 0.1,
            "nan": math.inf,
            "text": "words",
            "json": [1, 2],
            "old key": "NaN",
            "a.b": 1,
            "_step": 0,
        }
    ]


def test_a_record_that_is_no_protobuf_is_counted_and_the_rest_read(tmp_path: Path) -> None:
    rows = [history(json_item("step", i), json_item("a", i / 2)) for i in (1, 2)]
    content = make_log(rows[0], chunk(2, b"\x0a\x7f"), b"\x80", b"\x0b", rows[1])
    (tmp_path / "run-x.wandb").write_bytes(content)
    [file] = read(tmp_path).files
    assert file.provenance.bad_lines == (2, 3, 4)
    assert file.series["a"].values.tolist() == [0.5, 1.0]


def test_a_value_that_is_no_json_is_left_out_and_counted(tmp_path: Path) -> None:
    broken = chunk(2, b"a") + chunk(16, b"{")
    content = make_log(history(json_item("step", 1), broken, json_item("b", 2)))
    (tmp_path / "run-x.wandb").write_bytes(content)
    run = read(tmp_path)
    assert run.files[0].keys == {"b"}
    assert "`run-x.wandb`: values that are no JSON: 1" in run.problems


def test_a_wanted_key_is_kept_beside_one_that_is_not_and_begins_alike() -> None:
    nested = chunk(2, b"a") + chunk(2, b"b") + chunk(16, b"3")
    rows = [history(json_item("a", 1)), history(json_item("a", 2), nested)]
    log = parse_wandb_log(make_log(*rows), keep=lambda key: key == "a.b")
    assert log.rows == [{"a": 1, "_step": 0}, {"a.b": 3, "_step": 0}]


def test_media_are_no_metrics() -> None:
    table = {"_type": "table-file", "size": 10, "nrows": 2}
    log = parse(make_log(history(json_item("samples", table), json_item("n", {"deep": {"er": 1}}))))
    assert log.rows == [{"n.deep.er": 1, "_step": 0}]


@pytest.mark.parametrize(
    ("exits", "state"),
    [
        ([chunk(18, b"")], "finished"),
        ([chunk(18, b"\x08\x01")], "failed"),
        ([chunk(18, b"\x08" + varint(2**64 - 9))], "failed"),
        ([], "unknown"),
    ],
)
def test_the_state_is_what_the_exit_record_says(
    tmp_path: Path, exits: list[bytes], state: str
) -> None:
    content = make_log(history(json_item("step", 1)), *exits)
    (tmp_path / "run-x.wandb").write_bytes(content)
    assert read(tmp_path).state == state


def read_rows(tmp_path: Path, *rows: dict[str, Any]) -> SourceRun:
    records = [
        history(*(json_item(key, value) for key, value in row.items()), step=number)
        for number, row in enumerate(rows)
    ]
    (tmp_path / "run-x.wandb").write_bytes(make_log(*records, chunk(18, b"")))
    return read(tmp_path)


def test_without_a_step_wandbs_own_is_taken_and_named(tmp_path: Path) -> None:
    run = read_rows(tmp_path, {"a": 1.0}, {"a": 2.0})
    assert run.files[0].series["a"].steps.tolist() == [0, 1]
    assert run.problems == (
        "no `step`: wandb's own `_step` is used, which counts calls, not updates",
    )


@pytest.mark.parametrize(
    "key", ["training_step", "global_step", "trainer/global_step", "train/global_step"]
)
def test_steps_of_other_trainers_are_steps(tmp_path: Path, key: str) -> None:
    run = read_rows(tmp_path, {"a": 1.0, key: 10}, {"a": 2.0, key: 20})
    assert run.files[0].series["a"].steps.tolist() == [10, 20]
    assert run.problems == ()


def test_a_step_that_equals_wandbs_own_is_one_for_rows_without_it(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1.0, "training/global_step": 0}, {"a": 2.0}]
    run = read_rows(tmp_path, *rows)
    assert run.files[0].series["a"].steps.tolist() == [0, 1]
    assert run.problems == ()


def test_rows_without_the_step_that_others_have_are_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1.0, "step": 7},
        {"a": 2.0, "step": None},
        {"a": 3.0, "step": 8},
        {"b": 1},
    ]
    [file] = read_rows(tmp_path, *rows).files
    assert file.series["a"].steps.tolist() == [7, 8]
    assert file.provenance.num_rows_without_step == 2


def test_folders_of_one_run_id_are_its_attempts_in_order_of_time(tmp_path: Path) -> None:
    # The name sorts the other way round.
    wandb = lay_out(
        tmp_path,
        ("offline-run-20260203_000000-w031resume", "v031_attempt_2_failed"),
        ("run-20260102_000000-w031resume", "v031_attempt_1_died"),
    )
    for path in (wandb, tmp_path):
        run = read(path)
        assert run.attempt_groups == (1, 2)
        assert_cells(run, expected_cells(logged_rows(range(20))[:68]), file=0)
        assert_cells(run, expected_cells(logged_rows(range(10, 30), 0.5)), file=1)
        assert (run.state, run.problems) == ("failed", ())


def test_the_link_to_the_latest_run_is_not_another_run(tmp_path: Path) -> None:
    wandb = lay_out(tmp_path, ("offline-run-20260203_000000-w022fin", "v022_finished"))
    log = wandb / "offline-run-20260203_000000-w022fin" / "run-w022fin.wandb"
    assert find_wandb_logs(wandb) == [log]
    assert len(read(wandb).files) == 1
    assert len(read(wandb / "latest-run").files) == 1


def test_several_runs_in_a_folder_are_listed(tmp_path: Path) -> None:
    wandb = lay_out(
        tmp_path,
        ("offline-run-20260203_000000-w022fin", "v022_finished"),
        ("offline-run-20260203_000001-w031fin", "v031_finished"),
    )
    with pytest.raises(UsageError) as error:
        read(wandb)
    assert error.value.message == (
        f"`{wandb}` holds 2 runs: `w022fin` in `offline-run-20260203_000000-w022fin`, "
        "`w031fin` in `offline-run-20260203_000001-w031fin`"
    )
    assert error.value.hint == "name the folder of one, or join those of one training with `+`"


@pytest.mark.parametrize("name", ["", "missing", "notes.txt"])
def test_a_place_without_a_log_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(UsageError, match="holds no log of wandb"):
        read(tmp_path / name)
