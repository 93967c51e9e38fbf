"""Tables of any origin: Parquet, JSON lines, CSV and NPZ with a column mapping."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.replay.sources import open_tokens
from analysis.replay.tokens import CHUNK_TOKENS
from harness.errors import UsageError
from tests.analysis.replay.token_files import as_float32, read_all, to_lines

Columns = Mapping[str, Any]
Writer = Callable[[Path, Columns], Path]


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", "off")


def write_parquet(folder: Path, columns: Columns) -> Path:
    path = folder / "tokens.parquet"
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
    return path


def write_jsonl(folder: Path, columns: Columns) -> Path:
    path = folder / "tokens.jsonl"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text(to_lines(rows))
    return path


def write_csv(folder: Path, columns: Columns) -> Path:
    path = folder / "tokens.csv"
    rows = [columns, *zip(*columns.values(), strict=True)]
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    path.write_text("".join(",".join(row) + "\n" for row in cells))
    return path


def write_npz(folder: Path, columns: Columns) -> Path:
    path = folder / "tokens.npz"
    arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
    np.savez(path, **arrays)
    return path


WRITERS = [write_parquet, write_jsonl, write_csv, write_npz]
every_format = pytest.mark.parametrize("write", WRITERS)
with_nulls = pytest.mark.parametrize("write", [write_parquet, write_jsonl, write_csv])
with_lists = pytest.mark.parametrize("write", [write_parquet, write_jsonl])

TABLE = {
    "p": [-0.5, -1.5, -2.5, -0.125],
    "q": [-0.25, -1.25, -2.25, 0.0],
    "adv": [1.0, -1.0, 0.0, 0.5],
    "inside": [True, False, True, True],
    "episode": [4, 4, 9, 9],
    "update": [1, 1, 1, 2],
    "dropped": [False, True, True, False],
}
MAPPING = {
    "trainer": "p",
    "inference": "q",
    "advantage": "adv",
    "loss_mask": "inside",
    "sequence": "episode",
    "step": "update",
    "is_masked": "dropped",
}


@every_format
def test_mapped_columns_are_read(tmp_path: Path, write: Writer) -> None:
    source = open_tokens([str(write(tmp_path, TABLE))], columns=MAPPING)
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == [-0.5, -2.5, -0.125]
    assert tokens.inference_logprobs.tolist() == [-0.25, -2.25, 0.0]
    assert tokens.advantages is not None
    assert tokens.sequences is not None
    assert tokens.steps is not None
    assert tokens.stored_masks is not None
    assert tokens.advantages.tolist() == [1.0, 0.0, 0.5]
    # A sequence goes on within one step only.
    assert tokens.sequences.tolist() == [0, 1, 2]
    assert tokens.steps.tolist() == [1, 1, 2]
    assert tokens.stored_masks.tolist() == [False, True, False]
    (file,) = source.files()
    assert (file.num_tokens, file.excluded) == (3, {"outside the loss mask": 1})


@every_format
def test_usual_names_need_no_mapping(tmp_path: Path, write: Writer) -> None:
    columns = {"trainer_logprob": [-0.5], "inference_logprob": [-0.25], "step": [3]}
    source = open_tokens([str(write(tmp_path, columns))])
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == [-0.5]
    assert tokens.steps is not None
    assert tokens.steps.tolist() == [3]
    assert tokens.sequences is None
    assert not source.columns.sequences


@every_format
def test_impossible_and_infinite_values_are_counted(tmp_path: Path, write: Writer) -> None:
    columns = {
        "trainer": [-0.5, 0.5, -math.inf, -1.0, math.nan, 1e-7],
        "inference": [-0.25, -1.0, -1.0, 2.0, -1.0, -1.0],
    }
    source = open_tokens([str(write(tmp_path, columns))])
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == [-0.5, 0.0]
    excluded = source.files()[0].excluded
    # Arrow's tables hold NaN, which isn't null.
    assert excluded == {"impossible": 2, "not finite": 2}
    assert source.problems() == (
        "1 log-probabilities lie above 0 by at most 1e-05, as rounding leaves them: taken as 0",
    )


@with_nulls
def test_null_is_counted(tmp_path: Path, write: Writer) -> None:
    columns = {"trainer": [-0.5, None, -1.0], "inference": [-0.25, -1.0, None]}
    source = open_tokens([str(write(tmp_path, columns))])
    assert len(read_all(source)) == 1
    assert source.files()[0].excluded == {"null": 2}


@every_format
def test_stated_probabilities_become_logarithms(tmp_path: Path, write: Writer) -> None:
    columns = {"p": [0.06, 0.2, 1.5, -0.1, 0.0], "q": [0.01, 0.9, 0.5, 0.5, 0.5]}
    path = write(tmp_path, columns)
    expected = [math.log(0.06), math.log(0.2)]
    for source in (
        open_tokens([str(path)], columns={"trainer_prob": "p", "inference_prob": "q"}),
        open_tokens([str(path)], columns={"trainer": "p", "inference": "q"}, probabilities=True),
    ):
        tokens = read_all(source)
        assert tokens.trainer_logprobs.tolist() == as_float32(expected)
        assert source.files()[0].excluded == {"impossible": 2, "not finite": 1}
        assert source.decimals is None


@every_format
def test_probabilities_are_never_guessed(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, {"trainer": [0.06, 0.2], "inference": [0.01, 0.9]})
    with pytest.raises(UsageError, match="looks like probabilities") as caught:
        list(open_tokens([str(path)]).chunks())
    assert "trainer_prob=…,inference_prob=…" in caught.value.hint


@with_lists
def test_a_row_with_lists_is_a_sequence(tmp_path: Path, write: Writer) -> None:
    columns = {
        "trainer": [[-0.5, -1.0], [], [-2.0]],
        "inference": [[-0.25, -0.75], [], [-3.0]],
        "advantage": [1.0, 2.0, 3.0],
        "loss_mask": [[True, True], [], [True]],
        "step": [1, 1, 2],
    }
    tokens = read_all(open_tokens([str(write(tmp_path, columns))]))
    assert tokens.trainer_logprobs.tolist() == [-0.5, -1.0, -2.0]
    assert tokens.advantages is not None
    assert tokens.sequences is not None
    assert tokens.steps is not None
    assert tokens.advantages.tolist() == [1.0, 1.0, 3.0]
    assert tokens.sequences.tolist() == [0, 0, 2]
    assert tokens.steps.tolist() == [1, 1, 2]


@with_lists
def test_lists_of_different_lengths_are_an_error(tmp_path: Path, write: Writer) -> None:
    columns = {"trainer": [[-0.5], [-1.0, -2.0]], "inference": [[-0.25], [-0.75]]}
    path = write(tmp_path, columns)
    expected = "row 2: column `inference` has 1 values, `trainer` has 2"
    with pytest.raises(UsageError, match=expected):
        list(open_tokens([str(path)]).chunks())


@every_format
def test_a_missing_column_is_an_error_with_the_nearest_one(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, {"trainer_lp": [-0.5], "inference": [-0.25]})
    with pytest.raises(UsageError, match="has no column `trainer_pl`") as caught:
        open_tokens([str(path)], columns={"trainer": "trainer_pl"})
    assert caught.value.hint == "nearest: `trainer_lp`"
    with pytest.raises(UsageError, match="no column with the trainer's log-probabilities"):
        open_tokens([str(path)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"trianer": "p"}, "there is no `trianer` to map"),
        ({"trainer": "p", "trainer_prob": "p"}, "are both mapped"),
        ({"trainer": "p", "inference_prob": "q"}, "`trainer` holds log-probabilities"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_an_error(
    tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    path = write_csv(tmp_path, TABLE)
    with pytest.raises(UsageError, match=message):
        open_tokens([str(path)], columns=columns)


def test_text_where_numbers_should_be_is_an_error_that_names_the_row(tmp_path: Path) -> None:
    columns = {"trainer": [-0.5, "low"], "inference": [-0.25, -1.0]}
    path = write_jsonl(tmp_path, columns)
    with pytest.raises(UsageError, match=r"line 2: column `trainer` \(trainer\) holds `'low'`"):
        list(open_tokens([str(path)]).chunks())
    path = write_csv(tmp_path, columns)
    with pytest.raises(UsageError, match=r"line 3: column `trainer` \(trainer\) holds `low`"):
        list(open_tokens([str(path)]).chunks())
    path = write_parquet(tmp_path, {"trainer": ["low"], "inference": [-1.0]})
    with pytest.raises(UsageError, match=r"column `trainer` \(trainer\) has type string"):
        open_tokens([str(path)])


def test_torn_lines_of_tables_are_counted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, {"trainer": [-0.5], "inference": [-0.25]})
    path.write_text(path.read_text() + '{"trainer":-0.')
    source = open_tokens([str(path)])
    assert len(read_all(source)) == 1
    assert source.files()[0].num_bad_lines == 1
    path = write_csv(tmp_path, {"trainer": [-0.5], "inference": [-0.25]})
    path.write_text(path.read_text() + "-0.5")
    source = open_tokens([str(path)])
    assert len(read_all(source)) == 1
    assert source.files()[0].num_bad_lines == 1
    assert source.problems() == (f"`{path}`: 1 line is no record (line 3)",)


def test_a_sequence_that_goes_on_after_others_is_an_error(tmp_path: Path) -> None:
    columns = {"trainer": [-0.5] * 3, "inference": [-0.25] * 3, "sequence": ["a", "b", "a"]}
    path = write_parquet(tmp_path, columns)
    with pytest.raises(UsageError, match="row 3: the sequence of column `sequence` goes on after"):
        list(open_tokens([str(path)]).chunks())


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npz"
    objects = np.array([-0.5, None], dtype=object)
    np.savez(path, allow_pickle=True, trainer=objects, inference=np.array([-0.5, -0.5]))
    with pytest.raises(UsageError, match="holds Python objects, which are never read"):
        open_tokens([str(path)])


def test_a_two_dimensional_array_has_a_row_per_sequence(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npz"
    values = -np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    np.savez(path, trainer=values, inference=values)
    tokens = read_all(open_tokens([str(path)]))
    assert tokens.sequences is not None
    assert tokens.trainer_logprobs.tolist() == [-1, -2, -3, -4, -5, -6]
    assert tokens.sequences.tolist() == [0, 0, 0, 1, 1, 1]


def test_large_files_come_in_chunks_with_sequences_going_on(tmp_path: Path) -> None:
    count = 3 * CHUNK_TOKENS + 17
    generator = np.random.default_rng(0)
    values = -generator.exponential(size=count).astype(np.float32)
    ids = np.arange(count) // 1000
    path = tmp_path / "tokens.parquet"
    pq.write_table(pa.table({"trainer": values, "inference": values, "sequence": ids}), path)
    source = open_tokens([str(path)])
    chunks = list(source.chunks())
    assert [len(chunk) for chunk in chunks] == [CHUNK_TOKENS] * 3 + [17]
    assert np.array_equal(np.concatenate([chunk.trainer_logprobs for chunk in chunks]), values)
    found = [chunk.sequences for chunk in chunks if chunk.sequences is not None]
    assert np.array_equal(np.concatenate(found), ids)
    assert source.num_tokens == count
    assert source.decimals is None


def test_tokens_without_advantage_are_left_out_where_others_have_one(tmp_path: Path) -> None:
    columns = {"trainer": [-0.5, -1.0], "inference": [-0.25, -1.0], "advantage": [0.5, None]}
    source = open_tokens([str(write_parquet(tmp_path, columns))])
    assert len(read_all(source)) == 1
    assert source.files()[0].excluded == {"no advantage": 1}


def test_a_column_that_only_some_files_have_is_not_used(tmp_path: Path) -> None:
    first = write_parquet(tmp_path, {"trainer": [-0.5], "inference": [-0.25], "step": [1]})
    second = write_csv(tmp_path, {"trainer": [-1.0], "inference": [-0.25]})
    source = open_tokens([str(first), str(second)])
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == [-0.5, -1.0]
    assert tokens.steps is None
    assert source.problems() == ("some of the files lack steps: not used",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.bin", b"\0\1\2", "is a binary file of no kind"),
        ("a.jsonl", b"[1, 2]\n", "holds no record on a line of its own"),
        ("a.csv", b"trainer,inference\n", "holds no token that counts"),
        ("a.parquet", b"PAR1 but no more", "can't be read as Parquet"),
        ("a.npz", b"PK\x03\x04 but no more", "can't be read as NPZ"),
    ],
)
def test_a_file_of_another_kind_is_an_error(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        list(open_tokens([str(path)]).chunks())
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_an_archive_without_the_end_of_an_array_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npz"
    np.savez(path, trainer=-np.ones(1000), inference=-np.ones(1000))
    with zipfile.ZipFile(path) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in whole.items():
            archive.writestr(name, content[:-8])
    with pytest.raises(UsageError, match="an array ends early"):
        list(open_tokens([str(path)]).chunks())


def test_json_without_a_line_end_at_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    rows = [{"trainer": -0.5, "inference": -0.25}, {"trainer": -1.0, "inference": -0.5}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert len(read_all(open_tokens([str(path)]))) == 2


def test_tokens_and_sequences_in_one_file_are_an_error(tmp_path: Path) -> None:
    columns = {"trainer": [[-0.5], -1.0], "inference": [[-0.25], -1.0]}
    path = write_jsonl(tmp_path, columns)
    with pytest.raises(UsageError, match=r"line 2: column `trainer` \(trainer\) holds `-1.0`"):
        list(open_tokens([str(path)]).chunks())


def test_whole_numbers_written_as_floats_are_steps(tmp_path: Path) -> None:
    columns = {"trainer": [-0.5], "inference": [-0.25], "step": [2.0]}
    for write in (write_csv, write_parquet):
        tokens = read_all(open_tokens([str(write(tmp_path, columns))]))
        assert tokens.steps is not None
        assert tokens.steps.tolist() == [2]
    path = write_csv(tmp_path, {**columns, "step": [2.5]})
    with pytest.raises(UsageError, match=r"column `step` \(step\) doesn't hold whole numbers"):
        list(open_tokens([str(path)]).chunks())


def test_a_whole_number_that_no_float_holds_is_an_error(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, {"trainer": [-1.0, -(10**400)], "inference": [-1.0, -1.0]})
    with pytest.raises(UsageError, match=r"line 2: column `trainer` \(trainer\) holds"):
        open_tokens([str(path)])


@pytest.mark.parametrize(
    ("trainer", "sequence", "message", "hint"),
    [
        (np.zeros((2, 2, 2)), None, "array `trainer` (trainer) has 3 dimensions", "[tokens]"),
        (np.zeros(2, complex), None, "array `trainer` (trainer) holds complex128", "real numbers"),
        (np.zeros(2), np.zeros(2), "array `sequence` (sequence) holds float64", "whole numbers"),
    ],
)
def test_an_array_of_another_kind_is_an_error_that_says_what_is_wanted(
    tmp_path: Path, trainer: Any, sequence: Any, message: str, hint: str
) -> None:
    columns = {"trainer": trainer, "inference": np.zeros(trainer.shape)}
    path = write_npz(tmp_path, columns if sequence is None else {**columns, "sequence": sequence})
    with pytest.raises(UsageError) as caught:
        open_tokens([str(path)])
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_header_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_bytes(b"trainer,inference,caf\xe9\n-1,-1,0\n")
    with pytest.raises(UsageError, match="no line of column names"):
        open_tokens([str(tmp_path / "tokens.csv")])


@pytest.mark.parametrize(("type", "named"), [("float16", "float16"), ("float32", "")])
def test_log_probabilities_of_16_bits_are_named(tmp_path: Path, type: str, named: str) -> None:
    values = -np.random.default_rng(0).exponential(size=40)
    np.savez(tmp_path / "tokens.npz", trainer=values.astype(type), inference=values.astype(type))
    problems = open_tokens([str(tmp_path / "tokens.npz")]).problems()
    assert [problem.split()[3] for problem in problems] == ([named] if named else [])


def test_log_probabilities_of_bfloat16_are_named(tmp_path: Path) -> None:
    bits = (-np.random.default_rng(0).exponential(size=40).astype(np.float32)).view(np.uint32)
    values = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    np.savez(tmp_path / "tokens.npz", trainer=values, inference=values)
    [problem] = open_tokens([str(tmp_path / "tokens.npz")]).problems()
    assert "all log-probabilities are bfloat16 numbers" in problem
