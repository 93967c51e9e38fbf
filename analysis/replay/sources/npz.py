"""NPZ archives: one array per column, [tokens] or [sequences, tokens]. Nothing is unpickled."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from analysis.replay.sources.blocks import NO_DECISION, Block, RawTokens, Tally, sift
from analysis.replay.sources.columns import Roles, choose_roles
from analysis.replay.sources.numbering import Numbering, SplitSequenceError
from analysis.replay.sources.source import refuse_probabilities
from analysis.replay.tokens import CHUNK_TOKENS
from harness.errors import UsageError

MAGIC = b"PK\x03\x04"

_PEEKED_TOKENS = 1 << 13
_KINDS = {"loss_mask": "biu", "is_masked": "biu", "sequence": "iu", "step": "iu"}
_WANTED = {
    "loss_mask": "true and false",
    "is_masked": "true and false",
    "sequence": "whole numbers",
    "step": "whole numbers",
}


@dataclass(frozen=True)
class NpzPart:
    """A `Part`: an archive whose arrays are read side by side."""

    path: Path
    format: str
    size_bytes: int
    shape: tuple[int, ...]
    roles: Roles

    @property
    def num_tokens(self) -> int:
        return int(np.prod(self.shape))

    @property
    def probabilities(self) -> bool:
        return self.roles.probabilities

    def blocks(self, tally: Tally) -> Iterator[Block]:
        yield from self._blocks(tally, CHUNK_TOKENS)

    def peek(self) -> Block | None:
        return next(self._blocks(Tally(), _PEEKED_TOKENS), None)

    def _blocks(self, tally: Tally, chunk: int) -> Iterator[Block]:
        numbering = Numbering()
        names = self.roles.columns
        try:
            with zipfile.ZipFile(self.path) as archive, contextlib.ExitStack() as stack:
                streams = {}
                for role, name in names.items():
                    stream = stack.enter_context(archive.open(f"{name}.npy"))
                    streams[role] = (stream, _read_header(stream)[1])
                for start in range(0, self.num_tokens, chunk):
                    count = min(chunk, self.num_tokens - start)
                    arrays = {
                        role: _take(stream, dtype, count)
                        for role, (stream, dtype) in streams.items()
                    }
                    raw = self._tokens(arrays, start, numbering)
                    if start == 0 and not self.probabilities:
                        refuse_probabilities(self.path, raw)
                    yield sift(raw, tally, probabilities=self.probabilities)
        except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
            raise _unreadable(self.path, error) from error

    def _tokens(
        self, arrays: Mapping[str, npt.NDArray[Any]], start: int, numbering: Numbering
    ) -> RawTokens:
        steps = _as_integers(arrays.get("step"))
        ids = _as_integers(arrays.get("sequence"))
        if len(self.shape) == 2:
            count = len(arrays["trainer"])
            sequences = np.arange(start, start + count, dtype=np.int64) // self.shape[1]
        elif ids is not None:
            try:
                sequences = numbering.number(ids, steps)
            except SplitSequenceError as error:
                raise UsageError(
                    f"`{self.path}`: row {error.row + 1}: the sequence of column "
                    f"`{self.roles.columns['sequence']}` goes on after other sequences",
                    "sort the rows by step and sequence",
                ) from None
        mask, stored = arrays.get("loss_mask"), arrays.get("is_masked")
        has_sequences = len(self.shape) == 2 or ids is not None
        advantages = arrays.get("advantage")
        return RawTokens(
            _as_floats(arrays["trainer"]),
            _as_floats(arrays["inference"]),
            loss_mask=None if mask is None else mask != 0,
            advantages=None if advantages is None else _as_floats(advantages),
            sequences=sequences if has_sequences else None,
            steps=steps,
            # A negative number says that there is no decision.
            stored_masks=None
            if stored is None
            else np.where(stored < 0, NO_DECISION, stored != 0).astype(np.int8),
        )


def npz_part(path: Path, columns: Mapping[str, str], probabilities: bool | None) -> NpzPart:
    """Return the archive `path` as a part.

    Raises:
        UsageError: it can't be read, or an array is missing, of another shape, or no numbers.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            names = [name.removesuffix(".npy") for name in members]
            roles = choose_roles(path, names, columns, probabilities)
            headers = {}
            for role, name in roles.columns.items():
                with archive.open(f"{name}.npy") as stream:
                    headers[role] = _read_header(stream)
        size_bytes = path.stat().st_size
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from error
    shape = headers["trainer"][0]
    for role, (found, dtype) in headers.items():
        _check(path, role, roles.columns[role], found, dtype, shape)
    return NpzPart(path, "npz", size_bytes, shape, roles)


def _check(
    path: Path,
    role: str,
    name: str,
    found: tuple[int, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> None:
    expected = _KINDS.get(role, "fiu")
    if dtype.kind not in expected:
        what = "Python objects, which are never read" if dtype.hasobject else str(dtype)
        raise UsageError(
            f"`{path}`: array `{name}` ({role}) holds {what}",
            f"store it as {_WANTED.get(role, 'real numbers')}",
        )
    if len(shape) not in (1, 2):
        raise UsageError(
            f"`{path}`: array `{name}` ({role}) has {len(found)} dimensions",
            "all arrays must be [tokens], or all [sequences, tokens]",
        )
    if found != shape:
        raise UsageError(
            f"`{path}`: array `{name}` ({role}) has shape {found}, the trainer's has {shape}",
            "all arrays must be [tokens], or all [sequences, tokens]",
        )


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of the array whose values follow. Raises ValueError."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if is_fortran and len(shape) > 1:
        raise ValueError("an array in Fortran order; store it by `numpy.ascontiguousarray`")
    return shape, dtype


def _take(stream: IO[bytes], dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    content = stream.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise EOFError("an array ends early")
    return np.frombuffer(content, dtype=dtype)


def _as_integers(array: npt.NDArray[Any] | None) -> npt.NDArray[np.int64] | None:
    return None if array is None else array.astype(np.int64)


def _as_floats(array: npt.NDArray[Any]) -> npt.NDArray[np.floating[Any]]:
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _unreadable(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"`{path}` can't be read as NPZ: {' '.join(str(error).split())}",
        "write it by `numpy.savez`",
    )
