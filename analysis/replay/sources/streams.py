"""Streams of JSON lines that prime-rl splits into chunks: sealed ones are zstd, the last is plain.

<stream>/00000.jsonl.zst    many zstd frames, one after another, then a table that is skipped
<stream>/00001.jsonl        the live chunk; its last line may be torn
<stream>.jsonl              one plain file, as until September 2026
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.replay.sources.blocks import Tally
from analysis.sources.contents import entries
from harness.errors import UsageError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_CHUNK = re.compile(r"([0-9]+)\.jsonl(\.zst)?")
_READ_BYTES = 1 << 20


def chunks_of(stream: Path) -> list[Path]:
    """Return the files of a stream, a folder or one plain file, in order.

    A chunk that is just being sealed is there twice: the sealed copy is whole and stands.
    """
    if stream.is_file():
        return [stream]
    found: dict[int, Path] = {}
    for entry in entries(stream):
        match = _CHUNK.fullmatch(entry.name)
        if match and (match[2] or int(match[1]) not in found):
            found[int(match[1])] = entry
    return [found[number] for number in sorted(found)]


def records(paths: Sequence[Path], tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the objects on the lines of all files; lines that are none are counted.

    Raises:
        UsageError: a sealed chunk can't be unpacked.
    """
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                yield record
            else:
                tally.bad_line(number)


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix != ".zst":
        with path.open("rb") as file:
            yield from file
        return
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for sealed chunks)

    waiting = b""
    try:
        with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
            while content := stream.read(_READ_BYTES):
                *whole, waiting = (waiting + content).split(b"\n")
                yield from whole
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"`{path}` can't be unpacked: {' '.join(str(error).split())}",
            "it may be cut short: copy it again, or leave it out",
        ) from error
    if waiting:
        yield waiting
