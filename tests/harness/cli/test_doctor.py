from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli import run_command
from harness.cli.doctor import print_check, summarize
from harness.doctor.check import failed, ok, warning
from harness.doctor.partition import judge_account, judge_partition, parse_partitions
from harness.doctor.slurm import check_commands
from harness.slurm_profile import SlurmProfile

CHECKS = [
    ok("python", "3.11.7"),
    warning("wandb", "no login for api.wandb.ai", "`wandb login`, or export WANDB_API_KEY first"),
    failed("partition", "there is \x1b[1mno\x07", "did you mean `gpu`?"),
]


def test_each_check_has_its_finding_and_what_to_do_below() -> None:
    file = io.StringIO()
    console = Console(file=file, width=54)
    for check in CHECKS:
        print_check(check, console)
    assert file.getvalue().splitlines() == [
        "ok       python          3.11.7",
        "warning  wandb           no login for api.wandb.ai",
        "                         -> `wandb login`, or export",
        "                            WANDB_API_KEY first",
        "failed   partition       there is no\\x07",
        "                         -> did you mean `gpu`?",
    ]
    assert summarize(CHECKS) == "1 ok, 1 to look at, 1 failed"
    assert summarize(CHECKS[:1]) == "1 ok"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and a PATH without SLURM."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    return tmp_path


def test_a_machine_without_slurm_is_fit_for_the_local_queue(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok       SLURM commands  none here; the profile `local` needs none" in lines
    assert list(folder.iterdir()) == []


def test_a_profile_of_a_cluster_needs_slurm(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["doctor", "--on", "devcluster", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)
    assert checks[-1] == {
        "name": "SLURM commands",
        "verdict": "failed",
        "found": "not on the PATH: sbatch, squeue, scancel, scontrol",
        "todo": "load your site's SLURM module, or work on a login node of the cluster",
    }


def test_a_part_of_slurm_is_no_slurm(folder: Path) -> None:
    programs = folder / "no-programs"
    programs.mkdir()
    for name in ("squeue", "scontrol", "scancel"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    check = check_commands(is_needed=False)
    assert (check.verdict, check.found) == ("warning", "not on the PATH: sbatch")


def test_an_outputs_folder_that_cannot_be_used_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "outputs").write_text("")
    assert run_command(["doctor"]) == 1
    assert "choose another place with HARNESS_OUTPUTS=DIR" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--on", "local"]])
def test_a_probe_needs_a_cluster(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run_command(["doctor", "--probe", *arguments]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --probe runs a job on a cluster, and no SLURM profile is named",
        "hint: name one with --on PROFILE",
    ]


PARTITIONS = parse_partitions(
    "PartitionName=gpu AllowAccounts=ml,vision AllowQos=ALL Default=YES MaxNodes=2"
    " MaxTime=2-00:00:00 PreemptMode=REQUEUE State=UP TotalNodes=4 TRES=cpu=8,node=4\n"
    "PartitionName=old AllowAccounts=ALL Default=NO MaxNodes=UNLIMITED State=DOWN\n"
)


def test_partitions_are_read_from_scontrol() -> None:
    assert list(PARTITIONS) == ["gpu", "old"]
    assert PARTITIONS["gpu"]["MaxTime"] == "2-00:00:00"
    assert PARTITIONS["gpu"]["TRES"] == "cpu=8,node=4"


@pytest.mark.parametrize(
    ("settings", "name", "found", "todo"),
    [
        (
            SlurmProfile(account="ml"),
            "gpu",
            "`gpu` is up, 4 nodes, its jobs may be preempted (requeue)",
            "",
        ),
        (SlurmProfile(), "old", "`old` is DOWN: its jobs don't start", "ask your site, or wait"),
        (
            SlurmProfile(account="visoin"),
            "gpu",
            "`gpu` doesn't take the account `visoin`",
            "did you mean `vision`?",
        ),
        (
            SlurmProfile(nodes=3),
            "gpu",
            "`gpu` gives a job at most 2 nodes, and `nodes` is 3",
            "lower `nodes`, or choose another partition",
        ),
    ],
)
def test_a_partition_is_held_against_the_profile(
    settings: SlurmProfile, name: str, found: str, todo: str
) -> None:
    check = judge_partition(settings, name, PARTITIONS[name])
    assert (check.found, check.todo) == (found, todo)


ASSOCIATIONS = "ml|normal,long\nvision|normal\n"


@pytest.mark.parametrize(
    ("settings", "found", "todo"),
    [
        (SlurmProfile(account="ml", qos="long"), "account `ml` and qos `long`: known", ""),
        (
            SlurmProfile(account="mll"),
            "accounting doesn't know the account `mll` of yours",
            "did you mean `ml`?",
        ),
        (
            SlurmProfile(account="vision", qos="long"),
            "accounting doesn't know the qos `long` of yours",
            "qos: `normal`",
        ),
    ],
)
def test_account_and_qos_are_held_against_what_accounting_knows(
    settings: SlurmProfile, found: str, todo: str
) -> None:
    [check] = judge_account(settings, ASSOCIATIONS)
    assert check.found.startswith(found)
    assert check.todo == todo


def test_without_associations_nothing_is_said_of_an_account() -> None:
    assert judge_account(SlurmProfile(account="ml"), "") == []
