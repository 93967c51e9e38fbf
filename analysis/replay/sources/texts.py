"""JSON lines and CSV with one row per token, or JSON lines with one row per sequence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.replay.sources.arrow import ArrowTokens
from analysis.replay.sources.blocks import RawTokens, Tally
from analysis.replay.sources.columns import ROLES, Roles, choose_roles
from analysis.replay.sources.convert import ConvertedPart
from analysis.replay.sources.source import refuse_probabilities
from analysis.replay.tokens import CHUNK_TOKENS
from analysis.sources.contents import head_rows
from analysis.sources.csv_table import csv_header
from harness.errors import UsageError

_DELIMITERS = ",\t;"
_BOM = b"\xef\xbb\xbf"
_NULLS = ["", "null", "None", "NA"]
_BLOCK_BYTES = 4 << 20
_MAX_WHOLE = 1 << 1023
"""Whole numbers from here on may have no float."""
_CONVERSION = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion error.*invalid value '(.*)'"
)


def jsonl_part(
    path: Path, head: bytes, columns: Mapping[str, str], probabilities: bool | None
) -> ConvertedPart:
    """Return the JSON lines in `path`, whose first bytes are `head`, as a part.

    Raises:
        UsageError: a column is missing, or holds something else than numbers.
    """
    rows = head_rows(head)
    available = list(dict.fromkeys(key for row in rows for key in row))
    roles = choose_roles(path, available, columns, probabilities)
    roles = _fitting(path, rows, roles)
    return ConvertedPart(
        path=path,
        format="jsonl",
        files=(path,),
        reader=JsonlReader(path, roles, _has_lists(rows, roles)),
        options=_options(roles),
        probabilities=roles.probabilities,
        estimate=_estimate(path, head, rows, roles),
    )


def csv_part(
    path: Path, head: bytes, columns: Mapping[str, str], probabilities: bool | None
) -> ConvertedPart:
    """Return the CSV file `path`, whose first bytes are `head`, as a part.

    Raises:
        UsageError: a column is missing.
    """
    header = csv_header(head)
    if not header:
        raise UsageError(
            f"`{path}` has no line of column names that can be read", "write it as CSV in UTF-8"
        )
    roles = choose_roles(path, header, columns, probabilities)
    for role, column in roles.columns.items():
        if header.count(column) > 1:
            raise UsageError(
                f"`{path}` has {header.count(column)} columns `{column}` ({role})",
                "give them different names",
            )
    first = head.removeprefix(_BOM).split(b"\n", 1)[0].decode()
    delimiter = max(_DELIMITERS, key=first.count)
    num_lines = max(1, head.count(b"\n") - 1)
    per_line = max(1, (len(head) - len(first)) // num_lines)
    return ConvertedPart(
        path=path,
        format="csv",
        files=(path,),
        reader=CsvReader(path, roles, delimiter, tuple(header)),
        options={**_options(roles), "delimiter": delimiter},
        probabilities=roles.probabilities,
        estimate=path.stat().st_size // per_line,
    )


@dataclass(frozen=True)
class JsonlReader:
    """A `Reader`: a key that a row lacks is null there. All rows are tokens, or all sequences."""

    path: Path
    roles: Roles
    has_lists: bool

    def raw(self, tally: Tally) -> Iterator[RawTokens]:
        tokens = ArrowTokens(self.path, self.roles)
        is_first = True
        for rows, numbers in self._rows(tally):
            batch = self._batch(rows, numbers)
            raw = tokens.tokens(batch)
            if is_first and not self.roles.probabilities:
                refuse_probabilities(self.path, raw)
            is_first = False
            yield raw

    def _rows(self, tally: Tally) -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
        """Yield rows and the numbers of their lines, about CHUNK_TOKENS at a time."""
        trainer = self.roles.columns["trainer"]
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        num_tokens = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(_BOM) if number == 1 else line
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    tally.bad_line(number)
                    continue
                rows.append(row)
                numbers.append(number)
                values = row.get(trainer)
                num_tokens += len(values) if isinstance(values, list) else 1
                if num_tokens >= CHUNK_TOKENS:
                    yield rows, numbers
                    rows, numbers, num_tokens = [], [], 0
        if rows:
            yield rows, numbers

    def _batch(self, rows: list[dict[str, Any]], numbers: list[int]) -> Any:
        import pyarrow as pa  # noqa: PLC0415 (slow to import)

        arrays, names = [], []
        is_list = self.has_lists
        for role, column in self.roles.columns.items():
            cells = [row.get(column) for row in rows]
            for cell, number in zip(cells, numbers, strict=True):
                if not _fits(role, cell, is_list):
                    raise UsageError(
                        f"`{self.path}`: line {number}: column `{column}` ({role}) holds "
                        f"{_shown(cell)}",
                        f"it must hold {_wanted(role, is_list)}",
                    )
            arrays.append(_array(pa, role, cells, is_list and role in ("trainer", "inference")))
            names.append(column)
        unique = dict(zip(names, arrays, strict=True))
        return pa.RecordBatch.from_arrays(list(unique.values()), names=list(unique))


def _fitting(path: Path, rows: list[dict[str, Any]], roles: Roles) -> Roles:
    """Return `roles` without columns that nobody mapped and that hold something else."""
    is_list = _has_lists(rows, roles)
    for role, column in dict(roles.columns).items():
        if role in ("trainer", "inference") or role in roles.mapped:
            continue
        if any(not _fits(role, row.get(column), is_list) for row in rows):
            roles = roles.without(role)
    return roles


def _has_lists(rows: list[dict[str, Any]], roles: Roles) -> bool:
    return any(isinstance(row.get(roles.columns["trainer"]), list) for row in rows)


def _fits(role: str, cell: Any, is_list: bool) -> bool:
    if cell is None:
        return True
    if isinstance(cell, list):
        listed = role not in ("sequence", "step")
        return is_list and listed and all(_fits_one(role, one) for one in cell)
    may_be_one = role not in ("trainer", "inference") or not is_list
    return may_be_one and _fits_one(role, cell)


def _fits_one(role: str, cell: Any) -> bool:
    kind = type(cell)
    if cell is None:
        return True
    if role in ("loss_mask", "is_masked"):
        return kind is bool or (kind is int and cell in (0, 1))
    if role == "sequence":
        return kind in (int, str) and (kind is str or abs(cell) < 1 << 62)
    if role == "step":
        return kind is int and abs(cell) < 1 << 62
    return kind is float or (kind is int and abs(cell) < _MAX_WHOLE)


def _wanted(role: str, is_list: bool) -> str:
    if role in ("loss_mask", "is_masked"):
        return "true and false"
    if role in ("sequence", "step"):
        return "a whole number" if role == "step" else "a whole number or a name"
    return "a list of numbers" if is_list else "a number"


def _shown(cell: Any) -> str:
    text = repr(cell)
    return f"`{text if len(text) <= 40 else text[:37] + '...'}`"


def _array(pa: Any, role: str, cells: list[Any], is_list: bool) -> Any:
    if role in ("loss_mask", "is_masked"):
        kind = pa.bool_()
        cells = [
            [None if one is None else bool(one) for one in cell]
            if isinstance(cell, list)
            else (None if cell is None else bool(cell))
            for cell in cells
        ]
    elif role == "step":
        kind = pa.int64()
    elif role == "sequence":
        is_text = any(isinstance(cell, str) for cell in cells)
        kind = pa.string() if is_text else pa.int64()
        cells = [None if one is None else str(one) for one in cells] if is_text else cells
    else:
        kind = pa.float64()
        cells = [
            [None if one is None else float(one) for one in cell]
            if isinstance(cell, list)
            else (None if cell is None else float(cell))
            for cell in cells
        ]
    has_list = is_list or any(isinstance(cell, list) for cell in cells)
    if has_list:
        # A value beside lists can only fit a sequence of one token; else the lengths differ.
        cells = [cell if cell is None or isinstance(cell, list) else [cell] for cell in cells]
    return pa.array(cells, type=pa.list_(kind) if has_list else kind)


@dataclass(frozen=True)
class CsvReader:
    """A `Reader`: empty cells and `null` are null; lines with other numbers of cells are bad."""

    path: Path
    roles: Roles
    delimiter: str
    header: tuple[str, ...]

    def raw(self, tally: Tally) -> Iterator[RawTokens]:
        import pyarrow as pa  # noqa: PLC0415 (slow to import)

        tokens = ArrowTokens(self.path, self.roles)
        is_first = True
        try:
            with self._open(tally) as reader:
                for batch in reader:
                    raw = tokens.tokens(batch)
                    if is_first and not self.roles.probabilities:
                        refuse_probabilities(self.path, raw)
                    is_first = False
                    yield raw
        except pa.ArrowException as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> UsageError:
        reason = " ".join(str(error).split())
        found = _CONVERSION.search(reason)
        roles = {column: role for role, column in self.roles.columns.items()}
        name = self.header[int(found[1])] if found and int(found[1]) < len(self.header) else ""
        if found is None or name not in roles:
            return UsageError(f"`{self.path}` can't be read as CSV: {reason}", "mend that line")
        return UsageError(
            f"`{self.path}`: line {found[2]}: column `{name}` ({roles[name]}) holds `{found[3]}`",
            f"it must hold {_wanted(roles[name], False)}",
        )

    def _open(self, tally: Tally) -> Any:
        import pyarrow as pa  # noqa: PLC0415 (slow to import)
        import pyarrow.csv as pc  # noqa: PLC0415 (the same)

        def skip(row: Any) -> str:
            tally.bad_line(row.number or 0)
            return "skip"

        kinds = {role: pa.float64() for role in ROLES}
        kinds |= {"loss_mask": pa.bool_(), "is_masked": pa.bool_()}
        kinds |= {"sequence": pa.string()}
        columns = self.roles.columns
        return pc.open_csv(
            self.path,
            read_options=pc.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pc.ParseOptions(
                delimiter=self.delimiter, invalid_row_handler=skip, newlines_in_values=False
            ),
            convert_options=pc.ConvertOptions(
                column_types={column: kinds[role] for role, column in columns.items()},
                include_columns=list(dict.fromkeys(columns.values())),
                null_values=_NULLS,
                true_values=["true", "True", "TRUE", "1", "1.0"],
                false_values=["false", "False", "FALSE", "0", "0.0"],
                strings_can_be_null=True,
            ),
        )


def _options(roles: Roles) -> dict[str, Any]:
    return {"columns": dict(roles.columns), "probabilities": roles.probabilities}


def _estimate(path: Path, head: bytes, rows: list[dict[str, Any]], roles: Roles) -> int:
    trainer = roles.columns["trainer"]
    found = [row.get(trainer) for row in rows]
    num_tokens = sum(len(one) if isinstance(one, list) else 1 for one in found)
    return path.stat().st_size * num_tokens // max(1, len(head))
