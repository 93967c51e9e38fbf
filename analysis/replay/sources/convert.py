"""Records that are slow to parse, kept as Parquet: the next question needn't parse them again.

An entry holds the tokens of a file that count, and in its metadata what was left out. It counts
for the file with the same path, size, time, inode and completion marker, read in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from analysis.replay.sources.blocks import Block, RawTokens, Tally, sift
from analysis.replay.sources.parquet import open_parquet
from analysis.replay.tokens import CHUNK_TOKENS
from analysis.sources.cache import cache_dir

VERSION = 2
"""To be raised whenever a reader makes something else of a file than before."""

MAX_TOTAL_BYTES = 20 * 10**9

_MIN_AGE_S = 2.0
_METADATA_KEY = b"ablation-harness-tokens"
_ENTRY = re.compile(r"tokens-[0-9a-f]{32}\.parquet")
_COLUMNS = ("trainer", "inference", "advantages", "sequences", "steps", "stored_masks")
_TYPES = {"sequences": np.int64, "steps": np.int64, "stored_masks": np.int8}


class Reader(Protocol):
    """How the records of one kind are parsed; what depends on the file alone."""

    def raw(self, tally: Tally) -> Iterator[RawTokens]:
        """Yield the tokens of the file, about CHUNK_TOKENS at a time, counting bad lines.

        Raises:
            StartAgainError: the end of the file says that tokens from before don't count.
            UsageError: the file isn't what it was taken for.
        """
        ...


class StartAgainError(Exception):
    """The file must be read once more, by `reader`."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader


@dataclass(frozen=True)
class ConvertedPart:
    """A `Part`: files that are parsed once, and read from Parquet from then on.

    Attributes:
        files: all that the tokens come from, with the completion marker where there is one.
        options: all else that the result depends on.
        whole_reason: the reason why none of the tokens count; empty where they do.
        estimate: about how many tokens there are, before the file was parsed.
    """

    path: Path
    format: str
    files: tuple[Path, ...]
    reader: Reader
    options: Mapping[str, Any] = field(default_factory=dict)
    probabilities: bool = False
    whole_reason: str = ""
    estimate: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files if path.exists())

    @property
    def num_tokens(self) -> int | None:
        if self.whole_reason:
            return 0
        entry = self._entry()
        return self.estimate if entry is None else _num_rows(entry)

    def blocks(self, tally: Tally) -> Iterator[Block]:
        entry = self._entry()
        if entry is not None:
            yield from self._stored(entry, tally)
            return
        folder = self._settled_folder()
        if folder is not None:
            entry = self._convert_into(folder)
        if entry is not None:
            yield from self._stored(entry, tally)
            _prune(entry.parent)
            return
        with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
            temporary = Path(scratch) / "tokens.parquet"
            self._convert(temporary)
            yield from self._stored(temporary, tally)

    def peek(self) -> Block | None:
        if self.whole_reason:
            return None
        entry = self._entry()
        if entry is not None:
            return next(_read(entry), None)
        blocks = (
            sift(raw, Tally(), probabilities=self.probabilities) for raw in self.reader.raw(Tally())
        )
        return next((block for block in blocks if len(block)), None)

    def _identity(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "format": self.format,
            "options": dict(self.options),
            "files": [_identity(path) for path in self.files],
        }

    def _name(self) -> str:
        named = [os.path.realpath(self.path), self.format, dict(self.options)]
        digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
        return f"tokens-{digest[:32]}.parquet"

    def _entry(self) -> Path | None:
        """Return the entry for these very files, where there is one."""
        folder = cache_dir()
        if folder is None:
            return None
        entry = folder / self._name()
        header = _header(entry)
        is_same = header is not None and header.get("identity") == self._identity()
        return entry if is_same else None

    def _settled_folder(self) -> Path | None:
        """Return where an entry may be kept: not of a file that may change without a trace."""
        newest = max((path.stat().st_mtime for path in self.files if path.exists()), default=0.0)
        return cache_dir() if time.time() - newest >= _MIN_AGE_S else None

    def _convert_into(self, folder: Path) -> Path | None:
        entry = folder / self._name()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(".tmp", f"{entry.stem}.", folder)
        except OSError:
            # Nothing that is wrong with the cache is an error.
            return None
        os.close(handle)
        try:
            self._convert(Path(temporary))
            os.replace(temporary, entry)
        except BaseException as error:
            Path(temporary).unlink(missing_ok=True)
            if isinstance(error, OSError):
                return None
            raise
        return entry

    def _convert(self, target: Path) -> None:
        identity = self._identity()
        reader = self.reader
        while True:
            tally = Tally()
            try:
                with _Writer(target) as writer:
                    for raw in reader.raw(tally):
                        writer.add(sift(raw, tally, probabilities=self.probabilities))
                    writer.finish({"identity": identity, "tally": _tally_record(tally)})
                return
            except StartAgainError as again:
                reader = again.reader

    def _stored(self, entry: Path, tally: Tally) -> Iterator[Block]:
        header = _header(entry)
        record = header["tally"] if header is not None else {}
        tally.excluded.update(Counter(record.get("excluded", {})))
        tally.num_bad_lines += record.get("num_bad_lines", 0)
        tally.bad_lines.extend(record.get("bad_lines", []))
        if self.whole_reason:
            tally.exclude(self.whole_reason, _num_rows(entry))
            return
        tally.num_clamped += record.get("num_clamped", 0)
        yield from _read(entry)


class _Writer:
    """Writes blocks to a Parquet file. The first block says which columns there are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._waiting: list[Block] = []
        self._num_waiting = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, block: Block) -> None:
        self._waiting.append(block)
        self._num_waiting += len(block)
        if self._num_waiting >= CHUNK_TOKENS:
            self._flush()

    def finish(self, header: Mapping[str, Any]) -> None:
        self._flush()
        self._writer.add_key_value_metadata({_METADATA_KEY: json.dumps(header).encode()})

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 (slow to import)
        import pyarrow.parquet as pq  # noqa: PLC0415 (the same)

        empty = Block(np.zeros(0, np.float32), np.zeros(0, np.float32))
        waiting = self._waiting or [empty]
        columns = {}
        for name in _COLUMNS:
            parts = [getattr(block, name) for block in waiting]
            if parts[0] is not None:
                columns[name] = pa.array(np.concatenate(parts))
        if self._writer is None:
            schema = pa.schema([(name, column.type) for name, column in columns.items()])
            floats = [name for name in columns if name not in _TYPES]
            self._writer = pq.ParquetWriter(
                self._path,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in columns if name in _TYPES],
                column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
                write_statistics=False,
                store_schema=False,
            )
        elif not self._waiting:
            return
        self._writer.write_table(pa.table(columns))
        self._waiting, self._num_waiting = [], 0


def _read(entry: Path) -> Iterator[Block]:
    with open_parquet(entry) as file:
        for batch in file.iter_batches(batch_size=CHUNK_TOKENS, use_threads=False):
            columns = {
                name: np.asarray(batch.column(place).to_numpy(zero_copy_only=False)).astype(
                    _TYPES.get(name, np.float32), copy=False
                )
                for place, name in enumerate(batch.schema.names)
            }
            yield Block(**columns)


def _header(entry: Path) -> dict[str, Any] | None:
    """Return what the entry says of itself; None where it is none, or is damaged."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)
    import pyarrow.parquet as pq  # noqa: PLC0415 (the same)

    if not entry.is_file():
        return None
    try:
        metadata = pq.read_metadata(entry).metadata or {}
        header = json.loads(metadata[_METADATA_KEY])
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return None
    return header if isinstance(header, dict) else None


def _num_rows(entry: Path) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import)

    return int(pq.read_metadata(entry).num_rows)


def _identity(path: Path) -> list[Any]:
    real = os.path.realpath(path)
    try:
        status = os.stat(real)  # noqa: PTH116 (the path is text already)
    except OSError:
        return [real, None, None, None]
    return [real, status.st_size, status.st_mtime_ns, status.st_ino]


def _tally_record(tally: Tally) -> dict[str, Any]:
    return {
        "excluded": dict(tally.excluded),
        "num_bad_lines": tally.num_bad_lines,
        "bad_lines": tally.bad_lines,
        "num_clamped": tally.num_clamped,
    }


def _prune(folder: Path, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
    entries: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _ENTRY.fullmatch(path.name):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries)[:-1]:
            if total <= max_total_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
