"""What was read from metrics files, kept for the next report.

An entry holds the series of the keys that were wanted when it was written. It counts for the file
with the same path, size, time and inode, read as the same format, and is never unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.sources.interface import (
    FileProvenance,
    KeySeries,
    MetricsFile,
    Wanted,
    count_duplicates,
)

VERSION = 1
"""To be raised whenever a reader makes something else of a file than before."""

MAX_TOTAL_BYTES = 2 * 10**9

_MIN_AGE_S = 2.0
_ENTRY = re.compile(r"metrics-[0-9a-f]{32}\.(npz|[a-z0-9_]+\.tmp)")
_OFF = ("off", "")
_BY_KEY = ("steps", "values", "attempts", "times")
_IS_OFF: ContextVar[bool] = ContextVar("is_off", default=False)


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Within it nothing is taken from the cache and nothing is kept there."""
    token = _IS_OFF.set(True)
    try:
        yield
    finally:
        _IS_OFF.reset(token)


def cache_dir() -> Path | None:
    """Return the folder of the entries: `HARNESS_CACHE_DIR`, or one in the user's cache folder.

    None where `HARNESS_CACHE_DIR` is `off` or empty, where there is no home folder, and within
    `without_cache`.
    """
    if _IS_OFF.get():
        return None
    chosen = os.environ.get("HARNESS_CACHE_DIR")
    if chosen is not None:
        return None if chosen in _OFF else Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The specification of these folders has a relative path ignored.
    try:
        home = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    except RuntimeError:
        return None
    return home / "ablation-harness" / "metrics"


def cached(
    read: Callable[[], MetricsFile],
    path: Path,
    kind: str,
    *,
    step_key: str,
    wanted: Wanted,
    max_total_bytes: int = MAX_TOTAL_BYTES,
) -> MetricsFile:
    """Return what `read` makes of the file at `path`, from the cache where it is there.

    `kind` and `step_key` must tell apart all that the result depends on, beside the content of the
    file and the wanted keys.

    A file that was written in the last two seconds isn't cached: it may change once more without a
    change of its time. Nothing that is wrong with the cache is an error: an entry that is damaged,
    foreign, outdated or short of a wanted key is written anew, a folder that can't be written is
    left alone. Entries beyond `max_total_bytes` are removed, the oldest ones first.

    Raises:
        Exception: whatever `read` raises.
    """
    folder = cache_dir()
    identity = _identity(path, kind, step_key) if folder is not None else None
    if folder is None or identity is None:
        return read()
    name = hashlib.sha256(json.dumps([identity["path"], kind, step_key]).encode()).hexdigest()
    entry = folder / f"metrics-{name[:32]}.npz"
    found = _load(entry, identity, path, wanted)
    if found is not None:
        return found
    is_settled = time.time() - identity["mtime_ns"] / 1e9 >= _MIN_AGE_S
    file = read()
    is_whole = file.provenance.size_bytes == identity["size"] and not file.provenance.problem
    if is_settled and is_whole and _identity(path, kind, step_key) == identity:
        with contextlib.suppress(OSError):
            _save(entry, identity, file)
            _prune(folder, max_total_bytes)
    return file


def _identity(path: Path, kind: str, step_key: str) -> dict[str, Any] | None:
    """Return what an entry must agree on; None where `path` is no file."""
    try:
        real = os.path.realpath(path)
        status = Path(real).stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return {
        "version": VERSION,
        "path": real,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "format": kind,
        "step_key": step_key,
    }


def _load(entry: Path, identity: dict[str, Any], path: Path, wanted: Wanted) -> MetricsFile | None:
    try:
        with entry.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["identity"] != identity:
                return None
            lengths: dict[str, int] = header["series"]
            keys = frozenset(header["keys"])
            kept = {key for key in keys if wanted(key)}
            if not kept <= lengths.keys():
                return None
            ends = np.cumsum(list(lengths.values()), dtype=np.int64)
            columns = [_take(arrays, name) for name in _BY_KEY]
            row_steps, row_attempts = _take(arrays, "row_steps"), _take(arrays, "row_attempts")
            if any(len(column) != (ends[-1] if len(ends) else 0) for column in columns):
                return None
        parts = zip(*(np.split(column, ends[:-1]) for column in columns), strict=True)
        series = {
            key: KeySeries(*part)
            for key, part in zip(lengths, parts, strict=bool(lengths))
            if key in kept
        }
        provenance = _provenance(header["provenance"], path, series)
    except Exception:  # A damaged or foreign file may fail in any way; then there is no entry.
        return None
    return MetricsFile(provenance, series, keys, row_steps, row_attempts)


def _take(arrays: Any, name: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = arrays[name]
    is_float = name in ("values", "times")
    if array.ndim != 1 or array.dtype.kind != ("f" if is_float else "i"):
        raise ValueError(f"`{name}` is no list of numbers")
    return array.astype(np.float64 if is_float else np.int64)


def _provenance(
    content: dict[str, Any], path: Path, series: dict[str, KeySeries]
) -> FileProvenance:
    for one in fields(FileProvenance):
        expected = type(getattr(FileProvenance("", ""), one.name))
        if not isinstance(content[one.name], list if expected is tuple else expected):
            raise ValueError(f"`{one.name}` is none")
    provenance = FileProvenance(**content)
    return replace(
        provenance,
        path=str(path),
        bad_lines=tuple(provenance.bad_lines),
        num_duplicates=count_duplicates(series),
    )


def _save(entry: Path, identity: dict[str, Any], file: MetricsFile) -> None:
    header = {
        "identity": identity,
        "provenance": asdict(file.provenance),
        "keys": sorted(file.keys),
        "series": {key: len(one.steps) for key, one in file.series.items()},
    }
    columns = {
        name: np.concatenate([getattr(one, name) for one in file.series.values()] or [np.zeros(0)])
        for name in _BY_KEY
    }
    arrays: dict[str, Any] = {
        **columns,
        "row_steps": file.row_steps,
        "row_attempts": file.row_attempts,
    }
    for name in ("steps", "attempts", "row_steps", "row_attempts"):
        arrays[name] = _narrow(arrays[name].astype(np.int64))
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(".tmp", f"{entry.stem}.", entry.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            text = json.dumps(header).encode()
            np.savez(out, allow_pickle=False, header=np.frombuffer(text, dtype=np.uint8), **arrays)
        os.replace(temporary, entry)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _narrow(numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return `numbers` in the narrowest type that holds them: most are steps and attempts."""
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if not len(numbers) or (limits.min <= numbers.min() and numbers.max() <= limits.max):
            return numbers.astype(kind)
    return numbers


def _prune(folder: Path, max_total_bytes: int) -> None:
    entries: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        if _ENTRY.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= max_total_bytes:
            break
        path.unlink(missing_ok=True)
        total -= size
