"""Calls the double's `rl` as a person would, with documents of prime-rl's keys."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.harness.trainers.prime_rl.fake.checkout import rl_command

DEADLINE_S = 60
PORT_KEYS = (
    ("inference", "server", "port"),
    ("inference", "backend_port"),
    ("orchestrator", "env_server_base_port"),
    ("weight_broadcast", "port"),
    ("rollout_transport", "port"),
)


def make_document(output_dir: Path, *, name: str = "run", max_steps: int = 4) -> dict[str, Any]:
    """Return a small document that runs on one node, with ports of its own."""
    document: dict[str, Any] = {
        "max_steps": max_steps,
        "output_dir": str(output_dir),
        "run": {"name": name},
        "ckpt": {"interval": 2},
        "trainer": {"loss": {"type": "ipo"}},
        "orchestrator": {
            "batch_size": 16,
            "group_size": 4,
            "train": {"source": [{"name": "toy", "env": {"taskset": {"id": "toy-tasks"}}}]},
        },
        "inference": {},
        "weight_broadcast": {"type": "nccl"},
        "rollout_transport": {"type": "zmq"},
    }
    with ExitStack() as stack:
        for path in PORT_KEYS:
            put(document, path, _free_port(stack))
    port = document["inference"]["server"]["port"]
    put(document, ("orchestrator", "model", "client", "base_url"), f"http://localhost:{port}/v1")
    return document


def put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value


def start_rl(
    checkout: Path,
    folder: Path,
    document: Mapping[str, Any],
    *flags: str,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `rl @ FILE FLAGS` in the checkout."""
    path = folder / "rl.json"
    path.write_text(json.dumps(document))
    own = {"FAKE_RL_STEP_S": "0.01", "NO_COLOR": "1"}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PRL_", "FAKE_RL_"))}
    return subprocess.Popen(
        [*rl_command(checkout), "@", str(path), *flags],
        cwd=checkout,
        env={**inherited, **own, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_rl(
    checkout: Path, folder: Path, document: Mapping[str, Any], *flags: str, **env: str
) -> tuple[int, str]:
    """Return the exit code of `rl` and what it said, the frames of its boxes taken out."""
    process = start_rl(checkout, folder, document, *flags, env=env)
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, " ".join((err + out).replace("│", " ").split())


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _free_port(stack: ExitStack) -> int:
    server = stack.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    port: int = server.getsockname()[1]
    return port
