"""curves.parquet: every logged value of every run, for whoever wants to draw it another way."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.results import Results


def render_curves(results: Results) -> bytes:
    """Return the long table of `analysis.table` as Parquet, compressed with zstd.

    Columns, rows and their order are the table's; text columns are plain strings. Values that are
    not finite stay what they are; a time that a row doesn't have is null. The same table gives the
    same bytes with one version of the library.
    """
    table = results.sweep.table
    columns = {str(name): _array(str(name), table[name]) for name in table.columns}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


def _array(name: str, column: pd.Series[Any]) -> pa.Array:
    if isinstance(column.dtype, pd.CategoricalDtype):
        # By its codes, as the table is long and has few different names.
        names = pa.array([str(each) for each in column.cat.categories], pa.string())
        codes = pa.array(column.cat.codes.to_numpy(np.int32))
        return pa.DictionaryArray.from_arrays(codes, names).cast(pa.string())
    values = column.to_numpy()
    if values.dtype == object:
        return pa.array([str(value) for value in values], pa.string())
    return pa.array(values, mask=np.isnan(values) if name == "time" else None)
