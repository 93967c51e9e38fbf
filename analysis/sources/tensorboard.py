"""Runs as TensorBoard's event files, read whole: `EventAccumulator` keeps a random sample.

The frames of a file are taken apart here, as the library's loaders end silently at a damaged one.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.sources.columns import guess_framework
from analysis.sources.contents import distinct, entries, read_head
from analysis.sources.interface import MetricsFile, SeriesBuilder, SourceRun, Wanted, empty_file
from analysis.sources.max_steps import max_steps_of
from harness.errors import UsageError

KIND = "tensorboard"

_MARK = "tfevents"
_NAMED_TIME = re.compile(r"tfevents\.(\d+)")
_MAX_DEPTH = 3
_MAX_LISTED = 8
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_HPARAMS_TAG = "_hparams_/session_start_info"
_HPARAM_KINDS = frozenset({"number_value", "string_value", "bool_value"})
_STEP = "step"

Row = dict[str, Any]


@dataclass
class _Events:
    """What one event file holds.

    Attributes:
        rows: values by tag, with `step` and `time`; events of a step that follow each other are
            one row.
        purges: (number of rows before it, step) of every restart that hides what was logged
            earlier from that step on.
        bad_records: numbers, counted from 1, of records that are cut off or damaged.
        started_at: wall time of the first event.
    """

    path: Path
    size_bytes: int = 0
    sha256: str = ""
    rows: list[Row] = field(default_factory=list)
    purges: list[tuple[int, int]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    bad_records: list[int] = field(default_factory=list)
    damage: str = ""
    problem: str = ""
    started_at: float = 0.0


def find_event_files(path: Path) -> list[Path]:
    """Return the event files of the run at `path`: itself, or those that lie in that folder."""
    if path.is_file():
        return [path]
    return distinct(p for p in entries(path) if _MARK in p.name and p.is_file())


def read_tensorboard(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run whose event files lie at `path`, or in the only folder below it with some.

    Every scalar is kept, NaN and infinities as well. A file that begins after the others ended and
    logs keys of theirs is another attempt. Where a restart says from which step on it hides what
    was logged before (`purge_step`), that is left out.

    Raises:
        UsageError: no event file is there, or several folders with some; or `tensorboard` is not
            installed.
    """
    files = find_event_files(path)
    inner = _inner_runs(path)
    if not files and len(inner) == 1:
        files = find_event_files(path / inner[0])
        inner = []
    if not files:
        if inner:
            raise UsageError(
                f"`{path}` holds {len(inner)} runs of TensorBoard: {_listed(inner)}",
                f"name one of them, as in `{path / inner[0]}`, or join those of one training "
                "with `+`",
            )
        raise UsageError(
            f"`{path}` holds no event file of TensorBoard",
            "name a folder with `events.out.tfevents.*` files",
        )
    parse = _load_parser()
    events = sorted((_read(file, parse) for file in files), key=_order)
    num_hidden = _purge(events)
    metrics = [_to_file(one, wanted) for one in events]
    config = next((one.config for one in reversed(events) if one.config), None)

    problems = [f"`{one.path.name}`: {one.damage}" for one in events if one.damage]
    if num_hidden:
        problems.append(f"values that a restart hid with its `purge_step`: {num_hidden}, left out")
    if inner:
        problems.append(f"event files in folders below were not read: {_listed(inner)}")
    return SourceRun(
        label=path.name or str(path),
        framework=guess_framework(sorted({key for file in metrics for key in file.keys})),
        files=tuple(metrics),
        attempt_groups=_attempts(events, metrics),
        config=config,
        max_steps=max_steps_of(config),
        problems=tuple(problems),
    )


def _inner_runs(path: Path) -> list[str]:
    """Return the folders below `path` that hold event files, relative to it."""
    found = []
    for depth in range(1, _MAX_DEPTH + 1):
        pattern = "/".join(["*"] * depth) + f"/*{_MARK}*"
        found += [p.parent for p in path.glob(pattern) if p.is_file()]
    return [str(folder.relative_to(path)) for folder in distinct(sorted(set(found)))]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_MAX_LISTED]) + more


def _order(events: _Events) -> tuple[int, float, str]:
    named = _NAMED_TIME.search(events.path.name)
    return int(named.group(1)) if named else 0, events.started_at, events.path.name


def _purge(events: Sequence[_Events]) -> int:
    """Take out the rows that a later restart hides; return how many values they held."""
    num_hidden = 0
    for position, newer in enumerate(events):
        for num_before, step in newer.purges:
            for older in events[: position + 1]:
                end = num_before if older is newer else len(older.rows)
                gone = [row for row in older.rows[:end] if row[_STEP] >= step]
                num_hidden += sum(len(row) - 2 for row in gone)
                kept = [row for row in older.rows[:end] if row[_STEP] < step]
                older.rows[:end] = kept
    return num_hidden


def _attempts(events: Sequence[_Events], files: Sequence[MetricsFile]) -> tuple[int, ...]:
    groups: list[int] = []
    keys: set[str] = set()
    ended_at = -1.0
    for one, file in zip(events, files, strict=True):
        # Writers that run side by side, or log other keys, do not supersede each other.
        times = [row["time"] for row in one.rows]
        begins_later = bool(groups) and min(times, default=ended_at) > ended_at
        is_resumed = begins_later and not keys.isdisjoint(file.keys)
        groups.append((groups[-1] if groups else 1) + is_resumed)
        keys = set(file.keys) if is_resumed else keys | file.keys
        ended_at = max([ended_at, *times])
    return tuple(groups)


def _to_file(events: _Events, wanted: Wanted) -> MetricsFile:
    if events.problem:
        return empty_file(events.path, KIND, events.problem)
    builder = SeriesBuilder(wanted)
    for row in events.rows:
        builder.add_row(row, step_key=_STEP)
    for number in events.bad_records:
        builder.add_bad_line(number)
    return builder.build(events.path, KIND, size_bytes=events.size_bytes, sha256=events.sha256)


@dataclass(frozen=True)
class _Parser:
    """What is needed of the library, which is an optional one."""

    event: Callable[[bytes], Any]
    checksum: Callable[[bytes], int]
    array: Callable[[Any], Any]
    hparams: Callable[[bytes], Any]
    start: int
    decode_error: type[Exception]


def _load_parser() -> _Parser:
    try:
        # An optional extra, which takes a while to import.
        from google.protobuf.message import (  # type: ignore[import-untyped]  # noqa: PLC0415
            DecodeError,
        )
        from tensorboard.compat.proto import event_pb2  # noqa: PLC0415
        from tensorboard.compat.tensorflow_stub import pywrap_tensorflow  # noqa: PLC0415
        from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: PLC0415
        from tensorboard.util import tensor_util  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "event files are read with the package `tensorboard`, which is not installed",
            "pip install tensorboard",
        ) from None
    return _Parser(
        event=event_pb2.Event.FromString,
        checksum=pywrap_tensorflow.masked_crc32c,
        array=tensor_util.make_ndarray,
        hparams=plugin_data_pb2.HParamsPluginData.FromString,
        start=event_pb2.SessionLog.START,
        decode_error=DecodeError,
    )


def _read(path: Path, parser: _Parser) -> _Events:
    events = _Events(path)
    try:
        content = read_head(path)
        # What is no event file isn't worth reading, however large.
        if _begins(content, parser.checksum):
            content = path.read_bytes()
    except OSError as error:
        events.problem = f"can't be read: {error.strerror or error}"
        return events
    events.size_bytes = len(content)
    events.sha256 = hashlib.sha256(content).hexdigest()
    num_good = 0
    for number, record in enumerate(_records(events, content, parser.checksum), start=1):
        try:
            event = None if record is None else parser.event(record)
        except parser.decode_error:
            event = None
        if event is None:
            events.bad_records.append(number)
            continue
        num_good += 1
        events.started_at = events.started_at or event.wall_time
        _add(events, event, parser)
    if not num_good:
        events.problem = "empty" if not content else "it does not begin as an event file does"
        events.damage = ""
    return events


def _begins(head: bytes, checksum: Callable[[bytes], int]) -> bool:
    """Whether a record begins at the first byte."""
    return len(head) >= _HEADER.size and checksum(head[:8]) == _HEADER.unpack_from(head)[1]


def _records(
    events: _Events, content: bytes, checksum: Callable[[bytes], int]
) -> Iterator[bytes | None]:
    """Yield the records of a file; None for one that is cut off or damaged."""
    offset = 0
    while offset < len(content):
        if offset + _HEADER.size > len(content):
            yield None
            return
        length, header_sum = _HEADER.unpack_from(content, offset)
        if checksum(content[offset : offset + 8]) != header_sum:
            # Where the next record begins can't be told.
            events.damage = f"no record begins at byte {offset}; what stands before it was read"
            yield None
            return
        begin = offset + _HEADER.size
        end = begin + length
        if end + _CHECKSUM.size > len(content):
            yield None
            return
        data = content[begin:end]
        if checksum(data) == _CHECKSUM.unpack_from(content, end)[0]:
            yield data
        else:
            events.damage = f"bad checksum of the record at byte {offset}; it was left out"
            yield None
        offset = end + _CHECKSUM.size


def _add(events: _Events, event: Any, parser: _Parser) -> None:
    if event.HasField("session_log") and event.session_log.status == parser.start:
        events.purges.append((len(events.rows), event.step))
    for value in event.summary.value:
        if value.tag == _HPARAMS_TAG:
            events.config.update(_hparams(value.metadata.plugin_data.content, parser))
            continue
        number = _scalar(value, parser)
        # Float32 can't hold a unix time; the event's own is a float64.
        if number is None or value.tag in (_STEP, "time"):
            continue
        last = events.rows[-1] if events.rows else None
        if last is None or last[_STEP] != event.step or value.tag in last:
            last = {_STEP: event.step, "time": event.wall_time}
            events.rows.append(last)
        last[value.tag] = number


def _scalar(value: Any, parser: _Parser) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or any(dim.size != 1 for dim in value.tensor.tensor_shape.dim):
        return None
    try:
        array = parser.array(value.tensor)
    except (TypeError, ValueError):
        return None
    # Text is a tensor, too.
    return float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiu" else None


def _hparams(content: bytes, parser: _Parser) -> dict[str, Any]:
    try:
        info = parser.hparams(content).session_start_info
    except parser.decode_error:
        return {}
    kinds = ((name, value, value.WhichOneof("kind")) for name, value in info.hparams.items())
    return {name: getattr(value, kind) for name, value, kind in kinds if kind in _HPARAM_KINDS}
