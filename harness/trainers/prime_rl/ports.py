"""Ports of each run's own, so that single-node runs can share a machine.

prime-rl's ports are fixed: two runs on one node would talk to each other's servers.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.errors import HarnessError
from harness.trainers.prime_rl.tables import get_table, get_value, set_value

BLOCK = 200
FIRST, LAST = 20_000, 60_000

_SERVER = 0
_BROADCAST, _ROLLOUTS, _DATA_PARALLEL, _METRICS = 10, 11, 12, 13
_ENV_SERVERS = 20
_ENGINE = 100
"""Where prime-rl puts the engine behind a server's router."""
_OFFSETS = (_SERVER, _BROADCAST, _ROLLOUTS, _DATA_PARALLEL, _METRICS, _ENV_SERVERS, _ENGINE)

_MIN_BLOCKS = 20
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0", "::1")

_held: list[socket.socket] = []
"""Leases of this process: they last as long as it does."""


def set_ports(document: dict[str, Any], base: int) -> None:
    """Set in place the ports of a single-node document to those of the block at `base`.

    Only ports that the run itself would open; a transport that it would use by default is written
    out, with its port.
    """
    if get_table(document, "inference") is not None:
        _set_inference_ports(document, base)
    set_value(document, "orchestrator.env_server_base_port", base + _ENV_SERVERS)
    parts = [
        p for p in ("trainer", "orchestrator") if get_table(document, f"{p}.rollout_transport")
    ]
    if get_table(document, "rollout_transport") is None and not parts:
        document["rollout_transport"] = {"type": "zmq"}
    for key in ("rollout_transport", *(f"{part}.rollout_transport" for part in parts)):
        if get_value(document, f"{key}.type") == "zmq":
            set_value(document, f"{key}.port", base + _ROLLOUTS)
    if get_value(document, "trainer.metrics_server.port") is not None:
        set_value(document, "trainer.metrics_server.port", base + _METRICS)


def _set_inference_ports(document: dict[str, Any], base: int) -> None:
    set_value(document, "inference.server.port", base + _SERVER)
    set_value(document, "inference.vllm.data_parallel_rpc_port", base + _DATA_PARALLEL)
    if get_value(document, "inference.backend_port") is not None:
        set_value(document, "inference.backend_port", base + _ENGINE)
    client = "orchestrator.model.client"
    url = get_value(document, f"{client}.base_url")
    set_value(document, f"{client}.base_url", _with_port(url, base + _SERVER))
    table = get_value(document, client)
    admin = table.get("admin_base_url")
    if isinstance(admin, list) and all(_is_local(item) for item in admin):
        del table["admin_base_url"]  # prime-rl finds the engine by the server's port
    is_lora = get_table(document, "trainer.model.lora") is not None
    if get_table(document, "weight_broadcast") is None and not is_lora:
        document["weight_broadcast"] = {"type": "nccl"}
    if get_value(document, "weight_broadcast.type") == "nccl":
        set_value(document, "weight_broadcast.port", base + _BROADCAST)


def _with_port(url: Any, port: int) -> str:
    """Return the address of a server that the run starts itself."""
    if not isinstance(url, str) or _is_local(url):
        return f"http://localhost:{port}/v1"
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.hostname}:{port}").geturl()


def _is_local(url: Any) -> bool:
    try:
        return isinstance(url, str) and urlsplit(url).hostname in _LOCAL_HOSTS
    except ValueError:
        return False


def lease_ports(
    run_id: str,
    *,
    blocks: Sequence[int] | None = None,
    are_free: Callable[[int], bool] | None = None,
) -> int:
    """Return the first port of a block that nobody else on this machine has, until this process
    ends.

    A lease is an abstract socket of the kernel: it is exclusive where ports are (among all users
    and containers of one network), and gone with the process, however that ends.

    Args:
        blocks: first ports to choose from, where another choice is wanted than that of this
            machine.
        are_free: whether the ports of a block can be bound.

    Raises:
        HarnessError: all blocks are taken.
    """
    choices = list(port_blocks() if blocks is None else blocks)
    start = int(hashlib.sha256(run_id.encode()).hexdigest(), 16) % len(choices)
    for base in choices[start:] + choices[:start]:
        lease = _try_lease(base)
        if lease is None:
            continue
        if (are_free or _are_free)(base):
            if not _held:
                atexit.register(_release)
            _held.append(lease)
            return base
        lease.close()
    raise HarnessError(
        f"no free ports for the run: all {len(choices)} blocks of {BLOCK} from {choices[0]} on are"
        " in use",
        "run fewer at once on this machine, or set trainer.ports=fixed for one run per node",
    )


def _release() -> None:
    while _held:
        _held.pop().close()


def port_blocks(ephemeral: tuple[int, int] | None = None) -> list[int]:
    """Return the first ports of all blocks: outside those that the kernel hands out itself, where
    enough are left.

    Args:
        ephemeral: first and last port that the kernel hands out; None asks this machine.
    """
    low, high = _ephemeral_range() if ephemeral is None else ephemeral
    blocks = list(range(FIRST, LAST, BLOCK))
    outside = [base for base in blocks if base + BLOCK <= low or base > high]
    return outside if len(outside) >= _MIN_BLOCKS else blocks


def _ephemeral_range() -> tuple[int, int]:
    try:
        low, high = _EPHEMERAL.read_text(encoding="ascii").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32_768, 60_999


def _try_lease(base: int) -> socket.socket | None:
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.bind(f"\0ablation-harness/ports/{base}")
    except OSError as error:
        lease.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lease


def _are_free(base: int) -> bool:
    return all(_can_bind(port) for port in _ports_of(base))


def _ports_of(base: int) -> Iterator[int]:
    return (base + offset for offset in _OFFSETS)


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tested:
        tested.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tested.bind(("", port))
        except OSError:
            return False
    return True
