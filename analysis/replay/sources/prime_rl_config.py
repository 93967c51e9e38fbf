"""The loss that a run of prime-rl was trained with, as its resolved config says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.sources.contents import entries, lookup, read_json_object

_ATTEMPT = re.compile(r"attempt_([0-9]{1,9})")
_MAX_UP = 5
"""Folders above the tokens in which the configs may stand: a step's file lies three below."""


def find_loss(path: Path) -> dict[str, Any] | None:
    """Return the loss of the run in whose folder `path` lies, or that is `path`.

    Of several attempts the newest one's; None where no config says.
    """
    places = [path, *path.absolute().parents][: _MAX_UP + 1]
    configs = next((one / "configs" for one in places if (one / "configs").is_dir()), None)
    if configs is None:
        return None
    for folder in _folders(configs):
        for name, key in (("trainer.json", "loss"), ("rl.json", "trainer.loss")):
            for file in (folder / "resolved" / name, folder / name):
                content = read_json_object(file)[0] if file.is_file() else None
                loss = lookup(content, key)
                if isinstance(loss, dict):
                    return loss
    return None


def _folders(configs: Path) -> Iterator[Path]:
    yield configs / "latest"
    numbered = [
        (int(match[1]), entry)
        for entry in entries(configs)
        if (match := _ATTEMPT.fullmatch(entry.name))
    ]
    yield from (entry for _, entry in sorted(numbered, reverse=True))
    yield configs
