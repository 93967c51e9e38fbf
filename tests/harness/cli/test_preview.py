"""What `plan` and `run --dry-run` show of a cluster, on a machine that has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import run_command

SWEEP = """
question: q
baseline: ipo
seeds: [0, 1, 2]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]", max_steps=5]
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
resources:
  icepop: {gpus_per_node: 4, time: "4:00:00", mem_per_gpu: 32G}
"""
PROFILE = """
type: slurm
partition: long
gpus_per_node: 8
cpus_per_task: 16
mem: 64G
time: 24:00:00
parallelism: 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a sweep and a profile, and a PATH without SLURM."""
    monkeypatch.chdir(tmp_path)
    for name in ("HARNESS_OUTPUTS", "SLURM_JOB_ID", "SBATCH_PARTITION", "SBATCH_EXPORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "study.yaml").write_text(SWEEP)
    (tmp_path / "site.yaml").write_text(PROFILE)
    return tmp_path


def lines_of(out: str) -> list[str]:
    return [line.rstrip() for line in out.splitlines()]


TABLE = [
    "array  runs  at once  nodes  GPUs  CPUs   memory      time  GPU-h  arms",
    "    0     3        2      1     8    16      64G  1-00:00:00  576.0  ipo",
    "    1     3        2      1     4    16  32G/GPU   4:00:00   48.0  icepop",
    "Up to 624.0 GPU-hours",
]


def test_a_plan_for_a_cluster_shows_arrays_resources_and_gpu_hours(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["plan", "study", "--on", "site.yaml"]) == 0
    lines = lines_of(capsys.readouterr().out)
    at = lines.index("on site:")
    assert [line.split() for line in lines[at + 1 : at + 5]] == [line.split() for line in TABLE]
    assert lines[at + 5 :] == [
        "SLURM can't be asked here: its limit on arrays (MaxArraySize) is a guess"
    ]
    assert not (folder / "outputs").exists()


def test_what_of_the_shell_is_ignored_is_named_with_what_replaces_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "short")
    monkeypatch.setenv("SBATCH_CONSTRAINT", "h100")
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    assert run_command(["plan", "study", "--on", "site.yaml"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert lines[-4:-1] == [
        "SBATCH_CONSTRAINT of this shell is ignored; set `sbatch: {constraint: …}` in the profile",
        "SBATCH_PARTITION of this shell is ignored; set `partition` in the profile",
        "submitting from inside allocation 123; its SLURM_* variables don't reach runs",
    ]


def test_a_plan_without_a_profile_is_for_this_machine(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["plan", "study"]) == 0
    out = capsys.readouterr().out
    assert "GPU-h" not in out
    assert "no finished run here yet to estimate the time from" in out


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_plan_beyond_the_gpu_hours_is_refused_and_one_within_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    words = [verb, "study", "--on", "site.yaml", "--max-gpu-hours"]
    assert run_command([*words, "623.9"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[0] == (
        "error: the plan takes up to 624 GPU-hours, more than --max-gpu-hours 623.9; most in"
        " `ipo`: 3 x 8 GPUs x 1-00:00:00"
    )
    assert not (folder / "outputs").exists()
    dry = ["--dry-run"] if verb == "run" else []
    assert run_command([*words, "624", *dry]) == 0


def test_hours_that_cannot_be_told_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "site.yaml").write_text("type: slurm\ngpus_per_node: 8\n")
    words = ["run", "study", "--on", "site.yaml", "--max-gpu-hours", "9", "--dry-run"]
    assert run_command(words) == 2
    assert "no `time` is set for `ipo`" in capsys.readouterr().err
    assert run_command(["plan", "study", "--on", "site.yaml"]) == 0
    assert "GPU-hours can't be told: no `time` is set for `ipo`" in capsys.readouterr().out


def test_a_dry_run_shows_arrays_and_scripts_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert run_command(["run", "study", "--on", "site.yaml", "--dry-run"]) == 0
    output = capsys.readouterr()
    lines = lines_of(output.out)
    assert output.err == ""
    assert lines[0] == "study: would start 6 of 6 runs on site in 2 arrays and a finishing job"
    assert [line.split() for line in lines[1:5]] == [line.split() for line in TABLE]
    for name in ("script of array 0", "script of array 1", "script of the finishing job"):
        assert lines[lines.index(name) + 1] == "#!/bin/bash"
    for option in ("--array=0-2%2", "--partition=long", "--time=1440", "--gpus-per-node=4"):
        assert f"#SBATCH {option}" in lines
    assert f"export PYTHONPATH={folder}/outputs/study/code/" in output.out
    assert sorted(folder.rglob("*")) == before


def test_live_code_is_imported_from_where_the_harness_is_installed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "study", "--on", "site.yaml", "--dry-run", "--live-code"]
    assert run_command(words) == 0
    assert "PYTHONPATH" not in capsys.readouterr().out


def test_a_dry_run_on_this_machine_lists_the_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "study", "--dry-run", "--slots", "2"]) == 0
    assert lines_of(capsys.readouterr().out) == [
        "study: would start 6 of 6 runs on local, 2 at a time",
        *(f"  {arm}/seed_{seed}" for seed in range(3) for arm in ("ipo", "icepop")),
    ]
    assert not (folder / "outputs").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--detach"], "--detach hands runs to a cluster", "`nohup harness run study &`"),
        (["--max-gpu-hours", "1"], "--max-gpu-hours is for a cluster", "--on"),
        (["--max-gpu-hours", "-1"], "argument --max-gpu-hours: '-1' is not a number", ""),
        (["--detatch"], "there is no option `--detatch`", "did you mean `--detach`?"),
        (
            ["--on", "site.yaml", "--slots", "2"],
            "--slots 2 is for a local queue, and `site.yaml` is slurm",
            "`parallelism`",
        ),
        (["--on", "site.yaml"], "`sbatch` is not on the PATH", "load your site's SLURM module"),
    ],
)
def test_what_a_run_cannot_do_is_refused(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
    hint: str,
) -> None:
    assert run_command(["run", "study", *arguments]) == 2
    [first, second] = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {error}")
    assert hint in second
    assert not (folder / "outputs").exists()


def test_plan_json_holds_the_resources_of_the_arms(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["plan", "study", "--on", "site.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resources"] == {
        "icepop": {"gpus_per_node": 4, "time": 240, "mem_per_gpu": "32G"}
    }
