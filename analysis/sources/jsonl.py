"""JSON lines: one object per line, with a step; rows of a step are merged by key.

Trainers write the same few layouts of a line over and over: such lines are read by their layout
(`analysis.sources.layouts`), all others by `json.loads`. Both ways give the same cells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from analysis.sources.interface import IntArray, MetricsFile, SeriesBuilder, Wanted
from analysis.sources.layouts import Layout, Row, joined, make_layout

__all__ = ["Row", "read_json_rows", "read_jsonl"]

_MAX_LAYOUTS = 32
_MAX_COUNTED = 256
_FIRST_TRY, _LAST_TRY = 3, 10  # Of the rows with the same keys and texts.
_LONGEST_TEXT = 200
_MAX_SUCCESSORS = 3
_MOSTLY = 0.8  # Of the times that a layout was found.


def read_jsonl(path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile:
    """Return the rows of `path`. A line that is no JSON object is counted, wherever it stands."""
    return read_json_rows(path, "jsonl", wanted=wanted, step_key=step_key, clean=lambda row: row)


def read_json_rows(
    path: Path,
    kind: str,
    *,
    wanted: Wanted,
    step_key: str,
    clean: Callable[[Row], Row],
    block_bytes: int = 1 << 20,
) -> MetricsFile:
    """Read `path` line by line; `clean` may take keys out of a row before it is kept.

    `clean` may also rename keys. What it does may depend on the keys of a row and on values that
    are no numbers: it isn't called for every row. Memory is bounded by the wanted values,
    `block_bytes` and the longest line. The hash covers exactly the bytes that were parsed, so that
    a file that a trainer is still appending to has a true one, too.
    """
    lines = _Lines(SeriesBuilder(wanted), step_key, clean)
    with path.open("rb") as file:
        blocks = _Blocks(file, block_bytes)
        for block, colons in blocks:
            lines.add(block, colons)
    return lines.builder.build(
        path, kind, size_bytes=blocks.size_bytes, sha256=blocks.digest.hexdigest()
    )


class _Blocks:
    """The content of a file in blocks of whole lines; the last line may lack its end."""

    def __init__(self, file: BinaryIO, block_bytes: int) -> None:
        self.size_bytes = 0
        self.digest = hashlib.sha256()
        self._file = file
        self._block_bytes = block_bytes

    def __iter__(self) -> Iterator[tuple[bytes, IntArray]]:
        """Yield each block, and where it has colons, with one more number at the end."""
        # The next block is read and hashed while this one is parsed.
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._next)
            while (found := coming.result())[0]:
                coming = pool.submit(self._next)
                yield found

    def _next(self) -> tuple[bytes, IntArray]:
        # The layouts show in a few lines: the first blocks are small.
        is_first = 4 * self.size_bytes < self._block_bytes
        block = self._file.read(self._block_bytes // 16 + 1 if is_first else self._block_bytes)
        if block and not block.endswith(b"\n"):
            block += self._file.readline()
        self.digest.update(block)
        self.size_bytes += len(block)
        is_colon = np.frombuffer(block, dtype=np.uint8) == ord(":")
        return block, np.append(np.flatnonzero(is_colon), len(block))


class _Lines:
    """Takes blocks of lines and adds their rows to a builder."""

    def __init__(self, builder: SeriesBuilder, step_key: str, clean: Callable[[Row], Row]) -> None:
        self.builder = builder
        self._step_key = step_key
        self._clean = clean
        self._number = 0
        self._layouts: list[Layout] = []
        self._long: Layout | None = None
        self._head: Layout | None = None
        self._last: Layout | None = None
        self._num_seen: dict[tuple[object, ...], int] = {}

    def add(self, block: bytes, colons: IntArray) -> None:
        """Add the rows of a block of whole lines; `colons` as for `Layout.flush`."""
        num_known = len(self._layouts)
        position, number, last = 0, self._number, self._last
        num_colons = 0  # up to `position`
        order: list[Layout] = []
        while position < len(block):
            number += 1
            found = None
            for layout in last.successors if last is not None else ():
                found = layout.match(block, position)
                if found is not None:
                    last = layout
                    break
            if found is None:
                last, found = self._find(block, position, last)
            if found is None or last is None:
                end = block.find(b"\n", position) + 1 or len(block)
                self._add_line(block[position:end], number)
                num_colons += block.count(b":", position, end)
            else:
                end = found.end()
                last.found += (end, number, num_colons)
                num_colons += last.num_colons
                number += len(last.lines) - 1
                order.append(last)
            position = end
        self._number, self._last = number, last
        for layout in self._all():
            layout.flush(block, colons, self.builder, self._step_key)
        if self._long is None and len(self._layouts) == num_known:
            self._join(_usual_sequence(order))

    def _join(self, usual: Sequence[Layout]) -> None:
        """From now on, look for these layouts, in this order, all at once first."""
        if len(usual) < 2:
            return
        self._head, self._long = usual[0], joined(usual)
        for layout in self._layouts:
            layout.successors = ()

    def _all(self) -> list[Layout]:
        return self._layouts if self._long is None else [self._long, *self._layouts]

    def _find(
        self, block: bytes, position: int, last: Layout | None
    ) -> tuple[Layout | None, re.Match[bytes] | None]:
        """Return what is at `position`, and remember that it came after `last`.

        Where nothing is, `last` stays the last layout.
        """
        for layout in self._all():
            if found := layout.match(block, position):
                # The long one has to be tried first: its head alone would match in its place.
                after = self._long if layout is self._head else layout
                if last is not None and after is not None and after not in last.successors:
                    last.successors = (after, *last.successors[: _MAX_SUCCESSORS - 1])
                return layout, found
        return last, None

    def _add_line(self, line: bytes, number: int) -> None:
        if not line.strip():
            return
        row = _parse_line(line)
        if row is None:
            self.builder.add_bad_line(number)
            return
        self.builder.add_row(self._clean(row), step_key=self._step_key, number=number)
        if len(self._layouts) < _MAX_LAYOUTS and self._is_worth_a_layout(row):
            layout = make_layout(line, row, self._clean, self._step_key, self.builder.is_wanted)
            if layout and all(layout.pattern != other.pattern for other in self._layouts):
                self._layouts.append(layout)

    def _is_worth_a_layout(self, row: Row) -> bool:
        """Whether lines like this one have come a few times: to make a layout takes a while."""
        others = [value for value in row.values() if type(value) not in (float, int)]
        if any(isinstance(value, (dict, list)) for value in others):
            return False
        if any(isinstance(value, str) and len(value) > _LONGEST_TEXT for value in others):
            return False
        seen = (*row, *others)
        if seen not in self._num_seen and len(self._num_seen) >= _MAX_COUNTED:
            return False
        count = self._num_seen[seen] = self._num_seen.get(seen, 0) + 1
        return _FIRST_TRY <= count <= _LAST_TRY


def _usual_sequence(order: Sequence[Layout]) -> list[Layout]:
    """Return layouts each of which mostly comes after the one before, and that are most lines."""
    num_found = Counter(order)
    usual = {
        layout: successor
        for (layout, successor), count in Counter(pairwise(order)).items()
        if count >= _MOSTLY * num_found[layout]
    }
    sequences: list[list[Layout]] = [[]]
    for start in num_found:
        sequence, seen = [start], {start}
        while (after := usual.get(sequence[-1])) is not None and after not in seen:
            sequence.append(after)
            seen.add(after)
        sequences.append(sequence)
    return max(sequences, key=lambda one: len(one) * min((num_found[x] for x in one), default=0))


def _parse_line(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
