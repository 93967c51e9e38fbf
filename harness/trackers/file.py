"""The metrics file: one JSON object per line, appended whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

from harness.trackers.interface import Row


class FileTracker:
    """Appends rows to `path`. A line is handed to the system in one write, so that a process
    that is killed leaves whole lines and at most one torn one at the end.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_torn = _lacks_final_newline(path)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if is_torn:
            os.write(self._descriptor, b"\n")

    def log(self, row: Row) -> None:
        """Append one row. Raises ValueError for a value that is not finite."""
        line = json.dumps(row, allow_nan=False) + "\n"
        remaining = line.encode()
        while remaining:
            remaining = remaining[os.write(self._descriptor, remaining) :]

    def sync(self) -> None:
        """Return when everything logged is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def _lacks_final_newline(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False
