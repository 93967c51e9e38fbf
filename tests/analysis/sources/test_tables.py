"""Tables written by hand, as people export them: stand-ins for files of real runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.sources.columns import UNDERSCORE_STEP, choose_columns, guess_framework
from analysis.sources.interface import NO_ATTEMPT, SourceRun
from analysis.sources.locate import open_source
from harness.errors import UsageError

MAPPING = {"step": "iteration", "mismatch_kl": "kl", "time": "wall"}


def write_table(path: Path, columns: Mapping[str, list[Any]]) -> str:
    """Write the columns in the format that the suffix says; returns the path as typed."""
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(columns)), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def read(source: str | Path, columns: Mapping[str, str] | None = None) -> SourceRun:
    return open_source(str(source), wanted=lambda key: True, columns=columns or {})


every_format = pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])


@every_format
def test_step_and_time_are_mapped_and_metrics_keep_their_names(tmp_path: Path, suffix: str) -> None:
    source = write_table(
        tmp_path / f"ipo{suffix}",
        {"iteration": [1, 2], "kl": [0.25, 0.5], "wall": [10.0, 20.0], "step": [7, 8]},
    )
    run = open_source(source, wanted=lambda key: False, columns=MAPPING)
    [file] = run.files
    assert run.label == "ipo"
    assert run.problems == ()
    assert file.series.keys() == {"kl"}
    assert file.series["kl"].steps.tolist() == [1, 2]
    assert file.series["kl"].times.tolist() == [10.0, 20.0]
    assert file.series["kl"].attempts.tolist() == [NO_ATTEMPT, NO_ATTEMPT]
    assert file.keys == {"kl", "step"}


@every_format
def test_attempts_are_mapped(tmp_path: Path, suffix: str) -> None:
    source = write_table(
        tmp_path / f"t{suffix}", {"step": [1, 1], "try": [1, 2], "kl": [0.5, 0.25]}
    )
    [file] = read(source, {"attempt": "try"}).files
    assert file.row_attempts.tolist() == [1, 2]
    assert file.keys == {"kl"}


@every_format
def test_a_mapped_column_that_is_missing_is_named_with_the_nearest(
    tmp_path: Path, suffix: str
) -> None:
    source = write_table(tmp_path / f"t{suffix}", {"step": [1], "k3_kl": [0.5]})
    with pytest.raises(UsageError) as caught:
        read(source, {"mismatch_kl": "kl3_kl"})
    expected = f"`{source}` has no column `kl3_kl`, which `mismatch_kl` is mapped to"
    assert caught.value.message == expected
    assert caught.value.hint == "nearest: `k3_kl`"


@every_format
def test_a_mapped_step_that_is_missing_is_named(tmp_path: Path, suffix: str) -> None:
    source = write_table(tmp_path / f"t{suffix}", {"step": [1], "kl": [0.5]})
    with pytest.raises(UsageError, match="has no column `iter`, which `step` is mapped to"):
        read(source, {"step": "iter"})


@every_format
def test_without_a_step_column_the_columns_are_listed(tmp_path: Path, suffix: str) -> None:
    source = write_table(tmp_path / f"t{suffix}", {"round": [1], "kl": [0.5]})
    with pytest.raises(UsageError, match="has no step column") as caught:
        read(source)
    assert caught.value.hint == "map one, as in `step=NAME`; its columns: `round`, `kl`"


@every_format
def test_the_underscored_step_of_wandb_is_used_with_a_warning(tmp_path: Path, suffix: str) -> None:
    source = write_table(
        tmp_path / f"t{suffix}", {"_step": [5, 10], "kl": [1, 2], "_timestamp": [7.0, 8.0]}
    )
    run = read(source)
    assert run.problems == (UNDERSCORE_STEP,)
    assert run.files[0].row_steps.tolist() == [5, 10]
    assert run.files[0].series["kl"].times.tolist() == [7.0, 8.0]
    assert read(source, {"step": "_step"}).problems == ()


@every_format
def test_rows_without_a_step_are_named(tmp_path: Path, suffix: str) -> None:
    columns = {"step": [1.0, 1.5, 2.0], "entropy": [0.1, 0.2, 0.3]}
    run = read(write_table(tmp_path / f"run{suffix}", columns))
    assert run.problems == ("1 of 3 rows have no whole number as `step`: they are left out",)
    assert run.files[0].series["entropy"].values.tolist() == [0.1, 0.3]


@every_format
def test_the_hash_is_of_the_whole_file(tmp_path: Path, suffix: str) -> None:
    source = write_table(tmp_path / f"t{suffix}", {"step": [1], "kl": [0.5]})
    content = Path(source).read_bytes()
    provenance = read(source).files[0].provenance
    assert provenance.sha256 == hashlib.sha256(content).hexdigest()
    assert provenance.size_bytes == len(content)


@every_format
def test_an_empty_file_has_no_rows(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"t{suffix}").touch()
    run = read(tmp_path / f"t{suffix}", MAPPING)
    assert run.files[0].provenance.num_rows == 0
    assert run.files[0].series == {}
    assert run.files[0].provenance.problem.startswith("no readable" if "pa" in suffix else "")


@every_format
def test_keys_of_any_script_are_kept(tmp_path: Path, suffix: str) -> None:
    source = write_table(tmp_path / f"t{suffix}", {"step": [1], "perplexité/平均\u2028x": [0.5]})
    assert read(source).files[0].series.keys() == {"perplexité/平均\u2028x"}


@pytest.mark.parametrize(
    ("available", "step"),
    [
        (["global_step", "training_step"], "training_step"),
        (["_step", "trainer/global_step"], "trainer/global_step"),
        (["training/global_step", "loss"], "training/global_step"),
        (["global_step", "step"], "step"),
    ],
)
def test_the_step_column_is_guessed(available: list[str], step: str) -> None:
    assert choose_columns(Path("t"), available, {}).step == step


def test_parquet_columns_of_every_numeric_type_count(tmp_path: Path) -> None:
    table = {
        "step": pa.array([1.0, 2.0, 2.5, None]),
        "decimal": pa.array([Decimal("0.25"), None, None, None], pa.decimal128(5, 2)),
        "half": pa.array(np.array([0.5, 1.5, 2, 2], dtype=np.float16)),
        "text": pa.array(["1e-3", "NaN", "x", "Infinity"]),
        "coded": pa.array(["7", "8", "9", "9"]).dictionary_encode(),
        "flag": pa.array([True, False, True, True]),
        "name": pa.array(["ipo", "ipo", "ipo", "ipo"]),
        "list": pa.array([[1], [2], [3], [3]]),
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    [file] = read(tmp_path / "t.parquet").files
    assert file.series.keys() == {"decimal", "half", "text", "coded"}
    assert file.series["decimal"].steps.tolist() == [1]
    assert file.series["half"].values.tolist() == [0.5, 1.5]
    assert file.series["text"].values[0] == 1e-3
    assert np.isnan(file.series["text"].values[1])
    assert file.series["coded"].values.tolist() == [7.0, 8.0]
    assert file.provenance.num_rows == 4
    assert file.provenance.num_rows_without_step == 2


def test_parquet_tells_null_from_nan(tmp_path: Path) -> None:
    source = write_table(
        tmp_path / "t.parquet", {"step": [1, 2, 3], "kl": [0.5, None, float("nan")]}
    )
    [file] = read(source).files
    assert file.series["kl"].steps.tolist() == [1, 3]
    assert np.isnan(file.series["kl"].values[1])


def test_parquet_reads_only_what_is_wanted_but_lists_numeric_columns(tmp_path: Path) -> None:
    source = write_table(tmp_path / "t.parquet", {"step": [1], "kl": [0.5], "other": [2]})
    [file] = open_source(source, wanted=lambda key: key == "kl").files
    assert file.series.keys() == {"kl"}
    assert file.keys == {"kl", "other"}


def test_parquet_times_may_be_timestamps(tmp_path: Path) -> None:
    when = datetime(2026, 8, 1, 12, tzinfo=UTC)
    source = write_table(
        tmp_path / "t.parquet", {"step": [1, 2], "time": [when, None], "kl": [1.0, 2.0]}
    )
    times = read(source).files[0].series["kl"].times
    assert times[0] == when.timestamp()
    assert np.isnan(times[1])


def test_truncated_parquet_says_so(tmp_path: Path) -> None:
    source = write_table(tmp_path / "t.parquet", {"step": [1, 2], "kl": [0.5, 1.0]})
    path = Path(source)
    path.write_bytes(path.read_bytes()[:-20])
    problem = read(source).files[0].provenance.problem
    assert problem.startswith("no readable Parquet file: ")
    assert "\n" not in problem


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_csv_may_be_separated_otherwise(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(delimiter.join(["step", "kl", "note"]) + "\n" + delimiter.join("12x") + "\n")
    assert read(path).files[0].series["kl"].values.tolist() == [2.0]


def test_csv_is_separated_by_what_sets_its_step_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('step,"a;b;c"\n1,2\n')
    assert read(path).files[0].series["a;b;c"].values.tolist() == [2.0]


def test_csv_names_the_line_that_it_cannot_read_on_from(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,kl\n1,2\n2," + "9" * 200_000 + "\n")
    problem = read(path).files[0].provenance.problem
    assert problem == "line 3: field larger than field limit (131072)"


def test_csv_names_the_line_with_a_quote_that_is_not_closed(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text('step,kl\n1,0.5\n"2,0.5\n3,0.5\n')
    [file] = read(path).files
    assert file.provenance.bad_lines == (3,)
    assert file.series["kl"].steps.tolist() == [1]


def test_csv_with_a_column_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,kl,kl\n1,2,3\n")
    run = read(path)
    assert run.files[0].series["kl"].values.tolist() == [3.0]
    assert run.problems == ("the header names `kl` several times: the last column counts",)


def test_csv_with_a_bom_finds_its_step(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfstep,kl\r\n1,2\r\n")
    assert read(path).files[0].series["kl"].values.tolist() == [2.0]


def test_strings_and_nonfinite_words_are_numbers_in_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"step": 3, "x": "NaN"}\n{"step": "4", "x": NaN}\n{"step": 2, "x": "Infinity"}\n'
        '{"step": 5, "x": null}\n{"step": 5, "x": "1e-3"}\n{"step": 6, "x"'
    )
    [file] = read(path).files
    assert file.series["x"].steps.tolist() == [3, 4, 2, 5, 5]
    assert file.series["x"].values[2] == np.inf
    assert file.series["x"].values[4] == 1e-3
    assert file.provenance.bad_lines == (6,)


@pytest.mark.parametrize(
    ("key", "framework"),
    [
        ("mismatch_kl/all/mean", "prime_rl"),
        ("train/swe/all/agent/reward/mean", "prime_rl"),
        ("rollout_corr/k3_kl", "verl"),
        ("actor/pg_clipfrac", "verl"),
        ("sampling/importance_sampling_ratio/max", "trl"),
        ("train/mis_k3_kl", "slime"),
        ("rollout/raw_reward", "slime"),
        ("ppo_actor/update/grad_norm", "areal"),
        ("val/rho_drop_frac", "open_instruct"),
        ("policy/policy_entropy", "skyrl"),
        ("vllm_kl", "openrlhf"),
        ("loss", ""),
    ],
)
def test_the_framework_is_guessed_from_its_keys(key: str, framework: str) -> None:
    assert guess_framework([key, "reward"]) == framework


def test_a_framework_that_logs_keys_of_two_is_the_one_with_telltales() -> None:
    assert guess_framework(["policy/clipfrac_avg", "objective/kl"]) == "open_instruct"
