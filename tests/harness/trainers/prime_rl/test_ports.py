from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.trainers.prime_rl import ports
from harness.trainers.prime_rl.ports import lease_ports, port_blocks, set_ports

OUTER = os.getpid() % 1000 * 1_000_000
"""Blocks of this test process alone: leases last as long as it does."""
LEASE = """\
import sys
from harness.trainers.prime_rl.ports import lease_ports
blocks = [int(text) for text in sys.argv[2:]]
print(lease_ports(sys.argv[1], blocks=blocks, are_free=lambda base: True), flush=True)
sys.stdin.read()
"""


def _with_ports(document: dict[str, Any]) -> dict[str, Any]:
    set_ports(document, 20000)
    return document


def test_a_plain_document_gets_every_port_that_the_run_would_open() -> None:
    assert _with_ports({"inference": {}, "trainer": {}}) == {
        "inference": {"server": {"port": 20000}, "vllm": {"data_parallel_rpc_port": 20012}},
        "trainer": {},
        "orchestrator": {
            "model": {"client": {"base_url": "http://localhost:20000/v1"}},
            "env_server_base_port": 20020,
        },
        "weight_broadcast": {"type": "nccl", "port": 20010},
        "rollout_transport": {"type": "zmq", "port": 20011},
    }


def test_ports_that_are_set_move_into_the_block() -> None:
    document = {
        "inference": {"server": {"host": "0.0.0.0", "port": 8000}, "backend_port": 8200},
        "weight_broadcast": {"type": "nccl", "port": 29501, "timeout": 3600},
        "trainer": {"metrics_server": {"port": 8000}},
        "rollout_transport": {"type": "zmq", "hwm": 20},
        "orchestrator": {
            "env_server_base_port": 5000,
            "model": {"client": {"admin_base_url": ["http://localhost:8200/v1"]}},
        },
    }
    assert _with_ports(document) == {
        "inference": {
            "server": {"host": "0.0.0.0", "port": 20000},
            "backend_port": 20100,
            "vllm": {"data_parallel_rpc_port": 20012},
        },
        "weight_broadcast": {"type": "nccl", "port": 20010, "timeout": 3600},
        "trainer": {"metrics_server": {"port": 20013}},
        "rollout_transport": {"type": "zmq", "hwm": 20, "port": 20011},
        "orchestrator": {
            "env_server_base_port": 20020,
            "model": {"client": {"base_url": "http://localhost:20000/v1"}},
        },
    }


def test_transports_that_open_no_port_or_a_servers_stay_as_they_are() -> None:
    document = _with_ports(
        {
            "inference": {},
            "weight_broadcast": {"type": "nixl", "port": 8001},
            "rollout_transport": {"type": "filesystem"},
        }
    )
    assert document["weight_broadcast"] == {"type": "nixl", "port": 8001}
    assert document["rollout_transport"] == {"type": "filesystem"}


def test_a_transport_of_the_parts_is_set_there() -> None:
    zmq = {"type": "zmq"}
    document = _with_ports(
        {"trainer": {"rollout_transport": dict(zmq)}, "orchestrator": {"rollout_transport": zmq}}
    )
    assert "rollout_transport" not in document
    assert document["trainer"]["rollout_transport"] == {"type": "zmq", "port": 20011}
    assert document["orchestrator"]["rollout_transport"] == {"type": "zmq", "port": 20011}


def test_lora_keeps_the_broadcast_over_files() -> None:
    document = _with_ports({"inference": {}, "trainer": {"model": {"lora": {}}}})
    assert "weight_broadcast" not in document


def test_a_server_of_somebody_else_keeps_its_address() -> None:
    client = {"base_url": "http://gpu7:8000/v1", "admin_base_url": ["http://gpu7:8100/v1"]}
    document = _with_ports({"orchestrator": {"model": {"client": dict(client)}}})
    assert document["orchestrator"]["model"]["client"] == client
    assert "inference" not in document
    assert "weight_broadcast" not in document


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://127.0.0.1:8000/v1", "http://localhost:20000/v1"),
        ("http://0.0.0.0:8000/v1", "http://localhost:20000/v1"),
        ("http://gpu7:8000/v1", "http://gpu7:20000/v1"),
    ],
)
def test_the_client_asks_the_runs_own_server(url: str, wanted: str) -> None:
    document = _with_ports(
        {"inference": {}, "orchestrator": {"model": {"client": {"base_url": url}}}}
    )
    assert document["orchestrator"]["model"]["client"]["base_url"] == wanted


def test_blocks_avoid_the_ports_that_the_kernel_hands_out() -> None:
    assert port_blocks((32768, 60999)) == list(range(20000, 32600, 200))
    assert port_blocks((10000, 29999)) == list(range(30000, 60000, 200))


def test_blocks_are_taken_anywhere_where_too_few_are_left() -> None:
    assert port_blocks((1024, 65535)) == list(range(20000, 60000, 200))
    assert len(port_blocks((20400, 65535))) == 200


def test_a_block_is_leased_once_until_its_process_ends() -> None:
    blocks = [OUTER + 1, OUTER + 2]
    command = [sys.executable, "-c", LEASE, "run", *map(str, blocks)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    second = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert second.stdout is not None
        taken = [int(first.stdout.readline()), int(second.stdout.readline())]
        assert sorted(taken) == blocks
        with pytest.raises(HarnessError, match="all 2 blocks of 200 from .* are in use") as raised:
            lease_ports("run", blocks=blocks, are_free=lambda base: True)
        assert "trainer.ports=fixed" in raised.value.hint
        first.kill()
        first.wait()
        assert lease_ports("run", blocks=blocks, are_free=lambda base: True) == taken[0]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_a_block_with_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not ports._are_free(port - 20)
    blocks = [OUTER + 11, OUTER + 12]
    assert lease_ports("run", blocks=blocks, are_free=lambda base: base == blocks[1]) == blocks[1]


def test_this_machine_has_a_free_block() -> None:
    assert lease_ports(Path(__file__).name) in port_blocks()
