"""The texts of the configuration files."""

from __future__ import annotations

import socket

from devcluster import ports
from devcluster.layout import Cluster, Settings, node_names

GPUS_PER_NODE = 8
CPUS_PER_NODE = 64
MEMORY_PER_NODE_MB = 512_000
GRACE_S = 10
"""GraceTime of the partition `low_grace`."""
DATABASE_NAME = "slurm"
DATABASE_USER = "slurm"


def slurm_conf(cluster: Cluster, settings: Settings) -> str:
    """Return slurm.conf: small timeouts, so that time limits and dead nodes show within seconds.

    Nodes claim more CPUs and memory than the machine has (`config_overrides`).
    """
    first, last = node_names(settings.nodes)[0], node_names(settings.nodes)[-1]
    port = settings.first_port + ports.FIRST_NODE
    host = socket.gethostname().partition(".")[0]
    hostname = "" if settings.own_hostnames else f"NodeHostname={host} "
    accounting = (
        f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={settings.first_port + ports.DBD}
AccountingStoragePass={cluster.munge_socket}
AccountingStorageTRES=gres/gpu
"""
        if settings.accounting
        else "AccountingStorageType=accounting_storage/none\n"
    )
    memory = (
        "TaskPlugin=task/cgroup"
        if settings.memory_limits
        else "TaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill"
    )
    return f"""\
ClusterName={cluster.name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={settings.first_port + ports.CONTROLLER}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={cluster.munge_socket},cred_expire=5
CredType=cred/munge
StateSaveLocation={cluster.state_dir}
SlurmdSpoolDir={cluster.spool_dir("%n")}
SlurmctldPidFile={cluster.dir}/run/slurmctld.own_pid
SlurmdPidFile={cluster.dir}/run/%n.own_pid
SlurmctldLogFile={cluster.log("slurmctld")}
SlurmdLogFile={cluster.log("%n")}
SlurmctldDebug=info
SlurmdDebug=info
MpiDefault=none
ProctrackType=proctrack/linuxproc
{memory}
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=3
JobCompType=jobcomp/none
{accounting}
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={MEMORY_PER_NODE_MB // CPUS_PER_NODE}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MaxArraySize={settings.max_array_size}
MaxJobCount={max(20_000, 2 * settings.max_array_size)}
MinJobAge=300
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=10
KillWait=5
OverTimeLimit=0
InactiveLimit=0
Waittime=0

GresTypes=gpu
NodeName=gpu[{first[3:]}-{last[3:]}] {hostname}NodeAddr=127.0.0.1 \
Port=[{port}-{port + settings.nodes - 1}] CPUs={CPUS_PER_NODE} \
RealMemory={MEMORY_PER_NODE_MB} Gres=gpu:h100:{GPUS_PER_NODE} State=UNKNOWN
PartitionName=DEFAULT Nodes=ALL State=UP MaxTime=UNLIMITED DefaultTime=60 OverSubscribe=NO
PartitionName=gpu Default=YES PriorityTier=1 PreemptMode=OFF
PartitionName=spread PriorityTier=1 PreemptMode=OFF LLN=YES
PartitionName=low PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=low_grace PriorityTier=1 PreemptMode=REQUEUE GraceTime={GRACE_S}
PartitionName=high PriorityTier=10 PreemptMode=OFF
"""


def gres_conf(cluster: Cluster) -> str:
    return f"""\
AutoDetect=off
Name=gpu Type=h100 File={cluster.devices_dir}/nvidia[0-{GPUS_PER_NODE - 1}]
"""


def cgroup_conf(settings: Settings) -> str:
    """Return cgroup.conf, which slurmd reads even where it uses no cgroup.

    By itself it would look for the machine's kind, and fail in a container or talk to systemd.
    """
    return f"""\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace={"yes" if settings.memory_limits else "no"}
"""


def slurmdbd_conf(cluster: Cluster, settings: Settings, password: str) -> str:
    host = socket.gethostname().partition(".")[0]
    return f"""\
AuthType=auth/munge
AuthInfo=socket={cluster.munge_socket}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={settings.first_port + ports.DBD}
SlurmUser=root
PidFile={cluster.dir}/run/slurmdbd.own_pid
LogFile={cluster.log("slurmdbd")}
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={settings.first_port + ports.DATABASE}
StorageLoc={DATABASE_NAME}
StorageUser={DATABASE_USER}
StoragePass={password}
"""
