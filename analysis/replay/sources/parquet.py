"""Parquet files with one row per token or per sequence, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.replay.sources.arrow import ArrowTokens, check_types, is_list_type
from analysis.replay.sources.blocks import Block, Tally, sift
from analysis.replay.sources.columns import Roles, choose_roles
from analysis.replay.sources.source import refuse_probabilities
from analysis.replay.tokens import CHUNK_TOKENS
from harness.errors import UsageError

MAGIC = b"PAR1"

_PEEKED_TOKENS = 1 << 13
_BUFFER_BYTES = 1 << 20
"""Read ahead in a column; without a buffer, all of a row group would be held."""


@dataclass(frozen=True)
class ParquetPart:
    """A `Part`: a Parquet file of any origin."""

    path: Path
    format: str
    size_bytes: int
    num_tokens: int
    roles: Roles

    @property
    def probabilities(self) -> bool:
        return self.roles.probabilities

    def blocks(self, tally: Tally) -> Iterator[Block]:
        yield from self._blocks(tally, CHUNK_TOKENS)

    def peek(self) -> Block | None:
        return next(self._blocks(Tally(), _PEEKED_TOKENS), None)

    def _blocks(self, tally: Tally, num_tokens: int) -> Iterator[Block]:
        import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)

        tokens = ArrowTokens(self.path, self.roles)
        is_first = True
        try:
            with open_parquet(self.path) as file:
                per_row = max(1, self.num_tokens // max(1, file.metadata.num_rows))
                batches = file.iter_batches(
                    batch_size=max(1, num_tokens // per_row),
                    columns=list(dict.fromkeys(self.roles.columns.values())),
                    use_threads=False,
                )
                for batch in batches:
                    raw = tokens.tokens(batch)
                    if is_first and not self.probabilities:
                        refuse_probabilities(self.path, raw)
                    is_first = False
                    yield sift(raw, tally, probabilities=self.probabilities)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, error) from error


def open_parquet(path: Path) -> Any:
    """Open the file for reading in batches. Raises ArrowException and OSError."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import, and only needed for this format)

    return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def parquet_part(
    path: Path, columns: Mapping[str, str], probabilities: bool | None, *, format: str = "parquet"
) -> tuple[ParquetPart, Mapping[bytes, bytes]]:
    """Return the file as a part, and its metadata.

    Raises:
        UsageError: the file can't be read, or lacks a column.
    """
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)

    try:
        with open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            roles = choose_roles(path, schema.names, columns, probabilities)
            for role, column in roles.columns.items():
                if schema.names.count(column) > 1:
                    raise UsageError(
                        f"`{path}` has several columns `{column}` ({role})",
                        "give them different names",
                    )
            roles = check_types(path, schema, roles)
            trainer = roles.columns["trainer"]
            num_tokens = metadata.num_rows
            if is_list_type(schema.field(trainer).type):
                num_tokens = _count_values(metadata, trainer)
        size_bytes = path.stat().st_size
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error
    part = ParquetPart(path, format, size_bytes, num_tokens, roles)
    return part, dict(schema.metadata or {})


def read_metadata(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a Parquet file.

    Raises:
        UsageError: the file can't be read.
    """
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)

    try:
        with open_parquet(path) as file:
            return dict(file.schema_arrow.metadata or {})
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> UsageError:
    reason = " ".join(str(error).split())
    return UsageError(
        f"`{path}` can't be read as Parquet: {reason}",
        "it may be cut short or still be written: copy it again, or leave it out",
    )


def _count_values(metadata: Any, name: str) -> int:
    total = 0
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        for place in range(columns.num_columns):
            column = columns.column(place)
            if column.path_in_schema.split(".")[0] == name:
                total += column.num_values
                break
    return total
