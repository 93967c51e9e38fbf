"""The commands `start`, `stop`, `status` and `fault`."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from devcluster import faults, lifecycle
from devcluster.errors import ClusterError, UsageError
from devcluster.layout import MAX_NODES, Options, cluster_at, clusters_under, default_root
from devcluster.packages import add_system_dirs, ensure_programs
from devcluster.processes import daemon_pid
from devcluster.talk import say

DEFAULT_NAME = "dev"
NOT_RUNNING = 3
"""Exit code of `status` where there is no such cluster, as systemctl's."""


def main(command: str, argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    0, 1 (it failed; `status`: a part is down), 2 (usage), 3 (`status`: no such cluster).
    """
    options = _parser(command).parse_args(argv)
    add_system_dirs()
    os.umask(0o022)  # munged refuses folders that others may write.
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Clean up as on Ctrl-C.
    try:
        return COMMANDS[command](options)
    except ClusterError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        say("error: interrupted")
        return 130


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"slurm/devcluster/{command}", description=DESCRIPTIONS[command], allow_abbrev=False
    )
    which = parser.add_mutually_exclusive_group() if command == "stop" else parser
    which.add_argument("--name", default=DEFAULT_NAME, help="of the cluster (default: %(default)s)")
    if command == "stop":
        which.add_argument("--all", action="store_true", help="all clusters in the state folder")
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        default=default_root(),
        help="each cluster has a folder of its name in here (default: %(default)s)",
    )
    if command == "start":
        parser.add_argument("--accounting", action="store_true", help="slurmdbd over MariaDB")
        parser.add_argument("--nodes", type=int, default=4, help="(default: %(default)s)")
        parser.add_argument(
            "--max-array-size",
            type=int,
            metavar="N",
            default=1001,
            help="indices of an array end below it (default: %(default)s)",
        )
        parser.add_argument(
            "--memory-limits",
            action="store_true",
            help="the kernel holds jobs to their memory (cgroups v1)",
        )
    if command == "fault":
        parser.add_argument(
            "fault", choices=faults.FAULTS, metavar="FAULT", help="one of: %(choices)s"
        )
        parser.add_argument("node", nargs="?", help="for kill-node and start-node: gpu01…")
        parser.add_argument(
            "--with-jobs",
            action="store_true",
            help="kill-node: as a machine that dies, not only its slurmd",
        )
    return parser


def _start(options: argparse.Namespace) -> int:
    if not 1 <= options.nodes <= MAX_NODES:
        raise UsageError(f"--nodes `{options.nodes}` is not within 1 and {MAX_NODES}")
    if not 2 <= options.max_array_size <= 4_000_001:
        raise UsageError(f"--max-array-size `{options.max_array_size}` is not within 2 and 4000001")
    cluster = cluster_at(options.state_dir, options.name)
    ensure_programs(accounting=options.accounting)
    lifecycle.start(
        cluster,
        Options(
            nodes=options.nodes,
            accounting=options.accounting,
            max_array_size=options.max_array_size,
            memory_limits=options.memory_limits,
        ),
    )
    print(cluster.exports())
    return 0


def _stop(options: argparse.Namespace) -> int:
    _need_root()
    if options.all:
        clusters = clusters_under(options.state_dir)
    else:
        clusters = [cluster_at(options.state_dir, options.name)]
    for cluster in clusters:
        was_there = lifecycle.stop(cluster)
        say(f"cluster `{cluster.name}` {'is stopped' if was_there else 'was not running'}")
    return 0


def _status(options: argparse.Namespace) -> int:
    cluster = cluster_at(options.state_dir, options.name)
    settings = cluster.settings()
    if settings is None:
        say(f"no cluster `{cluster.name}` is running")
        return NOT_RUNNING
    pids = {name: daemon_pid(cluster, name) for name in lifecycle.expected_daemons(cluster)}
    for daemon, pid in pids.items():
        print(f"{daemon:<12} {f'up, pid {pid}' if pid else 'down'}")
    print(cluster.exports())
    return 0 if all(pids.values()) else 1


def _fault(options: argparse.Namespace) -> int:
    _need_root()
    if options.with_jobs and options.fault != "kill-node":
        raise UsageError("--with-jobs belongs to `kill-node`")
    cluster = cluster_at(options.state_dir, options.name)
    faults.inject(cluster, options.fault, options.node, with_jobs=options.with_jobs)
    return 0


def _need_root() -> None:
    if os.geteuid() != 0:
        raise UsageError("a development cluster belongs to root", "run this command by sudo")


COMMANDS = {"start": _start, "stop": _stop, "status": _status, "fault": _fault}
DESCRIPTIONS = {
    "start": "Start a real SLURM on this machine; prints the line to eval in a shell.",
    "stop": "End a cluster: its jobs, its processes, its files.",
    "status": "Show what of a cluster is up.",
    "fault": "Break a part of a cluster, or mend it again.",
}
