"""What a file or folder is, found out from few bytes, and small JSON files of a run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD_BYTES = 256 * 1024
"""Enough for several rows of the widest metrics files; the rest of a file isn't needed to tell
what it is."""

_MAX_JSON_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024

Json = dict[str, Any]
"""A JSON object as it stands in a file."""


def read_head(path: Path) -> bytes:
    """Return the first `HEAD_BYTES` of the file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def is_text(head: bytes) -> bool:
    """Whether `head` may be text: no format of text has a zero byte."""
    return b"\0" not in head


def head_rows(head: bytes) -> list[Json]:
    """Return the JSON objects that stand on lines of their own in `head`; torn lines are none."""
    rows = []
    for line in head.splitlines():
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def parse_json_object(content: bytes) -> tuple[Json | None, str]:
    """Return the JSON object in `content`, or None and why there is none."""
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        return None, f"not JSON (line {error.lineno}: {error.msg})"
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})"
    if not isinstance(value, dict):
        return None, "not a JSON object"
    return value, ""


def read_json_object(path: Path) -> tuple[Json | None, str]:
    """Return the JSON object in the file, or None and why there is none. Never raises OSError."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            return None, f"larger than {_MAX_JSON_BYTES >> 20} MiB"
        return parse_json_object(path.read_bytes())
    except OSError as error:
        return None, f"can't be read: {error.strerror or error}"


def hash_file(path: Path) -> tuple[int, str]:
    """Return size in bytes and sha256 of the file. Raises OSError."""
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()


def distinct(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that exist, each file or folder once, however many names lead to it."""
    seen: set[tuple[int, int]] = set()
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        if identity not in seen:
            seen.add(identity)
            found.append(path)
    return found


def entries(folder: Path) -> list[Path]:
    """Return what lies in `folder`, sorted, without hidden names; nothing where it is none."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError:
        return []


def lookup(tree: Any, dotted: str) -> Any:
    """Return the value at a dotted key of nested dicts; None where there is none."""
    for part in dotted.split("."):
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree
