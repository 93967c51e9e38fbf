"""Ports that are free, and that no cluster which starts beside takes."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from devcluster.errors import ClusterError

BLOCK = 64
FIRST, LAST = 12_000, 32_000
"""Below the ports that Linux gives to outgoing connections (32768 and up)."""
CONTROLLER, DBD, DATABASE, FIRST_NODE = 0, 1, 2, 8
"""Offsets in a block."""


@contextmanager
def free_block() -> Iterator[int]:
    """Yield the first of BLOCK free ports; no other start gets the same while this is held.

    The reservation is an abstract Unix socket: it leaves no file, ends with its process, and
    belongs to the same network namespace as the ports.
    """
    blocks = list(range(FIRST, LAST - BLOCK, BLOCK))
    random.shuffle(blocks)
    for first in blocks:
        with socket.socket(socket.AF_UNIX) as reservation:
            try:
                reservation.bind(f"\0ablation-devcluster-{first}")
            except OSError:
                continue
            if all(_is_free(port) for port in range(first, first + BLOCK)):
                yield first
                return
    raise ClusterError(f"no {BLOCK} free ports in a row between {FIRST} and {LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
