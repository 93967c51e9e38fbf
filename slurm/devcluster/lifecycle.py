"""Start and stop a whole cluster; a start that fails leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, fields

from devcluster import accounting, memory
from devcluster.clients import slurm
from devcluster.conf import cgroup_conf, gres_conf, slurm_conf
from devcluster.errors import UsageError
from devcluster.layout import Cluster, Options, Settings, empty, locked, node_names, remove
from devcluster.nodes import (
    can_name_hosts,
    holder,
    job_processes,
    kill_job_processes,
    make_gpus,
    start_holder,
    start_slurmd,
)
from devcluster.ports import free_block
from devcluster.processes import (
    daemons,
    end_daemon,
    is_true_within,
    is_up,
    start_daemon,
    wait_for_daemon,
)
from devcluster.talk import say

MUNGED, CONTROLLER = "munged", "slurmctld"
KILL_WAIT_S = 5.0
"""How long jobs have to end by themselves when the cluster stops, as KillWait."""
CLEAR_GRACE_S = 1.0
"""How long they have when only they are cleared."""
COMPLETING_S = 10.0
"""How long SLURM may take to see that killed jobs have ended."""


def start(cluster: Cluster, options: Options) -> None:
    """Start a cluster, or what of a running one is down.

    UsageError where one of this name runs with other options, or its folder is another's.
    """
    with locked(cluster, create=True):
        settings = cluster.settings()
        if settings is not None and cluster.ready_file.exists() and is_up(cluster, MUNGED):
            _check_same(cluster, settings, options)
            started = _start_daemons(cluster, settings)
            say(
                f"cluster `{cluster.name}` is running"
                + (f"; started {', '.join(started)}" if started else "")
            )
            return
        if not cluster.is_ours():
            raise UsageError(
                f"`{cluster.dir}` holds files that are no cluster's",
                "choose another --name or --state-dir",
            )
        if cluster.settings_file.exists():
            say(f"cleaning up what is left of an earlier cluster `{cluster.name}`")
            _end(cluster)
            empty(cluster)
        try:
            _start_new(cluster, options)
        except BaseException:
            _end(cluster)
            remove(cluster)
            raise


def _check_same(cluster: Cluster, settings: Settings, options: Options) -> None:
    for field in fields(Options):
        wanted, found = getattr(options, field.name), getattr(settings, field.name)
        if wanted != found:
            raise UsageError(
                f"cluster `{cluster.name}` runs with {field.name} `{found}`, not `{wanted}`",
                "stop it first, or choose another --name",
            )


def _start_new(cluster: Cluster, options: Options) -> None:
    with free_block() as first_port:
        settings = Settings(
            **asdict(options), first_port=first_port, own_hostnames=can_name_hosts()
        )
        if settings.memory_limits:
            memory.reserve(node_names(settings.nodes))
        cluster.write_settings(settings)
        cluster.make_dirs()
        cluster.slurm_conf.write_text(slurm_conf(cluster, settings))
        cluster.gres_conf.write_text(gres_conf(cluster))
        cluster.cgroup_conf.write_text(cgroup_conf(settings))
        make_gpus(cluster)
        if not settings.own_hostnames:
            say("namespaces are denied here: all nodes bear the machine's host name")
        start_munged(cluster)
        if settings.accounting:
            accounting.make_database(cluster, settings)
            accounting.register(cluster)
        _start_daemons(cluster, settings)
        cluster.ready_file.touch()


def _start_daemons(cluster: Cluster, settings: Settings) -> list[str]:
    """Start the daemons that are down, munged aside; returns them once all answer."""
    down = [daemon for daemon in expected_daemons(cluster) if not is_up(cluster, daemon)]
    if accounting.DATABASE in down:
        accounting.start_database(cluster, settings)
    if accounting.DBD in down:
        accounting.start_dbd(cluster)
    if CONTROLLER in down:
        start_controller(cluster)
    nodes = node_names(settings.nodes)
    for node in nodes:
        if holder(node) in down:
            start_holder(cluster, node)
        if node in down:
            start_slurmd(cluster, node)
    for node in nodes:
        wait_for_node(cluster, node)
    return down


def start_munged(cluster: Cluster) -> None:
    """Start a munged with a key and a socket of its own; the machine's munge is not touched."""
    cluster.munge_key.touch(mode=0o600)
    cluster.munge_key.write_bytes(os.urandom(128))
    start_daemon(
        cluster,
        MUNGED,
        [
            "munged",
            "--foreground",
            f"--key-file={cluster.munge_key}",
            f"--socket={cluster.munge_socket}",
            f"--pid-file={cluster.dir}/run/munged.own_pid",
            f"--seed-file={cluster.dir}/run/munged.seed",
            f"--log-file={cluster.log(MUNGED)}",
        ],
    )
    wait_for_daemon(cluster, MUNGED, cluster.munge_socket.exists)


def start_controller(cluster: Cluster) -> None:
    """Start slurmctld, from the state that an earlier one saved, and wait until it answers."""
    start_daemon(cluster, CONTROLLER, ["slurmctld", "-D", "-f", str(cluster.slurm_conf)])
    wait_for_daemon(
        cluster,
        CONTROLLER,
        lambda: slurm(cluster, "scontrol", "ping", check=False, timeout_s=15).returncode == 0,
    )


def wait_for_node(cluster: Cluster, node: str) -> None:
    """Wait until the controller may give jobs to a node; a drained node is resumed."""

    def can_take_jobs() -> bool:
        asked = slurm(
            cluster, "sinfo", "-h", "-N", "-n", node, "-p", "gpu", "-o", "%T", check=False
        )
        state = asked.stdout.strip()
        if "drain" in state:
            slurm(cluster, "scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        return state in ("idle", "mixed", "allocated", "completing")

    wait_for_daemon(cluster, node, can_take_jobs)


def expected_daemons(cluster: Cluster) -> tuple[str, ...]:
    """Return the daemons that a whole cluster has, in the order of their start."""
    settings = cluster.settings()
    if settings is None:
        return daemons(cluster)
    nodes = node_names(settings.nodes)
    return (
        MUNGED,
        *((accounting.DATABASE, accounting.DBD) if settings.accounting else ()),
        CONTROLLER,
        *(map(holder, nodes) if settings.own_hostnames else ()),
        *nodes,
    )


def stop(cluster: Cluster) -> bool:
    """End the jobs and all daemons and remove all files; False where there was nothing."""
    with locked(cluster) as is_there:
        if not is_there:
            return False
        if not cluster.is_ours():
            raise UsageError(f"`{cluster.dir}` holds files that are no cluster's")
        _end(cluster)
        remove(cluster)
        return True


def clear_jobs(cluster: Cluster, settings: Settings) -> None:
    """Cancel all jobs, kill what lives on for CLEAR_GRACE_S, and wait until SLURM has seen it."""
    nodes = node_names(settings.nodes)
    _cancel_jobs(cluster, nodes, CLEAR_GRACE_S)
    kill_job_processes(cluster, nodes, spare_steps=True)
    if is_up(cluster, CONTROLLER):
        is_true_within(lambda: not _job_ids(cluster), COMPLETING_S)
    kill_job_processes(cluster, nodes)


def _cancel_jobs(cluster: Cluster, nodes: Iterable[str], grace_s: float) -> None:
    """Cancel all jobs and wait up to `grace_s` for the end of their processes."""
    if is_up(cluster, CONTROLLER) and (jobs := _job_ids(cluster)):
        slurm(cluster, "scancel", *jobs, check=False, timeout_s=15)
        is_true_within(
            lambda: not any(job_processes(cluster, node) for node in nodes),
            grace_s,
        )


def _job_ids(cluster: Cluster) -> list[str]:
    return slurm(cluster, "squeue", "-h", "-o", "%A", check=False, timeout_s=15).stdout.split()


def _end(cluster: Cluster) -> None:
    """End the jobs, then all daemons in reverse order of their start."""
    settings = cluster.settings()
    nodes = node_names(settings.nodes) if settings else ()
    _cancel_jobs(cluster, nodes, KILL_WAIT_S)
    for node in nodes:
        end_daemon(cluster, node)
    kill_job_processes(cluster, nodes)
    order = expected_daemons(cluster)
    for daemon in (*(d for d in daemons(cluster) if d not in order), *reversed(order)):
        end_daemon(cluster, daemon)
    if settings and settings.memory_limits:
        memory.release(nodes)
