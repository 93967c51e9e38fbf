"""One submitter per sweep: an exclusive link that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.records.files import create_exclusive, read_json, to_json
from harness.records.layout import SweepPaths
from harness.records.model import SCHEMA_VERSION, from_record, to_record
from harness.runner.process import Liveness, host_name, process_liveness, process_start


@dataclass(frozen=True)
class LockHolder:
    """What stands in a lock: the process that holds it, and since when."""

    schema_version: int
    host: str
    pid: int
    pid_started: str
    time: float
    nonce: str

    @property
    def liveness(self) -> Liveness:
        return process_liveness(self.host, self.pid, self.pid_started, self.time)


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds."""

    path: Path
    holder: LockHolder

    def release(self) -> None:
        """Remove the lock, unless someone has removed it already and another holds a new one."""
        with contextlib.suppress(HarnessError):
            if read_json(self.path).get("nonce") == self.holder.nonce:
                self.path.unlink(missing_ok=True)


def acquire_lock(sweep: SweepPaths) -> Lock:
    """Take the sweep's lock.

    A lock whose process is proven to be gone is broken with a note on stderr; of several that
    break it at once exactly one gets it.

    Raises:
        UsageError: another process holds it, or may hold it; names host, pid and age.
    """
    holder = LockHolder(
        schema_version=SCHEMA_VERSION,
        host=host_name(),
        pid=os.getpid(),
        pid_started=process_start(os.getpid()),
        time=time.time(),
        nonce=secrets.token_hex(8),
    )
    content = to_json(to_record(holder))
    while not create_exclusive(sweep.lock, content):
        if (current := read_lock(sweep)) is None:
            continue
        if current.liveness is not Liveness.DEAD:
            raise _is_held(sweep, current)
        _break(sweep.lock, current)
    return Lock(sweep.lock, holder)


@contextlib.contextmanager
def hold_lock(sweep: SweepPaths) -> Iterator[Lock]:
    """Hold the sweep's lock for the body, unless the body releases it earlier.

    Raises:
        UsageError: another process holds it, or may hold it; or the folder can't be written.
    """
    try:
        lock = acquire_lock(sweep)
    except OSError as error:
        raise UsageError(
            f"`{sweep.root}` can't be written: {error.strerror or error}",
            "choose another folder with HARNESS_OUTPUTS",
        ) from error
    try:
        yield lock
    finally:
        lock.release()


def read_lock(sweep: SweepPaths) -> LockHolder | None:
    """Return who holds the sweep's lock, or None. Raises HarnessError where it can't be read."""
    try:
        data = read_json(sweep.lock)
    except HarnessError:
        if not sweep.lock.exists():
            return None
        raise
    return from_record(LockHolder, data, where=str(sweep.lock))


def require_no_live_lock(sweep: SweepPaths) -> None:
    """Raise UsageError where another process holds, or may hold, the sweep's lock."""
    holder = read_lock(sweep)
    if holder is not None and holder.liveness is not Liveness.DEAD:
        raise _is_held(sweep, holder)


def _is_held(sweep: SweepPaths, holder: LockHolder) -> UsageError:
    hint = f"see `harness status {sweep.name}`, end it with `harness cancel {sweep.name}`"
    if holder.liveness is Liveness.UNKNOWN:
        hint += f"; if that process is certainly gone, delete `{sweep.lock}`"
    return UsageError(
        f"sweep `{sweep.name}` is being run by pid {holder.pid} on {holder.host}, "
        f"for {_show_age(time.time() - holder.time)}",
        hint,
    )


def _break(path: Path, stale: LockHolder) -> None:
    """Remove the lock if it still is the one judged stale.

    Everyone who can prove a process dead is on its machine, where a lock on the file's content
    keeps them apart: who comes second finds another file at the path, or none.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the check below remains
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        content = os.pread(descriptor, 1 << 16, 0)
        with contextlib.suppress(FileNotFoundError):
            is_same = path.stat().st_ino == os.fstat(descriptor).st_ino
            if is_same and json.loads(content).get("nonce") == stale.nonce:
                path.unlink()
                age = _show_age(time.time() - stale.time)
                print(
                    f"note: broke the lock of pid {stale.pid} on {stale.host}, which is gone "
                    f"(taken {age} ago)",
                    file=sys.stderr,
                )
    finally:
        os.close(descriptor)


def _show_age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
