"""Break a part of a cluster, or mend it again."""

from __future__ import annotations

from devcluster import accounting
from devcluster.errors import ClusterError, UsageError
from devcluster.layout import Cluster, Settings, locked, node_names
from devcluster.lifecycle import CONTROLLER, clear_jobs, start_controller, wait_for_node
from devcluster.nodes import kill_job_processes, start_slurmd
from devcluster.processes import end_daemon, is_up, kill_daemon
from devcluster.talk import say

NODE_FAULTS = ("kill-node", "start-node")
DBD_FAULTS = ("kill-dbd", "start-dbd")
FAULTS = (
    *NODE_FAULTS,
    "kill-controller",
    "stop-controller",
    "start-controller",
    *DBD_FAULTS,
    "clear-jobs",
)


def inject(cluster: Cluster, fault: str, node: str | None, *, with_jobs: bool) -> None:
    """Do one of FAULTS; doing what is done already is no error."""
    with locked(cluster) as is_there:
        settings = cluster.settings() if is_there else None
        if settings is None or not cluster.ready_file.exists():
            raise ClusterError(f"no cluster `{cluster.name}` is running")
        if fault in DBD_FAULTS and not settings.accounting:
            raise UsageError(f"cluster `{cluster.name}` has no accounting")
        if fault in NODE_FAULTS:
            _break_or_mend_node(cluster, fault, _checked(cluster, settings, fault, node), with_jobs)
        elif node is not None:
            raise UsageError(f"`{fault}` takes no node, got `{node}`")
        else:
            _break_or_mend(cluster, settings, fault)


def _checked(cluster: Cluster, settings: Settings, fault: str, node: str | None) -> str:
    names = node_names(settings.nodes)
    if node is None:
        raise UsageError(f"`{fault}` wants a node", f"one of {', '.join(names)}")
    if node not in names:
        raise UsageError(
            f"no node `{node}` in cluster `{cluster.name}`", f"its nodes: {', '.join(names)}"
        )
    return node


def _break_or_mend_node(cluster: Cluster, fault: str, node: str, with_jobs: bool) -> None:
    if fault == "kill-node":
        _kill(cluster, node)
        if with_jobs:
            say(f"killed {kill_job_processes(cluster, [node])} processes of jobs on {node}")
    elif not is_up(cluster, node):
        start_slurmd(cluster, node)
        if is_up(cluster, CONTROLLER):
            wait_for_node(cluster, node)


def _break_or_mend(cluster: Cluster, settings: Settings, fault: str) -> None:
    match fault:
        case "kill-controller":
            _kill(cluster, CONTROLLER)
        case "stop-controller":
            end_daemon(cluster, CONTROLLER)
        case "start-controller":
            if not is_up(cluster, CONTROLLER):
                start_controller(cluster)
        case "kill-dbd":
            _kill(cluster, accounting.DBD)
        case "start-dbd":
            if not is_up(cluster, accounting.DBD):
                accounting.start_dbd(cluster)
        case "clear-jobs":
            clear_jobs(cluster, settings)


def _kill(cluster: Cluster, daemon: str) -> None:
    say(f"killed {daemon}" if kill_daemon(cluster, daemon) else f"{daemon} was not running")
