"""slurmdbd, over a MariaDB of the cluster's own."""

from __future__ import annotations

import secrets
import shutil

from devcluster import ports
from devcluster.clients import call, slurm
from devcluster.conf import DATABASE_NAME, DATABASE_USER, slurmdbd_conf
from devcluster.layout import Cluster, Settings
from devcluster.processes import start_daemon, wait_for_daemon

DATABASE, DBD = "mariadbd", "slurmdbd"
ACCOUNT = "lab"
DATABASE_OPTIONS = (
    "--no-defaults",
    "--user=mysql",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-lock-wait-timeout=900",
    "--skip-log-bin",
)


def make_database(cluster: Cluster, settings: Settings) -> None:
    """Make a database with a user for slurmdbd, start both daemons."""
    cluster.database_dir.mkdir(mode=0o700)
    shutil.chown(cluster.database_dir, "mysql", "mysql")
    call(
        [
            "mariadb-install-db",
            *DATABASE_OPTIONS,
            f"--datadir={cluster.database_dir}",
            "--auth-root-authentication-method=socket",
            "--auth-root-socket-user=root",
            "--skip-test-db",
            "--skip-name-resolve",
            "--force",  # Also where the machine's own name can't be looked up.
        ]
    )
    start_database(cluster, settings)
    password = secrets.token_hex(16)
    user = f"'{DATABASE_USER}'@'{{host}}'"
    statements = [f"CREATE DATABASE {DATABASE_NAME}"]
    for host in ("localhost", "127.0.0.1"):
        statements.append(f"CREATE USER {user.format(host=host)} IDENTIFIED BY '{password}'")
        statements.append(f"GRANT ALL ON {DATABASE_NAME}.* TO {user.format(host=host)}")
    call(
        ["mariadb", "--no-defaults", f"--socket={cluster.database_socket}", "--user=root"],
        stdin=";\n".join(statements) + ";\n",
    )
    cluster.slurmdbd_conf.touch(mode=0o600)  # slurmdbd refuses a file that others can read.
    cluster.slurmdbd_conf.write_text(slurmdbd_conf(cluster, settings, password))
    start_dbd(cluster)


def register(cluster: Cluster) -> None:
    """Tell slurmdbd of the cluster, and of an account with root as its user."""
    slurm(cluster, "sacctmgr", "-i", "add", "cluster", cluster.name)
    slurm(cluster, "sacctmgr", "-i", "add", "account", ACCOUNT, f"cluster={cluster.name}")
    slurm(cluster, "sacctmgr", "-i", "add", "user", "root", f"account={ACCOUNT}")


def start_database(cluster: Cluster, settings: Settings) -> None:
    start_daemon(
        cluster,
        DATABASE,
        [
            "mariadbd",
            *DATABASE_OPTIONS,
            f"--datadir={cluster.database_dir}",
            f"--socket={cluster.database_socket}",
            f"--pid-file={cluster.database_dir}/mariadbd.own_pid",
            "--bind-address=127.0.0.1",
            f"--port={settings.first_port + ports.DATABASE}",
        ],
    )
    wait_for_daemon(cluster, DATABASE, cluster.database_socket.exists)


def start_dbd(cluster: Cluster) -> None:
    """Start slurmdbd and wait until it answers."""

    def answers() -> bool:
        return slurm(cluster, "sacctmgr", "-n", "list", "cluster", check=False).returncode == 0

    start_daemon(cluster, DBD, ["slurmdbd", "-D"])
    wait_for_daemon(cluster, DBD, answers)
