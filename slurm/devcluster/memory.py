"""Memory limits that the kernel holds jobs to (memory cgroups, version 1).

SLURM names a node's cgroup after the node alone, so that two clusters with memory limits would
share them; whoever makes the cgroup first has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from devcluster.errors import UsageError

ROOT = Path("/sys/fs/cgroup/memory")


def reserve(nodes: Iterable[str]) -> None:
    """Make the nodes' cgroups; UsageError where this can't be or another cluster has them."""
    made: list[str] = []
    for node in nodes:
        path = _cgroup(node)
        try:
            path.mkdir()
        except FileExistsError:
            release(made)
            raise UsageError(
                f"`{path}` is there: another cluster with --memory-limits has it",
                "stop that one first",
            ) from None
        except OSError as error:
            release(made)
            raise UsageError(
                f"--memory-limits: `{path}` can't be made: {error.strerror}",
                "this needs the memory controller of cgroups v1, writable",
            ) from None
        made.append(node)


def release(nodes: Iterable[str]) -> None:
    """Remove the nodes' cgroups with all in them; their processes must have ended."""
    for node in nodes:
        inner = [path for path in _cgroup(node).rglob("*") if path.is_dir()]
        for path in (*sorted(inner, reverse=True), _cgroup(node)):
            with suppress(OSError):
                path.rmdir()


def _cgroup(node: str) -> Path:
    return ROOT / f"slurm_{node}"
