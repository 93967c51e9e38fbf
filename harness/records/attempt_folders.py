"""Folders `attempt_<k>` for a trainer that logs each attempt to a place of its own.

Such a trainer would else empty the file of the attempt before, or mix event files of several.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"attempt_([1-9][0-9]*)")


def attempt_folders(path: Path) -> dict[int, Path]:
    """Return the folders of attempts in the folder `path` by number, in order; {} if none."""
    try:
        entries = list(path.iterdir())
    except OSError:
        return {}
    found = {int(m[1]): entry for entry in entries if (m := _NAME.fullmatch(entry.name))}
    return {number: found[number] for number in sorted(found) if found[number].is_dir()}
