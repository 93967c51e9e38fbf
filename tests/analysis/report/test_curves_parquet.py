from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq

from analysis import load_sweep
from analysis.report.curves_parquet import render_curves
from analysis.results import analyze
from tests.analysis.conftest import Behaviour, MakeSweep


def test_the_file_is_the_long_table_with_what_was_superseded(sweep_maker: MakeSweep) -> None:
    results = analyze(load_sweep(sweep_maker({"ipo": Behaviour(resumes_at=50)}, seeds=(0, 1))))
    table = results.sweep.table
    found = pq.read_table(io.BytesIO(render_curves(results))).to_pandas()
    assert list(found.columns) == list(table.columns)
    assert len(found) == len(table)
    for name in ("arm", "metric", "flag"):
        assert found[name].tolist() == table[name].astype(str).tolist()
    for name in ("seed", "step", "attempt"):
        assert found[name].dtype == "int64"
        assert found[name].tolist() == table[name].tolist()
    np.testing.assert_array_equal(found["value"], table["value"])
    assert (found["flag"] == "superseded").any()


def test_values_that_are_not_finite_stay_what_they_are(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour()}, seeds=(0,), max_steps=30)
    path = root / "runs" / "ipo" / "seed_0" / "trainer" / "metrics.jsonl"
    text = path.read_text()
    text = text.replace('"entropy/all/mean": ', '"entropy/all/mean": NaN, "x": ', 1)
    path.write_text(text.replace('"optim/grad_norm": ', '"optim/grad_norm": Infinity, "y": ', 1))
    table = pq.read_table(io.BytesIO(render_curves(analyze(load_sweep(root)))))
    values = table["value"].combine_chunks()
    assert values.null_count == 0
    numbers = values.to_numpy()
    assert np.isnan(numbers).sum() == 1
    assert np.isposinf(numbers).sum() == 1


def test_the_same_table_gives_the_same_bytes_in_zstd(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour()}, seeds=(0,), max_steps=30)
    first = render_curves(analyze(load_sweep(root)))
    assert render_curves(analyze(load_sweep(root))) == first
    column = pq.read_metadata(io.BytesIO(first)).row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert pq.read_schema(io.BytesIO(first)).metadata is None


def test_a_sweep_without_values_gives_a_file_without_rows(sweep_maker: MakeSweep) -> None:
    results = analyze(load_sweep(sweep_maker({"ipo": Behaviour(is_started=False)})))
    table = pq.read_table(io.BytesIO(render_curves(results)))
    assert table.num_rows == 0
    assert table.column_names == list(results.sweep.table.columns)
