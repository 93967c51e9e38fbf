"""Reading and writing record files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.layout import repair_hint


def to_json(value: Any) -> str:
    """Return `value` as readable JSON: sorted keys, 2 spaces, no NaN or infinity, final newline.

    Raises:
        ValueError: a float is not finite (use `finite_or_text` where a record may hold one).
    """
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def canonical_json(value: Any) -> bytes:
    """Return the one byte string that stands for `value` in hashes: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def finite_or_text(value: float) -> float | str:
    """Return `value`, or its name (`"nan"`, `"inf"`, `"-inf"`) where JSON has no number for it."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return value


def write_atomic(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write `content` so that `path` holds all of the old or all of the new, whoever looks.

    Args:
        durable: also force it to the disk before returning (for intents and receipts).
    """
    temporary = _write_beside(path, content, durable=durable)
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def create_exclusive(path: Path, content: str | bytes, *, durable: bool = False) -> bool:
    """Create `path` whole, unless it exists: exactly one of many callers gets True.

    A hard link is the test, as it is atomic on network file systems, too.
    """
    temporary = _write_beside(path, content, durable=durable)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)
    return True


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Write `value` to `path` as JSON, atomically."""
    write_atomic(path, to_json(value), durable=durable)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`.

    Raises:
        HarnessError: the file is missing, unreadable or not a JSON object; the hint says how to
            mend it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HarnessError(f"`{path}` is missing", "restore it from a copy") from None
    except OSError as error:
        reason = error.strerror or error
        raise HarnessError(f"`{path}` can't be read: {reason}", "make it readable") from error
    except (ValueError, RecursionError) as error:
        raise HarnessError(f"`{path}` can't be read: {error}", repair_hint(path)) from error
    if not isinstance(value, dict):
        raise HarnessError(f"`{path}` is not a JSON object", repair_hint(path))
    return value


def read_json_if_there(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None where there is no such file."""
    return read_json(path) if path.is_file() else None


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of `tree` by dotted key; lists and empty mappings are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            leaves.update(flatten(value, f"{dotted}."))
        else:
            leaves[dotted] = value
    return leaves


def _write_beside(path: Path, content: str | bytes, *, durable: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_folder(folder: Path) -> None:
    """Force the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
