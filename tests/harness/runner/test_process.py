from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from harness.runner.process import (
    Liveness,
    children_of,
    environment_of,
    host_name,
    process_liveness,
    process_start,
    session_of,
)


def own_start() -> tuple[str, str, str]:
    boot_id, namespace, ticks = process_start(os.getpid()).split("/")
    return boot_id, namespace, ticks


def test_process_start_tells_processes_apart_and_stays_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = process_start(child.pid)
        assert started == process_start(child.pid) != process_start(os.getpid())
        assert child.pid in children_of(os.getpid())
        assert session_of(child.pid) == os.getsid(0)
        child.kill()
    assert process_start(child.pid) == ""
    assert child.pid not in children_of(os.getpid())


def test_zombie_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start(child.pid) == ""
        assert child.pid in children_of(os.getpid())


def test_environment_of_another_process() -> None:
    env = {**os.environ, "MARK": "a=b\nc"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert environment_of(child.pid)["MARK"] == "a=b\nc"
        child.kill()


def test_liveness_of_this_process() -> None:
    started = process_start(os.getpid())
    assert process_liveness(host_name(), os.getpid(), started, time.time()) is Liveness.ALIVE


def test_same_pid_with_another_start_is_dead() -> None:
    boot_id, namespace, ticks = own_start()
    other = f"{boot_id}/{namespace}/{int(ticks) + 1}"
    assert process_liveness(host_name(), os.getpid(), other, time.time()) is Liveness.DEAD


@pytest.mark.parametrize("host", ["another-node", ""])
def test_process_of_another_machine_is_unknown(host: str) -> None:
    started = process_start(os.getpid())
    assert process_liveness(host, os.getpid(), started, time.time()) is Liveness.UNKNOWN


def test_process_of_another_container_is_unknown() -> None:
    boot_id, _, ticks = own_start()
    other = f"{boot_id}/1/{ticks}"
    assert process_liveness(host_name(), os.getpid(), other, time.time()) is Liveness.UNKNOWN


def test_process_from_before_a_restart_is_dead() -> None:
    _, namespace, ticks = own_start()
    other = f"11111111-2222-3333-4444-555555555555/{namespace}/{ticks}"
    assert process_liveness(host_name(), os.getpid(), other, recorded=0.0) is Liveness.DEAD


def test_process_of_a_machine_with_the_same_name_is_unknown() -> None:
    _, namespace, ticks = own_start()
    other = f"11111111-2222-3333-4444-555555555555/{namespace}/{ticks}"
    now = time.time() + 1
    assert process_liveness(host_name(), os.getpid(), other, recorded=now) is Liveness.UNKNOWN


@pytest.mark.parametrize("started", ["", "a/b", "1234"])
def test_unreadable_start_is_unknown(started: str) -> None:
    assert process_liveness(host_name(), os.getpid(), started, 0.0) is Liveness.UNKNOWN
