"""SLURM's commands, asked of real clusters."""

from __future__ import annotations

import getpass
import time

import pytest

from harness.scheduler import commands
from harness.scheduler.commands import SlurmError
from tests.slurm.cluster import Cluster

NO_JOB = "999999"


def test_what_the_commands_ask_and_do(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
    assert (commands.ping(), commands.max_array_size()) == (None, 1001)
    assert commands.show_config()["ClusterName"] == cluster.name

    names = ("--job-name=s@0a1b2c.0", "--comment=a|b, c=d")
    array = cluster.sbatch("--hold", "--array=0-1", *names)
    commands.rename(f"{array}_1", "s/a/0@0a1b2c.0")
    assert commands.show_job(f"{array}_1")["JobName"] == "s/a/0@0a1b2c.0"

    listed = commands.squeue_jobs(getpass.getuser())
    jobs = [job for job in listed if job.array_job_id == array]
    first, second = sorted(jobs, key=lambda job: job.job_id)
    assert (first.job_id, second.job_id) == (f"{array}_0", f"{array}_1")
    assert (first.name, second.name) == ("s@0a1b2c.0", "s/a/0@0a1b2c.0")
    assert (first.state, first.reason, first.comment) == ("PENDING", "JobHeldUser", "a|b, c=d")
    assert time.time() - 60 < first.submit_time < time.time() + 60

    commands.scancel([first.job_id, second.job_id])
    commands.scancel([first.job_id, NO_JOB])
    cluster.wait_for_job_state(second.job_id, "CANCELLED")


def test_what_slurm_refuses_is_told_in_its_words(
    plain_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(plain_cluster.slurm_conf))
    with pytest.raises(SlurmError, match="`scontrol` failed: .*Invalid job id"):
        commands.show_job(NO_JOB)
    with pytest.raises(SlurmError, match="`scontrol` failed: .*Invalid job id"):
        commands.requeue(NO_JOB)
    with pytest.raises(SlurmError, match="`sacct` failed: Slurm accounting storage is disabled"):
        commands.sacct_jobs(getpass.getuser(), ["1"], since=0.0)
    with pytest.raises(SlurmError, match="`squeue` failed: Invalid user: no-such-user"):
        commands.squeue_jobs("no-such-user")
