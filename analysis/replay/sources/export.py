"""prime-rl's token export: `token_exports/step_N/rank_R.jsonl`, one sequence per line.

A step is whole once the file `STABLE` stands beside its files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.replay.sources.blocks import (
    SUPERSEDED,
    UNMARKED,
    RawTokens,
    Tally,
)
from analysis.replay.sources.convert import ConvertedPart, StartAgainError
from analysis.replay.sources.export_lines import (
    REQUIRED,
    Columns,
    OddLinesError,
    Record,
    parse,
    parse_slowly,
    take_apart,
)
from analysis.sources.contents import distinct, entries

FORMAT = "prime-rl token export"
FOLDER = "token_exports"
MARKER = "STABLE"

_STEP = re.compile(r"step_([0-9]+)")
_RANK = re.compile(r"rank_([0-9]+)\.jsonl")
_BATCH_BYTES = 1 << 20
"""Parsed at once: what stays in the processor's cache is several times faster."""
_SHORTEST = 64
"""Bytes; no record is shorter."""
_BYTES_PER_TOKEN = 209


def is_export_row(row: dict[str, Any]) -> bool:
    """Whether a JSON object is a record of the token export."""
    return all(isinstance(row.get(name), list) for name in REQUIRED) and "micro_step" in row


def export_files(folder: Path) -> list[Path]:
    """Return the files of the steps under `folder`: a run, its `token_exports`, or one step.

    A run whose trainer serves several has one folder of exports for each of them.
    """
    if folder.name != FOLDER and _STEP.fullmatch(folder.name):
        return _files_of(folder)
    roots = [folder] if folder.name == FOLDER else [folder / FOLDER]
    if folder.name != FOLDER:
        roots += [entry / FOLDER for entry in entries(folder) if entry.is_dir()]
    found: list[Path] = []
    for root in distinct(roots):
        steps = [
            (match, entry) for entry in entries(root) if (match := _STEP.fullmatch(entry.name))
        ]
        for _, step in sorted((int(match[1]), entry) for match, entry in steps):
            found += _files_of(step)
    return found


def _files_of(step: Path) -> list[Path]:
    ranks = [(match, entry) for entry in entries(step) if (match := _RANK.fullmatch(entry.name))]
    return [entry for _, entry in sorted((int(match[1]), entry) for match, entry in ranks)]


def export_part(path: Path, *, unstable_ok: bool) -> ConvertedPart:
    """Return one file of an export as a part; without the step's marker none of it counts.

    A file outside a step's folder has no marker, and counts.
    """
    marker = path.parent / MARKER
    is_in_step = _STEP.fullmatch(path.parent.name) is not None
    is_left = is_in_step and not unstable_ok and not marker.exists()
    files = (path, marker) if is_in_step else (path,)
    return ConvertedPart(
        path=path,
        format=FORMAT,
        files=files,
        reader=ExportReader(path),
        whole_reason=UNMARKED if is_left else "",
        estimate=path.stat().st_size // _BYTES_PER_TOKEN,
    )


@dataclass(frozen=True)
class ExportReader:
    """A `Reader`: the file at `path`, of which the lines `superseded` (from 1) don't count."""

    path: Path
    superseded: frozenset[int] = frozenset()

    def raw(self, tally: Tally) -> Iterator[RawTokens]:
        """Yield the tokens. Of a sequence that was written twice only the last one counts.

        Raises:
            StartAgainError: earlier lines turned out to be superseded.
        """
        last: dict[tuple[Any, ...], int] = {}
        again: set[int] = set()
        sequence = 0
        first = 1
        for text, spans in _batches(self.path):
            for sequences in _parsed(text, spans, first, tally):
                for key, number in zip(sequences.keys, sequences.lines, strict=True):
                    if key and key in last:
                        again.add(last[key])
                    last[key] = number
                yield _tokens(sequences, sequence, self.superseded)
                sequence += len(sequences.lines)
            first += len(spans)
        if again - self.superseded:
            raise StartAgainError(replace(self, superseded=frozenset(again)))


@dataclass(frozen=True)
class _Sequences:
    """Records that were parsed, with their places in the file."""

    keys: tuple[tuple[Any, ...], ...]
    lines: tuple[int, ...]
    steps: tuple[int, ...]
    columns: Columns


_Spans = list[tuple[int, int]]


def _batches(path: Path) -> Iterator[tuple[bytes, _Spans]]:
    """Yield whole lines as one text, and start and end of each of them."""
    with path.open("rb") as file:
        while text := file.read(_BATCH_BYTES):
            # Much faster than reading line by line.
            text += file.readline()
            yield text, _spans(text)


def _spans(text: bytes) -> _Spans:
    spans = []
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        spans.append((start, end))
        start = end + 1
    return spans


def _parsed(text: bytes, spans: _Spans, first: int, tally: Tally) -> Iterator[_Sequences]:
    """Yield the records of `text`, whose first line has the number `first`."""
    usual: list[Record] = []
    filled = [
        (number, start, end)
        for number, (start, end) in enumerate(spans, first)
        if end - start >= _SHORTEST or text[start:end].strip()
    ]
    with contextlib.suppress(OddLinesError):
        usual = [take_apart(text, start, end) for _, start, end in filled]
    try:
        columns = parse(usual) if usual else None
    except OddLinesError:
        columns = None
    if columns is not None:
        keys = tuple(record.key for record in usual)
        steps = tuple(record.step for record in usual)
        yield _Sequences(keys, tuple(number for number, _, _ in filled), steps, columns)
        return
    # One by one, so that the order stays and it is known which line is odd.
    for number, start, end in filled:
        found = parse_slowly(text[start:end])
        if found is None:
            tally.bad_line(number)
        else:
            key, step, of_line = found
            yield _Sequences((key,), (number,), (step,), of_line)


def _tokens(sequences: _Sequences, first: int, superseded: frozenset[int]) -> RawTokens:
    columns = sequences.columns
    lengths = columns.lengths
    count = len(lengths)
    lacking = {}
    if superseded:
        is_hit = np.array([line in superseded for line in sequences.lines], dtype=np.bool_)
        lacking[SUPERSEDED] = np.repeat(is_hit, lengths)
    return RawTokens(
        columns.trainer,
        columns.inference,
        # JSON has no NaN: the trainer writes null for every number that isn't finite.
        np.isnan(columns.trainer) | np.isnan(columns.inference),
        loss_mask=columns.loss_mask & (columns.rl_weights != 0),
        advantages=columns.advantages,
        sequences=np.repeat(np.arange(first, first + count, dtype=np.int64), lengths),
        steps=np.repeat(np.array(sequences.steps, dtype=np.int64), lengths),
        stored_masks=columns.stored_masks,
        lacking=lacking,
    )
