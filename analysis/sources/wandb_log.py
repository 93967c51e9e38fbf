"""The transaction log that wandb writes for a run (`run-<id>.wandb`), read without wandb.

wandb's own reader left the package in 0.30. The container is LevelDB's log format with a header
and a plain zlib CRC-32; every payload is one protobuf `Record`, of which only the fields named
here are looked at. Field numbers are those of wandb's `wandb_internal.proto`, which 0.22 to 0.31
agree on; fields that are not known are skipped, so that a newer writer does no harm.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

from analysis.sources.interface import parse_value

_FILE_HEADER = struct.Struct("<4sHB")
IDENT = b":W&B"
"""What every log begins with."""
_MAGIC = 0xBEE1
_VERSION = 0
_BLOCK_BYTES = 32 * 1024
_FRAME_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CRC_OF_TYPE = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}

_RECORD_HISTORY = 2
_RECORD_CONFIG = 5
_RECORD_RUN = 17
_RECORD_EXIT = 18
_RECORD_HEADER = 21

_HISTORY_ITEM = 1
_HISTORY_STEP = 2
_CONFIG_UPDATE = 1
_CONFIG_REMOVE = 2

_ITEM_KEY = 1
_ITEM_NESTED_KEY = 2
_ITEM_NONE = 3
_ITEM_BOOLEAN = 4
_ITEM_INTEGER = 5
_ITEM_NUMBER = 6
_ITEM_TEXT = 7
_ITEM_JSON = 8
_ITEM_VALUE_JSON = 16
_NESTED_KEY_TAG = bytes([_ITEM_NESTED_KEY << 3 | 2])

_RUN_ID = 1
_RUN_CONFIG = 4
_RUN_DISPLAY_NAME = 8
_RUN_GIT = 21
_GIT_COMMIT = 2
_EXIT_CODE = 1
_HEADER_VERSION_INFO = 1
_VERSION_INFO_PRODUCER = 1

_WANDB_CONFIG_KEY = "_wandb"

Keep = Callable[[str], bool]
Row = dict[str, Any]


@dataclass
class WandbLog:
    """What one log holds, as far as it can be read.

    Attributes:
        rows: one per history record, in file order; nested keys are joined with dots. The values
            are plain JSON values. `_step` is always there.
        config: as it stood at the end.
        exit_code: None where no exit was written: the run is still going, or was killed.
        writer: version of wandb that wrote the log.
        commit: of the repository that the run was started in.
        bad_records: numbers, counted from 1, of records that are no protobuf `Record`.
        num_bad_values: values that are no JSON.
        damage: what ends the log before its last byte, with the offset; empty where nothing does.
        is_torn: the last record is cut off, as in every log that is being written.
        is_log: whether the file begins as a log of wandb does.
    """

    rows: list[Row] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    run_id: str = ""
    display_name: str = ""
    exit_code: int | None = None
    writer: str = ""
    commit: str = ""
    bad_records: list[int] = field(default_factory=list)
    num_bad_values: int = 0
    damage: str = ""
    is_torn: bool = False
    is_log: bool = True


class _Damage(Exception):
    """The bytes at an offset are not what the format wants there."""


class _Torn(Exception):
    """The bytes end within a record."""


def parse_wandb_log(content: bytes, *, keep: Keep) -> WandbLog:
    """Return what the log in `content` holds. Never raises for what the bytes are.

    What stands before a damaged place is kept, and nothing behind it: record boundaries can't be
    told from there.

    Args:
        keep: whether the values of a key are needed. Of other keys, only the first number is kept,
            so that what was logged can be listed.
    """
    log = WandbLog()
    listed: set[bytes] = set()
    try:
        for number, payload in enumerate(_payloads(content), start=1):
            try:
                row = _add_record(log, payload, listed)
            except (ValueError, IndexError, RecursionError, struct.error):
                log.bad_records.append(number)
                continue
            if row is not None:
                log.rows.append(row)
                listed.update(
                    key.encode(errors="replace")
                    for key, cell in row.items()
                    if not keep(key) and parse_value(cell) is not None
                )
    except _Torn:
        log.is_torn = True
    except _Damage as error:
        log.damage = str(error)
        log.is_log = len(content) >= _FILE_HEADER.size and content.startswith(IDENT)
    return log


def _payloads(content: bytes) -> Iterator[bytes]:
    """Yield the records of a log.

    Raises:
        _Torn: the log ends within a record.
        _Damage: a header, a checksum or the order of fragments is wrong.
    """
    if len(content) < _FILE_HEADER.size:
        raise _Torn
    ident, magic, version = _FILE_HEADER.unpack_from(content)
    if (ident, magic) != (IDENT, _MAGIC):
        raise _Damage("it does not begin as a log of wandb does")
    if version != _VERSION:
        raise _Damage(f"version {version} of the log format is not known")
    parts: list[bytes] = []
    offset = _FILE_HEADER.size
    while True:
        room = _BLOCK_BYTES - offset % _BLOCK_BYTES
        if room < _FRAME_HEADER.size:
            offset += room
        if offset >= len(content):
            if parts:
                raise _Torn
            return
        if offset + _FRAME_HEADER.size > len(content):
            raise _Torn
        checksum, length, kind = _FRAME_HEADER.unpack_from(content, offset)
        if kind not in _CRC_OF_TYPE:
            raise _Damage(f"no record begins at byte {offset}")
        begin = offset + _FRAME_HEADER.size
        if begin + length > (offset // _BLOCK_BYTES + 1) * _BLOCK_BYTES:
            raise _Damage(f"the record at byte {offset} is longer than its block")
        data = content[begin : begin + length]
        if len(data) < length:
            raise _Torn
        if zlib.crc32(data, _CRC_OF_TYPE[kind]) != checksum:
            raise _Damage(f"bad checksum at byte {offset}")
        if (kind in (_MIDDLE, _LAST)) != bool(parts):
            raise _Damage(f"the record at byte {offset} does not continue the one before it")
        offset = begin + length
        if kind == _FULL:
            yield data
        else:
            parts.append(data)
            if kind == _LAST:
                yield b"".join(parts)
                parts = []


def _add_record(log: WandbLog, payload: bytes, skipped: Set[bytes]) -> Row | None:
    """Take what a record says into `log`; return its row where it is a history record."""
    for number, value in _fields(payload):
        if not isinstance(value, bytes):
            continue
        if number == _RECORD_HISTORY:
            return _row(log, value, skipped)
        if number == _RECORD_CONFIG:
            _change_config(log, value)
        elif number == _RECORD_RUN:
            _add_run(log, value)
        elif number == _RECORD_EXIT:
            # Protobuf leaves a zero out.
            code = _first(value, _EXIT_CODE)
            log.exit_code = _signed(code) if isinstance(code, int) else 0
        elif number == _RECORD_HEADER:
            info = _first(value, _HEADER_VERSION_INFO)
            producer = _first(info, _VERSION_INFO_PRODUCER) if isinstance(info, bytes) else None
            log.writer = _text(producer).partition("+")[0]
    return None


def _add_run(log: WandbLog, content: bytes) -> None:
    for number, value in _fields(content):
        if not isinstance(value, bytes):
            continue
        if number == _RUN_ID:
            log.run_id = _text(value)
        elif number == _RUN_DISPLAY_NAME:
            log.display_name = _text(value)
        elif number == _RUN_CONFIG:
            _change_config(log, value)
        elif number == _RUN_GIT:
            log.commit = _text(_first(value, _GIT_COMMIT))


def _change_config(log: WandbLog, content: bytes) -> None:
    for number, item in _fields(content):
        if not isinstance(item, bytes):
            continue
        path, value = _item(log, item, frozenset())
        if not path or path[0] == _WANDB_CONFIG_KEY:
            continue
        parent = log.config
        for part in path[:-1]:
            inner = parent.get(part)
            if not isinstance(inner, dict):
                inner = parent[part] = {}
            parent = inner
        if number == _CONFIG_UPDATE:
            parent[path[-1]] = value
        elif number == _CONFIG_REMOVE:
            parent.pop(path[-1], None)


def _row(log: WandbLog, content: bytes, skipped: Set[bytes]) -> Row:
    row: Row = {}
    step = 0
    for number, value in _fields(content):
        if number == _HISTORY_ITEM and isinstance(value, bytes):
            if _is_skipped(value, skipped):
                continue
            path, cell = _item(log, value, skipped)
            if path and cell is not _SKIPPED:
                row.update(flatten(".".join(path), cell))
        elif number == _HISTORY_STEP and isinstance(value, bytes):
            found = _first(value, 1)
            step = _signed(found) if isinstance(found, int) else 0
    row.setdefault("_step", step)
    return row


_SKIPPED = object()


def _is_skipped(item: bytes, skipped: Set[bytes]) -> bool:
    """Whether `item` has one of the `skipped` keys; False where it isn't of the usual shape.

    Trainers log thousands of keys per step, of which few are needed: no item is taken apart for
    the others.
    """
    if item[:1] != _NESTED_KEY_TAG:
        return False
    end = 2 + item[1]
    return item[2:end] in skipped and item[end : end + 1] != _NESTED_KEY_TAG


def _item(log: WandbLog, content: bytes, skipped: Set[bytes]) -> tuple[list[str], Any]:
    """Return key path and value of a history or config item; `_SKIPPED` where it isn't needed."""
    path: list[str] = []
    text: bytes | None = None
    typed: Any = _SKIPPED
    for number, value in _fields(content):
        if isinstance(value, bytes):
            if number in (_ITEM_KEY, _ITEM_NESTED_KEY):
                path.append(value.decode())
            elif number in (_ITEM_VALUE_JSON, _ITEM_JSON):
                text = value
            elif number == _ITEM_TEXT:
                typed = value.decode()
            elif number == _ITEM_NUMBER:
                typed = struct.unpack("<d", value)[0]
        elif number == _ITEM_NONE:
            typed = None
        elif number == _ITEM_BOOLEAN:
            typed = bool(value)
        elif number == _ITEM_INTEGER:
            typed = (value >> 1) ^ -(value & 1)
    if skipped and ".".join(path).encode() in skipped:
        return path, _SKIPPED
    if text is None:
        return path, typed
    try:
        return path, json.loads(text.decode())
    except (ValueError, RecursionError):
        log.num_bad_values += 1
        return path, _SKIPPED


def flatten(key: str, value: Any) -> Row:
    """Return `value` by dotted key, as wandb names what was logged as a nested dict.

    Media objects, which wandb marks with `_type`, hold file names and sizes, no metrics: none.
    """
    if not isinstance(value, dict):
        return {key: value}
    if "_type" in value:
        return {}
    flat: Row = {}
    for name, inner in value.items():
        flat.update(flatten(f"{key}.{name}", inner))
    return flat


def _first(content: bytes, wanted: int) -> int | bytes | None:
    return next((value for number, value in _fields(content) if number == wanted), None)


def _text(value: int | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and raw value of the fields of a protobuf message, in order.

    Varints come as unsigned ints, everything else as bytes.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    offset = 0
    size = len(content)
    while offset < size:
        tag = content[offset]
        offset += 1
        # Most varints are one byte long.
        if tag >= 0x80:
            tag, offset = _varint(content, offset - 1)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, offset = _varint(content, offset)
            yield number, value
            continue
        if kind == 2:
            length, offset = _varint(content, offset)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} is not known")
        end = offset + length
        if end > size:
            raise ValueError("a field is longer than its message")
        yield number, content[offset:end]
        offset = end


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if offset >= len(content) or shift >= 70:
            raise ValueError("a varint does not end")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
