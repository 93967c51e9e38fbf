"""Layouts of JSON lines: a line that comes over and over, with other numbers in it.

A layout is turned into a regular expression that matches such lines and no others. Where it
matches, the numbers that are wanted are taken out without parsing the rest; the cells are the same
as those that `json.loads` and `SeriesBuilder.add_row` would have come to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.sources.interface import (
    NO_ATTEMPT,
    FloatArray,
    IntArray,
    SeriesBuilder,
    Wanted,
    parse_step,
    parse_value,
)

Row = dict[str, Any]

# Without a limit, an integer might have more digits than `int` takes: such a line is bad.
# No text matches in two ways, so that a line that differs at its end alone takes no longer.
_NUMBER = rb"(?:-?+(?:0|[1-9][0-9]{0,299}+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|NaN|-?+Infinity)"
_COUNT = rb"(?:0|[1-9][0-9]{0,14}+)"  # Exact as a float, too.
_TEXT = rb'"(?:[^"\\\x00-\x1f]|\\.)*+"'
_PAIR = re.compile(
    rb"[{,][ \t\r]*+" + _TEXT + rb"[ \t\r]*+:[ \t\r]*+"
    rb"(?:(" + _NUMBER + rb")|" + _TEXT + rb"|null|true|false)[ \t\r]*+(?=[,}])"
)
_END = re.compile(rb"\}[ \t\r]*+\n")
_IS_COUNT = re.compile(_COUNT)


@dataclass(frozen=True)
class LineContent:
    """What a line of a layout holds beside numbers that nobody wants.

    Attributes:
        cells: place among the layout's numbers, and key, of each number that is kept.
        constants: wanted keys whose value is no number token, but means one (`null`, `"NaN"`).
        attempt, time: where `cells` has none.
    """

    has_step: bool
    cells: tuple[tuple[int, str], ...]
    constants: tuple[tuple[str, float], ...]
    attempt: int
    time: float


class Layout:
    """One or several lines in a row that differ from others of the layout in their numbers alone.

    A colon never is part of a number, so that colons alone tell where the numbers are, once a
    regular expression has found that the text is of this layout.

    Attributes:
        literals, numbers: text of the lines around their numbers, and patterns of those.
        lines: what each of the lines holds.
        pattern, match: the regular expression.
        successors: layouts that came after this one, to be tried first.
        num_colons: in the text of one match.
        found: end, number of the first line, and place of the first colon among the block's, of one
            match in the current block after another.
    """

    def __init__(
        self,
        literals: tuple[bytes, ...],
        numbers: tuple[bytes, ...],
        lines: tuple[LineContent, ...],
    ) -> None:
        self.literals = literals
        self.numbers = numbers
        self.lines = lines
        pairs = zip(literals, numbers, strict=False)
        parts = [part for literal, number in pairs for part in (re.escape(literal), number)]
        self.pattern = b"".join((*parts, re.escape(literals[-1])))
        self.match = re.compile(self.pattern).match
        self.successors: tuple[Layout, ...] = ()
        self.found: list[int] = []
        places = [place for line in lines for place, _ in line.cells]
        num_colons = np.cumsum([literal.count(b":") for literal in literals])
        self.num_colons = int(num_colons[-1])
        # A number starts after the last colon before it, and ends before the next one.
        self._colons = np.array(
            [[num_colons[place] - 1, num_colons[place]] for place in places], dtype=np.int64
        ).reshape(-1, 2)
        self._distances = np.array(
            [
                [
                    len(literals[place]) - literals[place].rfind(b":"),
                    -len(literals[place + 1].partition(b":")[0]),
                ]
                for place in places
            ],
            dtype=np.int64,
        ).reshape(-1, 2)
        is_last = bool(places) and places[-1] == len(numbers) - 1
        self._ends_with_last = is_last and b":" not in literals[-1]

    def flush(self, block: bytes, colons: IntArray, builder: SeriesBuilder, step_key: str) -> None:
        """Hand what was found in `block` to `builder`.

        Args:
            colons: where `block` has colons, and one more number.
        """
        if not self.found:
            return
        ends, numbers, first = np.array(self.found, dtype=np.int64).reshape(-1, 3).T
        self.found.clear()
        edges = colons[first[:, None, None] + self._colons]
        if self._ends_with_last:
            edges[:, -1, 1] = ends
        edges += self._distances
        columns = _to_floats(block, edges.reshape(-1, 2)).reshape(edges.shape[:2]).T.copy()
        done = 0
        for place, line in enumerate(self.lines):
            cells = dict(zip((key for _, key in line.cells), columns[done:], strict=False))
            done += len(line.cells)
            _add_lines(line, numbers + place, cells, builder, step_key)


def _add_lines(
    line: LineContent,
    numbers: IntArray,
    cells: dict[str, FloatArray],
    builder: SeriesBuilder,
    step_key: str,
) -> None:
    if not line.has_step:
        builder.add_rows_without_step(len(numbers))
        return
    none = np.zeros(len(numbers))
    steps = cells[step_key].astype(np.int64)
    attempts = cells.get("attempt", none + line.attempt).astype(np.int64)
    times = cells.get("time", none + line.time)
    values = [(k, column) for k, column in cells.items() if k not in (step_key, "attempt", "time")]
    values += [(key, none + value) for key, value in line.constants]
    builder.add_rows(numbers, steps, attempts, times, values)


def _to_floats(block: bytes, edges: IntArray) -> FloatArray:
    """Return what `json.loads` and `parse_value` make of number tokens, [num_tokens].

    Args:
        edges: where each token starts and ends in `block`, [num_tokens, 2], contiguous.
    """
    if not len(edges):
        return np.zeros(0)
    # Every second text is what lies between two tokens: it counts as missing, and isn't parsed.
    valid = pa.py_buffer(b"\x55" * (len(edges) // 4 + 1))
    buffers = [valid, pa.py_buffer(edges), pa.py_buffer(block)]
    texts = pa.Array.from_buffers(pa.large_string(), edges.size - 1, buffers)
    try:
        parsed = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)[::2]
        values: FloatArray = np.array(parsed, dtype=np.float64)
    except pa.ArrowInvalid:
        values = np.array([float(block[start:end]) for start, end in edges], dtype=np.float64)
    for place in np.flatnonzero((values == 0) & np.signbit(values)):
        # JSON's -0 is an int, which has one zero only; -0.0 is a float.
        if block[edges[place, 0] : edges[place, 1]] == b"-0":
            values[place] = 0.0
    return values


def joined(layouts: Sequence[Layout]) -> Layout:
    """Return the layout of lines of `layouts`, one after another."""
    literals: list[bytes] = [b""]
    numbers: list[bytes] = []
    lines: list[LineContent] = []
    for layout in layouts:
        for line in layout.lines:
            cells = tuple((len(numbers) + place, key) for place, key in line.cells)
            lines.append(replace(line, cells=cells))
        literals[-1] += layout.literals[0]
        literals += layout.literals[1:]
        numbers += layout.numbers
    return Layout(tuple(literals), tuple(numbers), tuple(lines))


def make_layout(
    line: bytes, row: Row, clean: Callable[[Row], Row], step_key: str, is_wanted: Wanted
) -> Layout | None:
    """Return the layout of `line`, which holds `row`.

    None where more than numbers may differ, or `clean` changes a number: nested values, a key
    twice, a step that isn't plain, a line without an end.
    """
    pairs = _pairs(line, row)
    if pairs is None:
        return None
    # What becomes of which number shows on numbers that can be told apart.
    probe = {
        key: place + 0.5 if pair[1] else row[key]
        for place, (key, pair) in enumerate(zip(row, pairs, strict=True))
    }
    sources = {id(value): key for key, value in probe.items() if isinstance(value, float)}
    names: dict[str, str] = {}
    others: Row = {}
    for key, value in clean(probe).items():
        source = sources.get(id(value))
        if source in names or (source is None and isinstance(value, float)):
            return None
        if source is None:
            others[key] = value
        else:
            names[source] = key
    own = (step_key, "attempt", "time")
    has_step = step_key in names.values()
    if not has_step and parse_step(others.get(step_key)) is not None:
        return None
    cells: list[tuple[int, str]] = []
    literals: list[bytes] = []
    numbers: list[bytes] = []
    position = 0
    for key, pair in zip(row, pairs, strict=True):
        if not pair[1]:
            continue
        literals.append(line[position : pair.start(1)])
        position = pair.end(1)
        name = names.get(key)
        is_count = name in (step_key, "attempt")
        if is_count and not _IS_COUNT.fullmatch(pair[1]):
            return None
        if has_step and name is not None and (name in own or is_wanted(name)):
            cells.append((len(numbers), name))
        numbers.append(_COUNT if is_count else _NUMBER)
    constants = [
        (key, parse_value(value))
        for key, value in others.items()
        if key not in own and is_wanted(key)
    ]
    attempt = parse_step(others.get("attempt"))
    time = parse_value(others.get("time"))
    content = LineContent(
        has_step=has_step,
        cells=tuple(cells),
        constants=tuple((key, value) for key, value in constants if value is not None),
        attempt=NO_ATTEMPT if attempt is None else attempt,
        time=math.nan if time is None else time,
    )
    return Layout((*literals, line[position:]), tuple(numbers), (content,))


def _pairs(line: bytes, row: Row) -> list[re.Match[bytes]] | None:
    """Return matches of the pairs of `line`, in order; None where it isn't flat and whole."""
    position = len(line) - len(line.lstrip(b" \t\r"))
    if line[position : position + 1] != b"{":
        return None
    pairs: list[re.Match[bytes]] = []
    while found := _PAIR.match(line, position):
        pairs.append(found)
        position = found.end()
    is_whole = _END.fullmatch(line, position) is not None
    return pairs if is_whole and len(pairs) == len(row) else None
