# mypy: ignore-errors
"""TEST DOUBLE of prime-rl: what its processes have in common.

Variables that make a part do what real ones do at times:

- FAKE_RL_STEP_S: seconds that a step takes (0.05).
- FAKE_RL_FAIL_AT, FAKE_RL_FAIL_IN_SAVE: step at which the trainer dies, at its beginning or within
  the writing of its checkpoint; with FAKE_RL_FAIL_UNLESS=FILE only while there is no such file.
- FAKE_RL_HOLD_AT with FAKE_RL_GATE=FILE: step before which the trainer waits for the file.
- FAKE_RL_NAN_FROM: step from which the mismatch KL is not finite.
- FAKE_RL_IGNORE_SIGTERM=1: no process of the run ends at SIGTERM.
"""

import json
import math
import os
import random
import socket
import sys
import time
from pathlib import Path

from prime_rl.utils.layout import HAS_PRODUCER

DEADLINE_S = 30.0


def knob(name: str) -> int | None:
    value = os.environ.get(f"FAKE_RL_{name}")
    return None if value is None else int(value)


def read_config() -> dict:
    """Return the config behind `@`."""
    return json.loads(Path(sys.argv[sys.argv.index("@") + 1]).read_text())


def option(name: str, default=None):
    """Return the value of `--name value` or `--name=value`."""
    for i, word in enumerate(sys.argv):
        if word == f"--{name}":
            return sys.argv[i + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return default


def say(text: str) -> None:
    print(text, flush=True)


def listen(port: int) -> socket.socket:
    """Hold a port; a second holder fails, as with a real server."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(64)
    return server


def wait_for(holds, what: str, deadline_s: float = math.inf) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:.0f} s for {what}")
        time.sleep(0.01)


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def serve(ports: list[int]) -> None:
    """Hold ports until the end, hanging up on whoever calls."""
    servers = [listen(port) for port in ports]
    say(f"listening on {', '.join(map(str, ports))}")
    while True:
        connection, _ = servers[0].accept()
        connection.close()


class Monitor:
    """The metrics file, to which trainer and orchestrator both append."""

    def __init__(self, config: dict, producer: str) -> None:
        self.producer = producer
        self.file = None
        if config["monitors"]["file"] is not None:
            path = Path(config["output_dir"]) / config["monitors"]["file"]["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", buffering=1)

    def log(self, step: int | None, values: dict[str, float]) -> None:
        """Append a row; values that are not finite are left out."""
        row = {"step": step, "time": time.time()}
        if HAS_PRODUCER:
            row["producer"] = self.producer
        finite = {key: value for key, value in values.items() if math.isfinite(value)}
        if self.file is not None and finite:
            self.file.write(json.dumps(row | finite) + "\n")


def start_step(config: dict) -> int:
    """Return the step of the checkpoint to go on from; 0 for none."""
    folder = resume_dir(config)
    return 0 if folder is None else int(folder.name.removeprefix("step_"))


def resume_dir(config: dict) -> Path | None:
    """Return the folder `step_<n>` to go on from, whether it is whole or not."""
    resume = config["resume"]
    if resume is None:
        return None
    if resume["dir"] is not None:
        return Path(resume["dir"])
    at = (config["ckpt"] or {}).get("output_dir") or config["output_dir"]
    if resume["step"] is not None:
        return Path(at) / "checkpoints" / f"step_{resume['step']}"
    found = (Path(at) / "checkpoints").glob("step_*")
    return max(found, key=lambda p: int(p.name.removeprefix("step_")), default=None)


def is_saved(config: dict, step: int) -> bool:
    """Whether a checkpoint is written after `step`: each interval, and the last one."""
    ckpt = config["ckpt"]
    if ckpt is None:
        return False
    return step == config["max_steps"] or bool(ckpt["interval"] and step % ckpt["interval"] == 0)


def uniform(*what) -> float:
    """Return a number in [0, 1) that depends on `what` alone."""
    return random.Random(json.dumps(what, sort_keys=True)).random()


def run_id() -> str:
    return os.environ["PRL_RUN_ID"]
