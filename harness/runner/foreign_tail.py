"""Follows the metrics of trainers that don't log to one growing file of lines."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.records.attempt_folders import attempt_folders
from harness.runner.metrics_tail import Latest, MetricsTail

_STATE_NAME = "trainer_state.json"
_EVENTS_MARK = "tfevents"
_MAX_DEPTH = 3
"""Folders below the named one in which event files are looked for."""
_MAX_HISTORY_BYTES = 1 << 25
"""Event files of earlier attempts that are larger are not read for where those stood."""
_HEADER = struct.Struct("<QI")
_CHECKSUM_BYTES = 4

Row = dict[str, Any]


def open_tail(
    path: Path, metrics_format: str, metrics_keys: Mapping[str, str], attempt: int
) -> MetricsTail:
    """Return what follows the metrics at `path`; arguments as for MetricsTail."""
    kinds = {"trainer_state": TrainerStateTail, "tensorboard": EventsTail}
    kind = kinds.get(metrics_format, MetricsTail)
    return kind(path, metrics_format, metrics_keys, attempt)


class TrainerStateTail(MetricsTail):
    """The newest values in `trainer_state.json` of a folder and its checkpoints.

    Each checkpoint repeats the history so far, so that the file that was written last counts. What
    stood there before this attempt and is repeated is no row of it.
    """

    def poll(self) -> Latest:
        found = self._find_states()
        changed = [path for path, stamp in found.items() if stamp != self._stamps.get(path)]
        for path in sorted(changed, key=lambda path: found[path]):
            rows = self._read(path)
            if rows is None:
                continue  # being written: the next call sees it whole
            self._stamps[path] = found[path]
            for row in rows:
                text = json.dumps(row, sort_keys=True)
                if text not in self._seen:
                    self._seen.add(text)
                    self._update(row, is_own=True)
        return self.latest

    def _read_history(self) -> None:
        self._stamps = self._find_states()
        self._seen: set[str] = set()
        histories = [rows for path in self._stamps if (rows := self._read(path)) is not None]
        for rows in sorted(histories, key=len):
            self._seen |= {json.dumps(row, sort_keys=True) for row in rows}
            for row in rows:
                self._update(row, is_own=False)

    def _find_states(self) -> dict[Path, tuple[int, int]]:
        """Return time and size of each such file."""
        found = {}
        try:
            for path in (self._path / _STATE_NAME, *self._path.glob(f"*/{_STATE_NAME}")):
                if path.is_file():
                    stat = path.stat()
                    found[path] = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            pass  # its file system is away for the moment, or a checkpoint was just removed
        return found

    def _read(self, path: Path) -> list[Row] | None:
        """Return the rows of the history and the step of the checkpoint; None if unreadable."""
        try:
            content = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None
        history = content.get("log_history") if isinstance(content, dict) else None
        if not isinstance(history, list):
            return None
        # A checkpoint may lie between two rows of the history.
        last = {self._keys.get("step", "step"): content.get("global_step")}
        return [row for row in (*history, last) if isinstance(row, dict)]


class EventsTail(MetricsTail):
    """The newest scalars in the event files of TensorBoard below a folder.

    A file that was there before belongs to an earlier attempt: a writer always begins a new one.
    The few fields that are needed are read without the library, which is large and optional.
    """

    def poll(self) -> Latest:
        for path in self._find_events():
            if path not in self._earlier:
                for row in self._read_new(path):
                    self._update(row, is_own=True)
        return self.latest

    def _read_history(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._earlier = set(self._find_events())
        for path in sorted(self._earlier, key=lambda path: path.name):
            for row in self._read_new(path, max_bytes=_MAX_HISTORY_BYTES):
                self._update(row, is_own=False)

    def _find_events(self) -> list[Path]:
        folders = attempt_folders(self._path)
        root = folders.get(self._attempt)
        if root is None:
            earlier = [folder for k, folder in folders.items() if k < self._attempt]
            root = earlier[-1] if earlier else self._path
        patterns = [f"{'*/' * depth}*{_EVENTS_MARK}*" for depth in range(_MAX_DEPTH + 1)]
        try:
            return sorted(p for pattern in patterns for p in root.glob(pattern) if p.is_file())
        except OSError:
            return []  # its file system is away for the moment

    def _read_new(self, path: Path, max_bytes: int | None = None) -> list[Row]:
        """Return the rows of whole records that were added to the file since the last call.

        Args:
            max_bytes: a larger file is left out; None for no limit.
        """
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                if max_bytes is not None and os.fstat(file.fileno()).st_size > max_bytes:
                    return []
                file.seek(offset)
                content = file.read()
        except OSError:
            return []
        rows, position = [], 0
        while position + _HEADER.size <= len(content):
            begin = position + _HEADER.size
            end = begin + _HEADER.unpack_from(content, position)[0]
            if end + _CHECKSUM_BYTES > len(content):
                break
            row = _scalars(content[begin:end], self._keys.get("step", "step"))
            if row is not None:
                rows.append(row)
            position = end + _CHECKSUM_BYTES
        self._offsets[path] = offset + position
        return rows


def _scalars(event: bytes, step_key: str) -> Row | None:
    """Return the step and the scalars of a serialised `Event`; None where it holds none."""
    step = 0
    row: Row = {}
    try:
        for number, value in _fields(event):
            if number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                row |= dict(_summary(value))
    except (IndexError, struct.error):
        return None  # damaged
    return {**row, step_key: step} if row else None


def _summary(summary: bytes) -> Iterator[tuple[str, float | None]]:
    """Yield tag and number of each value that is a scalar; None for one in a tensor."""
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        parts = dict(_fields(value))
        tag = parts.get(1)
        if not isinstance(tag, bytes):
            continue
        if isinstance(scalar := parts.get(2), float):
            yield tag.decode("utf-8", errors="replace"), scalar
        elif isinstance(tensor := parts.get(8), bytes) and _is_number(tensor):
            yield tag.decode("utf-8", errors="replace"), None


def _is_number(tensor: bytes) -> bool:
    """Whether a tensor holds floats: text and histograms of other kinds are tensors, too."""
    fields = dict(_fields(tensor))
    return fields.get(1) in (1, 2) and not fields.get(2)  # float or double, without a shape


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield number and value of each field of a serialised protocol buffer."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        value: int | float | bytes
        if wire == 0:
            value, position = _varint(message, position)
        elif wire == 1:
            (value,) = struct.unpack_from("<d", message, position)
            position += 8
        elif wire == 5:
            (value,) = struct.unpack_from("<f", message, position)
            position += 4
        elif wire == 2:
            length, position = _varint(message, position)
            value = message[position : position + length]
            position += length
        else:
            return
        yield number, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
