"""A cluster on disk: its settings, and where each of its files lies."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.errors import UsageError

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
PATH_PATTERN = re.compile(r"[A-Za-z0-9._/+-]+")
MAX_DIR_LENGTH = 64
"""A Unix socket's path holds 107 bytes; the longest of ours is `spool/gpu01/gpu01_JOB.STEP`."""
MAX_NODES = 32


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a cluster is asked to be; each is an option of `start`."""

    nodes: int
    accounting: bool
    max_array_size: int
    memory_limits: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """What a cluster was started with.

    Attributes:
        first_port: the ports of the cluster are a block that begins here.
        own_hostnames: each node has a host name of its own (a UTS namespace).
    """

    first_port: int
    own_hostnames: bool


@dataclass(frozen=True)
class Cluster:
    """The folder of a cluster and the paths in it."""

    dir: Path

    @property
    def name(self) -> str:
        return self.dir.name

    @property
    def settings_file(self) -> Path:
        return self.dir / "cluster.json"

    @property
    def ready_file(self) -> Path:
        """There once the cluster has answered."""
        return self.dir / "ready"

    @property
    def slurm_conf(self) -> Path:
        return self.dir / "etc" / "slurm.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        return self.dir / "etc" / "slurmdbd.conf"

    @property
    def gres_conf(self) -> Path:
        return self.dir / "etc" / "gres.conf"

    @property
    def cgroup_conf(self) -> Path:
        return self.dir / "etc" / "cgroup.conf"

    @property
    def munge_key(self) -> Path:
        return self.dir / "etc" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.dir / "run" / "munge.socket"

    @property
    def database_dir(self) -> Path:
        return self.dir / "database"

    @property
    def database_socket(self) -> Path:
        return self.database_dir / "mariadb.socket"

    @property
    def devices_dir(self) -> Path:
        return self.dir / "dev"

    @property
    def state_dir(self) -> Path:
        """Where slurmctld keeps its state."""
        return self.dir / "state"

    def spool_dir(self, node: str) -> Path:
        return self.dir / "spool" / node

    def log(self, daemon: str) -> Path:
        return self.dir / "log" / f"{daemon}.log"

    def output(self, daemon: str) -> Path:
        """What a daemon writes before it has opened its log, and beside it."""
        return self.dir / "log" / f"{daemon}.out"

    def pid_file(self, daemon: str) -> Path:
        return self.dir / "run" / f"{daemon}.pid"

    def make_dirs(self) -> None:
        for part in ("etc", "run", "log", "dev", "state", "spool"):
            (self.dir / part).mkdir(mode=0o755, exist_ok=True)

    def write_settings(self, settings: Settings) -> None:
        self.settings_file.write_text(json.dumps(asdict(settings), indent=1) + "\n")

    def settings(self) -> Settings | None:
        """Return what the cluster was started with; None where there is no whole record of it."""
        try:
            return Settings(**json.loads(self.settings_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def is_ours(self) -> bool:
        """Whether the folder is empty or a cluster's, so that it may be filled or removed."""
        return self.settings_file.exists() or not any(self.dir.iterdir())

    def exports(self) -> str:
        """Return the line of shell that makes SLURM's commands talk to this cluster."""
        return f"export SLURM_CONF={self.slurm_conf}"


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{number:02}" for number in range(1, count + 1))


def default_root() -> Path:
    """Return a short path that doesn't hang on TMPDIR, so that every shell finds the cluster."""
    return Path("/tmp") / f"ablation-devcluster-{os.getuid()}"


def cluster_at(root: Path, name: str) -> Cluster:
    """Name a cluster's folder; UsageError where SLURM or a socket couldn't live with the path."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"--name `{name}` is no cluster name",
            "use up to 40 of a-z, 0-9, `-` and `_`, beginning with a letter or digit",
        )
    path = root.resolve() / name
    if not PATH_PATTERN.fullmatch(str(path)):
        raise UsageError(
            f"--state-dir `{root}`: SLURM's files can't name this path",
            "use a folder with only letters, digits and `._+-` in its path",
        )
    if len(str(path)) > MAX_DIR_LENGTH:
        raise UsageError(
            f"the cluster's folder `{path}` is too long for a Unix socket",
            f"choose --state-dir and --name so that it has at most {MAX_DIR_LENGTH} characters",
        )
    return Cluster(path)


def clusters_under(root: Path) -> list[Cluster]:
    """Return the clusters of a root folder, running or left over."""
    if not root.is_dir():
        return []
    found = [Cluster(path) for path in sorted(root.resolve().iterdir()) if path.is_dir()]
    return [cluster for cluster in found if cluster.settings_file.exists()]


@contextmanager
def locked(cluster: Cluster, *, create: bool = False) -> Iterator[bool]:
    """Hold the cluster against another start, stop or fault; yields whether its folder exists.

    The lock is on the folder itself, so that nothing is left when the folder goes.
    """
    while True:
        if create:
            _make_dir(cluster)
        try:
            fd = os.open(cluster.dir, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if create:
                continue
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still_there(cluster.dir, fd):
                yield True
                return
        finally:
            os.close(fd)


def _make_dir(cluster: Cluster) -> None:
    root = cluster.dir.parent
    if root == default_root():
        root.mkdir(mode=0o755, exist_ok=True)
    elif not root.is_dir():
        raise UsageError(f"--state-dir `{root}` is no folder", "make it, or leave the option out")
    if root.stat().st_uid not in (0, os.geteuid()):
        raise UsageError(
            f"`{root}` belongs to another user, who could change what root's daemons read",
            "choose a --state-dir of your own",
        )
    with suppress(FileNotFoundError):  # A stop beside took the root folder: the caller tries again.
        cluster.dir.mkdir(mode=0o755, exist_ok=True)


def _is_still_there(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def empty(cluster: Cluster) -> None:
    """Remove all that the cluster's folder holds, but not the folder, which is locked."""
    for path in cluster.dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def remove(cluster: Cluster) -> None:
    """Remove the cluster's folder, and the default root folder with the last cluster in it."""
    empty(cluster)
    cluster.dir.rmdir()
    if cluster.dir.parent == default_root():
        with suppress(OSError):  # Other clusters lie beside.
            cluster.dir.parent.rmdir()
