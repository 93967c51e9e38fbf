"""Processes of this machine: who is still alive, and ends that leave nothing behind.

Linux only: /proc, prctl.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path

from harness.errors import HarnessError

PARENT_PID_ENV = "HARNESS_PARENT_PID"
"""Set by a dispatcher that its runners must not outlive: its pid."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STATE, _PARENT, _SESSION, _START = 0, 1, 3, 19  # fields of /proc/<pid>/stat after the name


class Liveness(StrEnum):
    """What can be said of a process from here."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def host_name() -> str:
    """Return this machine's name, as records hold it."""
    return os.uname().nodename


def process_start(pid: int) -> str:
    """Return a text that no other process of this machine ever has, or "" where none runs.

    It holds the boot id, the pid namespace and the start time in clock ticks since boot: a pid
    alone is used again, and means another process in another container.
    """
    stat = _stat(pid)
    if stat is None or stat[_STATE] in "ZX":
        return ""
    return f"{_boot_id()}/{_pid_namespace()}/{stat[_START]}"


def process_liveness(host: str, pid: int, started: str, recorded: float) -> Liveness:
    """Say whether the process that wrote a record still runs.

    Args:
        started: its `process_start`.
        recorded: when it wrote the record, in seconds since the epoch.

    Returns:
        DEAD only where it is proven: this machine, and the process is gone or the machine has
        been started anew since `recorded`. UNKNOWN for other machines and other containers.
    """
    parts = started.split("/")
    if host != host_name() or len(parts) != 3:
        return Liveness.UNKNOWN
    boot_id, namespace, _ = parts
    if boot_id != _boot_id():
        # Two machines may share a name such as `localhost`: only a later boot proves a restart.
        return Liveness.DEAD if recorded < _boot_time() else Liveness.UNKNOWN
    if namespace != _pid_namespace():
        return Liveness.UNKNOWN
    return Liveness.ALIVE if process_start(pid) == started else Liveness.DEAD


def end_with_parent(parent_pid: int, signal_number: int) -> bool:
    """Ask the kernel for `signal_number` when the parent dies; False where it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    return os.getppid() == parent_pid


def trainer_setup(
    blocked: Collection[int] = (), ignored: Collection[int] = ()
) -> Callable[[], None]:
    """Return what a trainer's process does before it becomes the program.

    The kernel kills it when this process (the thread that forks) dies, in whatever way.

    Args:
        blocked: signals that the program begins with blocked.
        ignored: signals that don't end the program unless it handles them.
    """
    parent_pid = os.getpid()

    def prepare() -> None:
        if not end_with_parent(parent_pid, signal.SIGKILL):
            os._exit(127)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for ignored_number in ignored:
            signal.signal(ignored_number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    return prepare


def adopt_orphans(is_on: bool = True) -> None:
    """Become the parent of every descendant whose own parent dies, also of those in a session of
    their own."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(is_on))


def reap() -> dict[int, int]:
    """Return pid -> wait status of all children that have ended and weren't waited for."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def kill_descendants(timeout_s: float = 10.0) -> list[int]:
    """Kill all descendants and wait for them; the caller must have called `adopt_orphans`.

    Killing a child makes its children ours, so that the loop ends when none is left.

    Returns:
        Pids that did not end in time (stuck in the kernel); empty as a rule.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        reap()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return []
        left = children_of(os.getpid())
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.002)


def children_of(pid: int) -> list[int]:
    """Return the children of `pid` that haven't been waited for, zombies included."""
    return [p for p in _all_pids() if (stat := _stat(p)) is not None and stat[_PARENT] == str(pid)]


def session_of(pid: int) -> int | None:
    """Return the session id of `pid` (also of a zombie), None where there is no such process."""
    stat = _stat(pid)
    return None if stat is None else int(stat[_SESSION])


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that `pid` was started with; empty where it can't be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def pids_with(marks: Mapping[str, str]) -> list[int]:
    """Return the processes (this one excepted) that were started with `marks` in their
    environment, as far as it can be read."""
    return [
        pid
        for pid in _all_pids()
        if pid != os.getpid() and marks.items() <= environment_of(pid).items()
    ]


def kill_marked(marks: Mapping[str, str], timeout_s: float = 10.0) -> list[int]:
    """Kill every process that was started with `marks` in its environment.

    Returns:
        Pids that did not end in time; empty as a rule.
    """
    deadline = time.monotonic() + timeout_s
    while left := pids_with(marks):
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.005)
    return []


def send_signal(pid: int, number: int) -> None:
    """Signal one process; nothing happens where it is gone or another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def send_group_signal(group: int, number: int) -> None:
    """Signal a process group; nothing happens where it is gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _boot_time() -> float:
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise HarnessError(f"prctl({option}) failed: {os.strerror(number)}")
