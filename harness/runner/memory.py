"""Whether the kernel has killed a process of this job because memory ran out."""

from __future__ import annotations

import contextlib
from pathlib import Path


def count_oom_kills(root: Path = Path("/")) -> int | None:
    """Return how many processes of this process's cgroup were ever killed for lack of memory.

    None where the kernel doesn't say: no cgroup, or one without memory accounting.

    Args:
        root: folder that holds `proc` and `sys`.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            file = root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        with contextlib.suppress(OSError):
            count = parse_oom_kills(file.read_text(encoding="ascii", errors="replace"))
            if count is not None:
                return count
    return None


def parse_oom_kills(text: str) -> int | None:
    """Return the number after `oom_kill` in `memory.events` (version 2) or `memory.oom_control`
    (version 1); None where it isn't there."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None
