"""`harness retry` on this machine: whole commands, real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.retry import choose, find_profile
from harness.errors import UsageError
from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import to_record
from harness.state.model import LIVE_STATES, SLURM, RunState, RunStatus
from tests.harness.cli.shell import PROGRAMS, Shell, sweep_text
from tests.harness.conftest import DiskSweep, write_sweep

TRAINS = sweep_text("trains", "0")
FAILS_ONCE = f"""\
  icepop:
    - loss=icepop
    - "trainer.argv=['{{python}}','{PROGRAMS}/fails_once.py','{{trainer_dir}}/metrics.jsonl',GATE]"
may_differ: [loss, trainer.argv]
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A sweep whose arm `icepop` fails on its first attempt, and has."""
    shell = Shell(tmp_path)
    (tmp_path / "gate").touch()
    text = FAILS_ONCE.replace("GATE", f"'{tmp_path}/gate'")
    shell.write(TRAINS.replace("  icepop: [loss=icepop]\n", text))
    code, _, err = shell.run("run", "study", "--no-report")
    assert (code, "error: 2 failed of 4 runs" in err) == (1, True), err
    return shell


def test_failed_runs_start_again_from_the_plan_and_the_others_do_not(shell: Shell) -> None:
    (shell.folder / "sweeps/study.yaml").unlink()
    code, out, err = shell.run("retry", "study", "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["  icepop/seed_0", "  icepop/seed_1"]
    assert out.startswith("study: would start 2 of 4 runs on local, ")
    code, out, err = shell.run("retry", "study", "icepop/1")
    assert code == 0
    assert "study: 1 of 4 runs start again (1 failed), " in err
    assert shell.states()["icepop/0"] == "failed"
    code, out, err = shell.run("retry", "study")
    assert code == 0
    assert "report: outputs/study/report/report.html" in err
    assert set(shell.states().values()) == {"done"}
    attempts = {str(p.parent.parent.name) for p in shell.folder.glob("outputs/*/runs/*/*/*/2")}
    assert attempts == {"seed_0", "seed_1"}
    code, out, err = shell.run("retry", "study")
    assert (code, err) == (0, "")
    assert out == "nothing to retry in study: no such run has ended without being done\n"


def test_a_retried_run_uses_the_frozen_code_and_says_so_where_it_is_gone(shell: Shell) -> None:
    code_hash = shell.read("study/plan.json")["code"]["hash"]
    copy = shell.folder / "outputs/study/code" / code_hash
    copy.rename(copy.with_name("moved"))
    code, _, err = shell.run("retry", "study")
    assert code == 2
    assert f"`outputs/study/code/{code_hash}` is gone" in err
    assert "--live-code runs the installed harness" in err
    assert not (shell.folder / "outputs/study/submit.lock").exists()
    code, _, err = shell.run("retry", "study", "--live-code", "--no-report")
    assert code == 0, err
    intents = sorted(shell.folder.glob("outputs/study/submissions/*/intent.json"))
    assert json.loads(intents[-1].read_text())["code_dir"] is None


def test_what_cannot_be_retried_is_refused(shell: Shell) -> None:
    refusals = {
        "study --detach": (
            "--detach hands runs to a cluster, and the profile `local` runs them in this command",
            "name a cluster's profile with --on, or `nohup harness retry study &`",
        ),
        "study --max-gpu-hours 5": (
            "--max-gpu-hours is for a cluster, and the profile `local` sets no limit to a run's"
            " time",
            "leave it out, or name a cluster's profile with --on",
        ),
        "study kpop": ("sweep `study` has no arm `kpop`", "did you mean `icepop`?"),
        "study --on locl": ("there is no profile `locl`", "did you mean `local`?"),
        "study --max-gpu-hours many": (
            "argument --max-gpu-hours: 'many' is not a number of hours",
            "`harness retry --help` tells what it takes",
        ),
    }
    for words, (error, hint) in refusals.items():
        code, out, err = shell.run("retry", *words.split())
        assert (code, out) == (2, "")
        assert err.splitlines() == [f"error: {error}", f"hint: {hint}"]
        assert not (shell.folder / "outputs/study/submit.lock").exists()


def status(seed: int, state: RunState, **values: Any) -> RunStatus:
    return RunStatus("ipo", seed, state, **values)


def test_runs_that_are_done_at_work_or_unknown_are_never_chosen(tmp_path: Path) -> None:
    states = [status(i, state, profile_type=SLURM) for i, state in enumerate(RunState)]
    chosen = [s.state for s in choose(states, SweepPaths(tmp_path), None)]
    assert chosen == [
        RunState.FAILED,
        RunState.TIMEOUT,
        RunState.OUT_OF_MEMORY,
        RunState.PREEMPTED,
        RunState.CANCELLED,
        RunState.LOST,
    ]
    for found in states:
        named = choose(states, SweepPaths(tmp_path), f"ipo/{found.seed}")
        is_chosen = found.state in {*chosen, RunState.STOPPED}
        assert named == ([found] if is_chosen else [])
    assert not {s.state for s in states if s in choose(states, SweepPaths(tmp_path), "ipo")} & {
        *LIVE_STATES,
        RunState.STOPPED,
        RunState.UNKNOWN,
    }


def test_a_run_that_left_the_plan_is_not_chosen(tmp_path: Path) -> None:
    left = status(0, RunState.FAILED, is_planned=False)
    assert choose([left], SweepPaths(tmp_path), None) == []


@pytest.fixture
def disk(tmp_path: Path) -> DiskSweep:
    sweep = DiskSweep(SweepPaths(tmp_path / "outputs" / "toy"))
    write_sweep(sweep.paths, {"ipo": ("trains", "METRICS", "0")}, seeds=(0, 1))
    return sweep


def submitted(sweep: DiskSweep, profile: str, settings: dict[str, Any]) -> str:
    submission = sweep.submit()
    record = to_record(submission.intent) | {"profile": profile, "settings": settings}
    write_json(submission.paths.intent, record)
    return submission.paths.id


def test_a_profile_that_was_a_file_is_taken_as_it_was_recorded(
    disk: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"type": "slurm", "partition": "long", "time": 60, "setup": ["module load cuda"]}
    name = submitted(disk, "mine", settings)
    profile, word = find_profile(disk.paths, [status(0, RunState.LOST, submission=name)], None)
    assert (profile.name, profile.settings.partition, word) == ("mine", "long", None)
    assert profile.settings.setup == ("module load cuda",)
    assert capsys.readouterr().err == (
        f"profile `mine` as submission {name} recorded it; --on names another\n"
    )


def test_a_shipped_profile_is_taken_as_it_is_now(disk: DiskSweep) -> None:
    name = submitted(disk, "devcluster", {"type": "slurm", "partition": "long"})
    profile, word = find_profile(disk.paths, [status(0, RunState.LOST, submission=name)], None)
    assert (profile.settings.partition, word) == ("spread", "devcluster")


def test_runs_of_several_profiles_need_one_to_be_named(disk: DiskSweep) -> None:
    states = [
        status(seed, RunState.LOST, submission=submitted(disk, name, {"type": "slurm"}))
        for seed, name in enumerate(("mine", "devcluster"))
    ]
    with pytest.raises(UsageError) as caught:
        find_profile(disk.paths, states, None)
    assert caught.value.message == "these runs were submitted to `devcluster`, `mine`"
    assert caught.value.hint == "name one with --on PROFILE"
    profile, word = find_profile(disk.paths, states, "devcluster")
    assert (profile.name, word) == ("devcluster", "devcluster")
