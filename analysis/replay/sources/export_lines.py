"""Lines of prime-rl's token export: only the lists that are needed are parsed.

A line is taken apart at its brackets. What is left without the content of its lists is small and
is parsed as JSON, which tells the keys; the needed lists are parsed for many lines at once. All
values are those that `json.loads` comes to.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.replay.sources.blocks import NO_DECISION, FloatArray, Int8Array
from analysis.replay.tokens import BoolArray, IntArray

REQUIRED = ("trainer_logprobs", "inference_logprobs", "loss_mask")
OPTIONAL = ("advantages", "is_masked", "rl_weights")

_MAX_STEP = 1 << 62
_OF_NUMBERS = (float, int, type(None))
_KINDS = dict.fromkeys(("loss_mask", "is_masked"), (bool, type(None)))


class OddLinesError(Exception):
    """Some of the lines aren't as they usually are: they must be parsed one by one."""


@dataclass(frozen=True)
class Record:
    """One line: its scalars, and the text of those of its lists that are needed."""

    key: tuple[Any, ...]
    step: int
    lists: dict[str, bytes]


@dataclass(frozen=True)
class Columns:
    """Tokens of many lines, [num_tokens]; a number is NaN where it is null."""

    lengths: IntArray
    trainer: FloatArray
    inference: FloatArray
    loss_mask: BoolArray
    advantages: FloatArray
    rl_weights: FloatArray
    stored_masks: Int8Array


def take_apart(text: bytes, start: int, end: int) -> Record:
    """Return the record on the line from `start` to `end` of `text`.

    Raises:
        OddLinesError: it can't be taken apart at its brackets, or is no record.
    """
    spans: list[tuple[int, int]] = []
    between = []
    position = start
    while (opening := text.find(b"[", position, end)) >= 0:
        closing = text.find(b"]", opening, end)
        if closing < 0 or text.find(b"[", opening + 1, closing) >= 0:
            raise OddLinesError
        between.append(text[position:opening])
        spans.append((opening + 1, closing))
        position = closing
    if not spans:
        raise OddLinesError
    # What stands before the first list differs from line to line, the rest seldom does.
    try:
        record = json.loads(between[0] + b"[0]}")
    except (ValueError, RecursionError):
        raise OddLinesError from None
    record |= _keys(b"[".join([*between[1:], text[position:end]]))
    lists = {}
    for name in (*REQUIRED, *OPTIONAL):
        place_of = record.get(name)
        if isinstance(place_of, list) and len(place_of) == 1 and isinstance(place_of[0], int):
            first, last = spans[place_of[0]]
            lists[name] = text[first:last]
        elif name in REQUIRED or place_of is not None:
            raise OddLinesError
    step = record.get("step")
    if not _is_step(step):
        raise OddLinesError
    return Record(identity(record), step, lists)


@functools.lru_cache(maxsize=64)
def _keys(rest: bytes) -> dict[str, Any]:
    """Return what follows a record's first list, with the places of the lists instead of them.

    Raises:
        OddLinesError: it doesn't end a record.
    """
    pieces = rest.split(b"[")
    numbered = b"".join(b"%b[%d" % (piece, place) for place, piece in enumerate(pieces[:-1], 1))
    try:
        record = json.loads(b'{"":[0' + numbered + pieces[-1])
    except (ValueError, RecursionError):
        raise OddLinesError from None
    del record[""]
    return dict(record)


def identity(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what no two sequences of a run have in common; empty where the record lacks it."""
    names = ("step", "rank", "micro_step", "micro_sequence_idx", "export_sequence_idx")
    key = tuple(record.get(name) for name in names)
    return () if None in key else (*key, str(record.get("run_id")))


def parse(records: Sequence[Record]) -> Columns:
    """Return the tokens of all records.

    Raises:
        OddLinesError: a list holds something else than numbers, or their lengths differ.
    """
    masks = [record.lists["loss_mask"] for record in records]
    lengths = np.array([one.count(b",") + 1 if one else 0 for one in masks], dtype=np.int64)

    def of(name: str) -> list[bytes]:
        return [record.lists.get(name, b"") for record in records]

    return Columns(
        lengths,
        _numbers(of("trainer_logprobs"), lengths),
        _numbers(of("inference_logprobs"), lengths),
        _letters(masks, lengths) == ord("t"),
        _often_repeated(_numbers, of("advantages"), lengths),
        _often_repeated(_numbers, of("rl_weights"), lengths),
        _decisions(of("is_masked"), lengths),
    )


def _is_step(value: Any) -> bool:
    return type(value) is int and abs(value) < _MAX_STEP


def parse_slowly(line: bytes) -> tuple[tuple[Any, ...], int, Columns] | None:
    """Return identity, step and tokens of one line in the plainest way; None if it is no record."""
    try:
        record = json.loads(line)
        step = record["step"]
        lists = {name: record.get(name) for name in (*REQUIRED, *OPTIONAL)}
        length = len(lists["loss_mask"])
        if not _is_step(step) or any(type(lists[name]) is not list for name in REQUIRED):
            return None
        if any(one is not None and len(one) != length for one in lists.values()):
            return None
        given = {name: lists[name] or [None] * length for name in OPTIONAL}
        for name, values in {**lists, **given}.items():
            kinds = _KINDS.get(name, _OF_NUMBERS)
            if any(type(value) not in kinds for value in values):
                return None
        floats = {
            name: np.array(values, dtype=np.float64)
            for name, values in {**lists, **given}.items()
            if name not in ("loss_mask", "is_masked")
        }
        decisions = [NO_DECISION if one is None else int(one) for one in given["is_masked"]]
        columns = Columns(
            np.array([length], dtype=np.int64),
            floats["trainer_logprobs"],
            floats["inference_logprobs"],
            np.array([value is True for value in lists["loss_mask"]], dtype=np.bool_),
            floats["advantages"],
            floats["rl_weights"],
            np.array(decisions, dtype=np.int8),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return identity(record), step, columns


def _letters(contents: Sequence[bytes], lengths: IntArray) -> npt.NDArray[np.uint8]:
    """Return lists of true, false and null as one letter each."""
    text = b",".join([one for one in contents if one])
    short = text.replace(b"true", b"t").replace(b"false", b"f").replace(b"null", b"n")
    # Spaces after commas are as good as none.
    short = short.replace(b" ", b"")
    letters = short[::2]
    if short and len(short) % 2 == 0:
        raise OddLinesError
    if short[1::2].strip(b",") or letters.translate(None, b"tfn"):
        raise OddLinesError
    if len(letters) != int(lengths.sum()):
        raise OddLinesError
    return np.frombuffer(letters, dtype=np.uint8)


def _decisions(contents: Sequence[bytes], lengths: IntArray) -> Int8Array:
    for one, length in zip(contents, lengths.tolist(), strict=True):
        if one and one.count(b",") + 1 != length:
            raise OddLinesError
    letters = _often_repeated(_letters, contents, lengths)
    return np.where(letters == ord("n"), NO_DECISION, letters == ord("t")).astype(np.int8)


def _often_repeated(
    parse_all: Callable[[Sequence[bytes], IntArray], npt.NDArray[Any]],
    contents: Sequence[bytes],
    lengths: IntArray,
) -> npt.NDArray[Any]:
    """Return what `parse_all` makes of lists that often hold one value over and over.

    An absent list is one of nulls.
    """
    texts = []
    counts = []
    repeats = []
    for one, length in zip(contents, lengths.tolist(), strict=True):
        first = one.partition(b",")[0] if one else b"null"
        is_same = length > 0 and (not one or _is_all(one, first, length))
        texts.append(first if is_same else one)
        counts.append(1 if is_same else length)
        repeats.append(length if is_same else 1)
    per_list = np.array(counts, dtype=np.int64)
    values = parse_all(texts, per_list)
    return np.repeat(values, np.repeat(np.array(repeats, dtype=np.int64), per_list))


def _is_all(content: bytes, first: bytes, length: int) -> bool:
    is_long_enough = len(content) == length * (len(first) + 1) - 1
    return is_long_enough and content == (first + b",") * (length - 1) + first


def _numbers(contents: Sequence[bytes], lengths: IntArray) -> FloatArray:
    """Return the numbers of all lists, of which the lengths are known, as float64."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)
    import pyarrow.compute as pc  # noqa: PLC0415 (the same)

    text = b",".join([one for one in contents if one])
    # Beside digits, Arrow takes words that no list of a record holds.
    if any(letter in text for letter in (b"a", b"A", b"i", b"I", b"N")):
        raise OddLinesError
    if b"n" in text or b" " in text:
        contents = [one.replace(b"null", b"nan").replace(b" ", b"") for one in contents]
        text = b",".join([one for one in contents if one])
    total = int(lengths.sum())
    commas = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord(","))
    if len(commas) != max(0, total - 1):
        raise OddLinesError
    if not total:
        return np.zeros(0)
    # The list's own commas must be where the lengths say: one list may be short and another long.
    if len(contents) > 1:
        _check_ends(contents, lengths, commas)
    offsets = np.empty(total + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1:-1] = commas - np.arange(total - 1)
    digits = text.translate(None, b",")
    offsets[-1] = len(digits)
    strings = pa.StringArray.from_buffers(total, pa.py_buffer(offsets), pa.py_buffer(digits))
    try:
        return np.asarray(pc.cast(strings, pa.float64()).to_numpy())
    except pa.ArrowException:
        raise OddLinesError from None


def _check_ends(contents: Sequence[bytes], lengths: IntArray, commas: IntArray) -> None:
    """Raise OddLinesError where the commas between lists aren't where the lengths say."""
    sizes = np.array([len(one) for one in contents], dtype=np.int64)
    is_there = lengths > 0
    if ((sizes > 0) != is_there).any():
        raise OddLinesError
    ends = np.cumsum(sizes[is_there] + 1)[:-1] - 1
    places = np.cumsum(lengths[is_there])[:-1] - 1
    if not np.array_equal(commas[places], ends):
        raise OddLinesError
