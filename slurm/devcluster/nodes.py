"""The compute nodes: a slurmd with eight device nodes for GPUs, under a host name of its own.

A node's host name lives in a UTS namespace, which a process that only sleeps holds open. All
processes of the node are in it, also those that left their parent, so that a node can be
ended whole. Where namespaces are denied (a container without CAP_SYS_ADMIN), nodes bear the
machine's name, and a node's processes are what its slurmstepd started.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from devcluster.conf import GPUS_PER_NODE
from devcluster.layout import Cluster
from devcluster.processes import daemon_pid, is_true_within, start_daemon

NULL_DEVICE = os.makedev(1, 3)


def holder(node: str) -> str:
    """Return the daemon name of the process that holds a node's host name."""
    return f"{node}-host"


def can_name_hosts() -> bool:
    """Whether this process may make UTS namespaces."""
    tried = subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def make_gpus(cluster: Cluster) -> None:
    """Make the device nodes that stand for the GPUs; each is /dev/null by another name."""
    for index in range(GPUS_PER_NODE):
        os.mknod(cluster.devices_dir / f"nvidia{index}", 0o666 | stat.S_IFCHR, NULL_DEVICE)


def start_holder(cluster: Cluster, node: str) -> None:
    script = 'hostname "$0" && exec sleep infinity'
    start_daemon(cluster, holder(node), ["unshare", "--uts", "sh", "-c", script, node])


def start_slurmd(cluster: Cluster, node: str) -> None:
    argv = ["slurmd", "-D", "-N", node, "-f", str(cluster.slurm_conf)]
    pid = daemon_pid(cluster, holder(node))
    if pid is not None:
        argv = ["nsenter", f"--uts=/proc/{pid}/ns/uts", *argv]
    start_daemon(cluster, node, argv)


def job_processes(cluster: Cluster, node: str) -> set[int]:
    """Return the pids of a node's steps and all that they started; not slurmd, not the holder."""
    keeper = daemon_pid(cluster, holder(node))
    if keeper is None:
        return _started_by_steps(cluster, node)
    namespace = _link(f"/proc/{keeper}/ns/uts")
    members = {pid for pid in _pids() if _link(f"/proc/{pid}/ns/uts") == namespace}
    return members - {keeper, daemon_pid(cluster, node)}


def kill_job_processes(cluster: Cluster, nodes: Iterable[str], *, spare_steps: bool = False) -> int:
    """Kill all job processes of some nodes; returns how many there were, once they are gone.

    All are stopped before the first dies, so that no slurmstepd lives to report an end.

    Args:
        spare_steps: kill no slurmstepd, so that each reports the end of its step.
    """
    names = tuple(nodes)
    killed: set[int] = set()

    def none_is_left() -> bool:
        left = {pid for node in names for pid in job_processes(cluster, node)}
        if spare_steps:
            left = {pid for pid in left if not _is_step(pid)}
        killed.update(left)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        return not left

    is_true_within(none_is_left, 10)
    return len(killed)


def _started_by_steps(cluster: Cluster, node: str) -> set[int]:
    """Return the slurmstepd processes that write to the node's log, with their descendants."""
    children: dict[int, list[int]] = {}
    found: list[int] = []
    log = str(cluster.log(node))
    slurmd = daemon_pid(cluster, node)
    for pid in _pids():
        children.setdefault(_parent(pid), []).append(pid)
        if pid != slurmd and _has_open(pid, log):
            found.append(pid)
    seen: set[int] = set()
    while found:
        pid = found.pop()
        if pid not in seen:
            seen.add(pid)
            found += children.get(pid, [])
    return seen


def _is_step(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "slurmstepd\n"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:  # The process has ended, or is a zombie.
        return None


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[1])


def _has_open(pid: int, path: str) -> bool:
    try:
        return any(_link(str(fd)) == path for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
