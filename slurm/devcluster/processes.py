"""Daemons, known by pid files that a recycled pid can't fool."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from devcluster.errors import ClusterError
from devcluster.layout import Cluster

POLL_S = 0.05
RECORD_ITSELF = (
    'echo "$$ $(cut -d" " -f22 "/proc/$$/stat")" >"$0.new" && mv "$0.new" "$0" && exec "$@"'
)
"""The daemon's own process writes its pid and start time before it becomes the daemon, so that a
start that dies at any moment leaves no daemon without a pid file."""


def start_daemon(cluster: Cluster, daemon: str, argv: Sequence[str]) -> None:
    """Start a daemon in the foreground of a session of its own; it outlives this process."""
    pid_file = cluster.pid_file(daemon)
    pid_file.unlink(missing_ok=True)
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    with cluster.output(daemon).open("ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", RECORD_ITSELF, str(pid_file), *argv],
            env={**env, "SLURM_CONF": str(cluster.slurm_conf)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    wait_for(
        lambda: pid_file.exists() or process.poll() is not None,
        f"{daemon} to start",
        timeout_s=10,
    )


def daemon_pid(cluster: Cluster, daemon: str) -> int | None:
    """Return the pid of a daemon that runs; None for one that ended or was never started.

    A process that merely got the same pid is told apart by its start time.
    """
    recorded = _recorded(cluster.pid_file(daemon))
    if recorded is None:
        return None
    pid, started = recorded
    return pid if start_time(pid) == started else None


def daemons(cluster: Cluster) -> tuple[str, ...]:
    """Return the daemons that have a pid file."""
    return tuple(sorted(path.stem for path in (cluster.dir / "run").glob("*.pid")))


def _recorded(pid_file: Path) -> tuple[int, int] | None:
    try:
        pid, started = pid_file.read_text().split()
        return int(pid), int(started)
    except (FileNotFoundError, ValueError):
        return None


def start_time(pid: int) -> int | None:
    """Return when a process started (ticks since boot); None where it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def send(cluster: Cluster, daemon: str, number: signal.Signals) -> bool:
    """Send a signal to a daemon; False where it doesn't run."""
    pid = daemon_pid(cluster, daemon)
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def is_up(cluster: Cluster, daemon: str) -> bool:
    return daemon_pid(cluster, daemon) is not None


def end_daemon(cluster: Cluster, daemon: str, *, timeout_s: float = 10.0) -> None:
    """End a daemon by TERM, after `timeout_s` by KILL; returns once it is gone."""
    if send(cluster, daemon, signal.SIGTERM) and not is_true_within(
        lambda: daemon_pid(cluster, daemon) is None, timeout_s
    ):
        kill_daemon(cluster, daemon)
    cluster.pid_file(daemon).unlink(missing_ok=True)


def kill_daemon(cluster: Cluster, daemon: str) -> bool:
    """End a daemon by KILL; returns once it is gone, with False where it didn't run."""
    sent = send(cluster, daemon, signal.SIGKILL)
    if sent:
        wait_for(lambda: daemon_pid(cluster, daemon) is None, f"{daemon} to end", timeout_s=10)
    cluster.pid_file(daemon).unlink(missing_ok=True)
    return sent


def wait_for_daemon(
    cluster: Cluster, daemon: str, condition: Callable[[], bool], *, timeout_s: float = 60.0
) -> None:
    """Wait until a daemon answers; ClusterError with its last words where it ends or hangs."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if daemon_pid(cluster, daemon) is None:
            raise ClusterError(f"{daemon} ended while it started{last_words(cluster, [daemon])}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{daemon} doesn't answer after {timeout_s:.0f} s{last_words(cluster, [daemon])}"
            )
        time.sleep(POLL_S)


def last_words(cluster: Cluster, names: Iterable[str], lines: int = 5) -> str:
    """Return the last lines that daemons wrote, to end an error with."""
    found = []
    for daemon in names:
        for path in (cluster.output(daemon), cluster.log(daemon)):
            if path.exists() and (text := path.read_text(errors="replace").strip()):
                found += [f"\n  {daemon}: {line}" for line in text.splitlines()[-lines:]]
                break
    return "".join(found)


def is_true_within(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float) -> None:
    if not is_true_within(condition, timeout_s):
        raise ClusterError(f"waited {timeout_s:.0f} s for {what}")
