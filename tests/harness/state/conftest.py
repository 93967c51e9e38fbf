from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from harness.runner.process import host_name, process_start
from tests.harness.state.records import TRAINS

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep


@pytest.fixture
def sweep(make_sweep: Callable[..., DiskSweep]) -> DiskSweep:
    return make_sweep({"ok": TRAINS}, max_steps=100)


@pytest.fixture(scope="session")
def dead() -> dict[str, Any]:
    """Host, pid and start of a process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        process.kill()
    return {"host": host_name(), "pid": process.pid, "pid_started": started}
