"""How SLURM's commands are called, and what becomes of their failures.

The commands in here are shims: scripts that stand on the PATH in place of SLURM's and say so.
What the real ones answer is tested in tests/slurm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.scheduler import commands
from harness.scheduler.commands import SlurmError
from harness.scheduler.jobs import SEPARATOR, SQUEUE_FIELDS

MakeShim = Callable[[str, str], None]
SHOWN_JOB = """\
JobId=7 ArrayJobId=5 ArrayTaskId=1 JobName=my sweep=odd/arm/0
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=PENDING Reason=Nodes_required_for_job_are_DOWN,_DRAINED Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
   NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   Command=/home/ada/a folder/with A=B/job.sh
   Comment=harness 0001-1f 0 A=B
   Power=

JobId=5 ArrayJobId=5 ArrayTaskId=2-9 JobName=other
   JobState=RUNNING Reason=None
"""


@pytest.fixture
def make_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeShim:
    """Put a shim on the PATH, before what is there: `make_shim("squeue", "exit 1")`."""
    folder = tmp_path / "shims"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, body: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/bash\n# A shim of a test, not SLURM's {name}.\n{body}\n")
        path.chmod(0o755)

    return make


def test_nothing_of_an_allocation_or_of_the_shell_s_filters_reaches_slurm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    kept = {"PATH": "/bin", "HOME": "/root", "SLURM_CONF": "/etc/s.conf", "SLURM_CLUSTERS": "big"}
    own = ["SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURMD_NODENAME", "SBATCH_TIMELIMIT", "SALLOC_X"]
    own += ["SRUN_CPUS_PER_TASK", "SUBMITIT_EXECUTOR", "SQUEUE_STATES", "SACCT_FORMAT"]
    for name, value in (kept | dict.fromkeys(own, "7")).items():
        monkeypatch.setenv(name, value)
    assert commands.clean_env() == kept


def test_command_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError) as error:
        commands.squeue_jobs("root")
    assert error.value.message == "`squeue` is not on the PATH"
    assert "SLURM module" in error.value.hint


def test_command_that_never_answers(make_shim: MakeShim) -> None:
    make_shim("squeue", "sleep 60")
    with pytest.raises(SlurmError) as error:
        commands.call(["squeue"], timeout_s=0.1)
    assert error.value.message == "`squeue` gave no answer within 0.1 s"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; echo more >&2;"
            " exit 1",
            "`squeue` failed: slurm_load_jobs error: Unable to contact slurm controller",
        ),
        ("echo >&2; echo 'squeue: error: no  such\tthing' >&2; exit 2", "no such thing"),
        ("exit 3", "`squeue` failed: exit code 3"),
    ],
)
def test_failure_is_told_in_slurm_s_words(make_shim: MakeShim, body: str, message: str) -> None:
    make_shim("squeue", body)
    with pytest.raises(SlurmError) as error:
        commands.squeue_jobs("root")
    assert error.value.message.endswith(message)
    assert error.value.exit_code == 1


def test_user_that_squeue_does_not_know_is_no_empty_answer(make_shim: MakeShim) -> None:
    make_shim("squeue", "echo 'squeue: error: Invalid user: ada' >&2; exit 0")
    with pytest.raises(SlurmError, match="Invalid user: ada"):
        commands.squeue_jobs("ada")


def test_cluster_that_does_not_answer_is_no_empty_answer(make_shim: MakeShim) -> None:
    make_shim("squeue", "echo 'CLUSTER: big'; echo 'error: slurm_load_jobs: timeout' >&2; exit 0")
    with pytest.raises(SlurmError, match="slurm_load_jobs: timeout"):
        commands.squeue_jobs("ada", ["small", "big"])


def test_list_that_is_cut_short_is_no_answer(make_shim: MakeShim) -> None:
    fields = [*("1", "0,2,..."), *["x"] * (len(SQUEUE_FIELDS) - 2)]
    make_shim("squeue", f"echo '{SEPARATOR.join(fields)}'")
    with pytest.raises(SlurmError, match="`squeue` gave an answer that can't be read"):
        commands.squeue_jobs("root")


def test_accounting_is_asked_for_these_jobs_of_this_user_alone(
    make_shim: MakeShim, tmp_path: Path
) -> None:
    make_shim("sacct", f'printf "%s\\n" "$@" > {tmp_path}/asked')
    assert commands.sacct_jobs("ada", ["12", "9", "12"], since=0.0, clusters=["big"]) == []
    asked = (tmp_path / "asked").read_text().splitlines()
    for option in ("--user=ada", "--jobs=12,9", "--duplicates", "--allocations", "--clusters=big"):
        assert option in asked
    assert [option for option in asked if option.startswith("--starttime=")]


def test_accounting_is_not_asked_about_nothing(make_shim: MakeShim) -> None:
    make_shim("sacct", "exit 1")
    assert commands.sacct_jobs("ada", [], since=0.0) == []


def test_many_jobs_are_cancelled_in_few_calls(make_shim: MakeShim, tmp_path: Path) -> None:
    make_shim("scancel", f'echo "$@" >> {tmp_path}/asked')
    commands.scancel([f"12_{i}" for i in range(1_500)], clusters=["big"])
    calls = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    assert [len(call) - 2 for call in calls] == [1_000, 500]
    assert {tuple(call[:2]) for call in calls} == {("--quiet", "--clusters=big")}
    assert [word for call in calls for word in call[2:]] == [f"12_{i}" for i in range(1_500)]


def test_jobs_that_have_ended_are_no_failure_of_a_cancel(make_shim: MakeShim) -> None:
    gone = "scancel: error: Kill job error on job id 7: Invalid job id specified"
    make_shim("scancel", f"echo '{gone}' >&2; exit 1")
    commands.scancel(["7"])
    denied = "scancel: error: Kill job error on job id 8: Access/permission denied"
    make_shim("scancel", f"echo '{gone}' >&2; echo '{denied}' >&2; exit 1")
    with pytest.raises(SlurmError, match="Access/permission denied"):
        commands.scancel(["7", "8"])


def test_shown_job_is_read_by_its_keys() -> None:
    pairs = commands.parse_show_job(SHOWN_JOB)
    assert (pairs["JobId"], pairs["JobName"]) == ("7", "my sweep=odd/arm/0")
    assert (pairs["JobState"], pairs["Restarts"], pairs["ExitCode"]) == ("PENDING", "2", "0:0")
    assert pairs["Reason"] == "Nodes_required_for_job_are_DOWN,_DRAINED"
    assert pairs["Command"] == "/home/ada/a folder/with A=B/job.sh"
    assert pairs["Comment"] == "harness 0001-1f 0 A=B"
    assert pairs["Power"] == ""
    assert commands.parse_show_job("") == {}


@pytest.mark.parametrize("size", ["0", "(null)"])
def test_cluster_without_arrays(make_shim: MakeShim, size: str) -> None:
    make_shim("scontrol", f"echo 'Configuration data'; echo 'MaxArraySize            = {size}'")
    with pytest.raises(SlurmError, match="allows no job arrays"):
        commands.max_array_size()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'Slurmctld(primary) at a is UP'", None),
        (
            "echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is UP'",
            None,
        ),
        ("echo 'Slurmctld(primary) at a is DOWN'", "Slurmctld(primary) at a is DOWN"),
        ("echo 'no such host' >&2; exit 1", "`scontrol` failed: no such host"),
    ],
)
def test_ping(make_shim: MakeShim, body: str, said: str | None) -> None:
    make_shim("scontrol", body)
    assert commands.ping() == said
