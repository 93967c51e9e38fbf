"""`harness run` and the verbs around it, as a user meets them: whole processes, real runs.

The trainer is the `command` trainer with small real programs, so that a run takes no time.
"""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.harness.cli.shell import PROGRAMS, Shell, sweep_text, wait_until

TRAINS = sweep_text("trains", "0")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_run_ends_in_the_report_and_running_again_runs_nothing(shell: Shell) -> None:
    shell.write(TRAINS)
    code, out, err = shell.run("run", "study")
    assert code == 0
    assert "2 of 2" in out
    assert "report: outputs/study/report/report.html" in err
    assert (shell.folder / "outputs/study/report/report.html").is_file()
    assert set(shell.states().values()) == {"done"}
    plan = (shell.folder / "outputs/study/plan.json").read_bytes()
    code, _, err = shell.run("run", "study")
    assert code == 0
    assert "all done" in err
    assert (shell.folder / "outputs/study/plan.json").read_bytes() == plan
    assert not (shell.folder / "outputs/study/plans").exists()
    attempts = list((shell.folder / "outputs/study/runs").glob("*/*/attempts/*"))
    assert {path.name for path in attempts} == {"1"}
    assert len(attempts) == 4


def test_the_code_that_ran_is_frozen_beside_the_runs(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    code_hash = shell.read("study/plan.json")["code"]["hash"]
    copy = shell.folder / "outputs/study/code" / code_hash
    assert (copy / "harness" / "__init__.py").is_file()
    assert shell.read(f"study/code/{code_hash}/code.json")["hash"] == code_hash
    claim = shell.read("study/runs/ipo/seed_0/attempts/1/claim.json")
    assert claim["code_hash"] == code_hash


def test_arms_and_seeds_can_be_added_and_those_that_left_are_kept(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    changed = TRAINS.replace("seeds: [0, 1]", "seeds: [0, 2]")
    changed = changed.replace("  icepop: [loss=icepop]", "  kpop: [loss=kpop]")
    shell.write(changed)
    code, _, err = shell.run("run", "study", "--no-report")
    assert code == 0
    assert "4 runs = 2 arms x 2 seeds, 3 missing" in err
    assert shell.read("study/plan.json")["left"] == ["icepop/seed_0", "icepop/seed_1", "ipo/seed_1"]
    assert shell.read("study/plans/1.json")["seeds"] == [0, 1]
    assert shell.states() == dict.fromkeys(
        ["ipo/0", "kpop/0", "ipo/2", "kpop/2", "icepop/0", "icepop/1", "ipo/1"], "done"
    )


def test_raising_max_steps_continues_done_runs_without_another_name(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    code, _, _ = shell.run("run", "study", "max_steps=8", "--no-report")
    assert code == 0
    run = shell.folder / "outputs/study/runs/ipo/seed_0"
    rows = [json.loads(line) for line in (run / "trainer/metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["attempt"]) for row in rows] == [
        *[(step, 1) for step in range(1, 6)],
        *[(step, 2) for step in range(6, 9)],
    ]
    assert "max_steps" not in json.loads((run / "config.json").read_text())


def test_overrides_that_change_the_runs_need_a_name_and_go_on_under_it(shell: Shell) -> None:
    shell.write(TRAINS)
    code, _, err = shell.run("run", "study", "loss.adv_tau=2", "--no-report")
    assert code == 2
    assert "--as study_2" in err
    code, _, err = shell.run("run", "study", "loss.adv_tau=2", "--as", "tau", "--no-report")
    assert (code, sorted(p.name for p in (shell.folder / "outputs").iterdir())) == (0, ["tau"])
    assert shell.read("tau/runs/ipo/seed_0/config.json")["loss"]["adv_tau"] == 2.0
    code, _, err = shell.run("run", "tau", "--no-report")
    assert code == 0
    assert "all done" in err


def test_a_changed_arm_of_the_same_name_is_refused(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    shell.write(TRAINS.replace("[loss=icepop]", "[loss=icepop, loss.ratio_low=0.5]"))
    code, _, err = shell.run("run", "study")
    assert code == 2
    assert "`loss.ratio_low`: 0.2 -> 0.5" in err
    assert "--as NAME" in err


def test_a_failed_run_does_not_stop_the_others_and_is_explained(shell: Shell) -> None:
    text = sweep_text("trains", "0").replace(
        "  icepop: [loss=icepop]",
        f"  icepop: [loss=icepop, \"trainer.argv=['{{python}}','{PROGRAMS}/raises.py',"
        "'{trainer_dir}/metrics.jsonl']\"]",
    )
    shell.write(text.replace("analysis:", "may_differ: [loss, trainer.argv]\nanalysis:"))
    code, _, err = shell.run("run", "study")
    assert code == 1
    assert "error: 2 failed of 4 runs" in err
    assert "ValueError: the batch is empty" in err
    assert "hint: harness why study icepop/" in err
    assert shell.states() == {
        "ipo/0": "done",
        "icepop/0": "failed",
        "ipo/1": "done",
        "icepop/1": "failed",
    }
    code, out, _ = shell.run("why", "study", "icepop/0")
    assert code == 0
    assert "exit code 3" in out
    assert "Traceback (most recent call last)" in out
    assert "ValueError: the batch is empty" in out
    code, out, _ = shell.run("logs", "study", "ipo/1", "--tail", "2")
    assert (code, out) == (0, "step 4\nstep 5\n")


def test_interrupting_stops_everything_and_running_again_completes_it(shell: Shell) -> None:
    gate = shell.folder / "gate"
    shell.write(sweep_text("waits", str(gate)))
    process = shell.start("run", "study", "--slots", "2")
    metrics = shell.folder / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0)
    code, _, err = shell.run("run", "study")
    assert code == 2
    assert "is being run by pid" in err
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "`harness run study` goes on from here" in err
    states = shell.states()
    assert "running" not in states.values()
    assert states["ipo/0"] == "cancelled"
    gate.touch()
    code, _, _ = shell.run("run", "study", "--no-report")
    assert code == 0
    assert set(shell.states().values()) == {"done"}


def test_cancel_from_another_shell_ends_one_run_and_leaves_the_others(shell: Shell) -> None:
    gate = shell.folder / "gate"
    shell.write(sweep_text("waits", str(gate)))
    process = shell.start("run", "study", "--no-report", "--slots", "1")
    metrics = shell.folder / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0)
    code, out, _ = shell.run("cancel", "study", "ipo", "--dry-run")
    assert (code, out.count("would cancel")) == (0, 3)
    assert "would cancel 2 runs: 1 queued, 1 running" in out
    code, out, _ = shell.run("cancel", "study", "ipo")
    assert (code, out.count("cancelling")) == (0, 3)
    wait_until((shell.folder / "outputs/study/runs/ipo/seed_0/attempts/1/exit.json").is_file)
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: 2 cancelled of 4 runs; last: ipo/seed_1: cancelled" in err
    assert shell.states() == {
        "ipo/0": "cancelled",
        "icepop/0": "done",
        "ipo/1": "cancelled",
        "icepop/1": "done",
    }


def test_done_runs_of_other_code_need_consent(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    for path in shell.folder.glob("outputs/study/runs/*/*/attempts/1/claim.json"):
        claim = json.loads(path.read_text())
        path.write_text(json.dumps({**claim, "code_hash": "0123456789abcdef"}))
    shell.write(TRAINS.replace("[0, 1]", "[0, 1, 2]"))
    code, _, err = shell.run("run", "study", "--no-report")
    assert code == 2
    assert "4 done runs were made by other code" in err
    code, _, err = shell.run("run", "study", "--no-report", "--reuse-across-code")
    assert code == 0
    assert "2 missing" in err


def test_plan_prints_json_that_equals_what_run_writes(shell: Shell) -> None:
    shell.write(TRAINS)
    code, planned, _ = shell.run("plan", "study", "--json")
    assert code == 0
    assert not (shell.folder / "outputs").exists()
    shell.run("run", "study", "--no-report")
    assert (shell.folder / "outputs/study/plan.json").read_text() == planned


def test_clean_removes_an_unused_code_copy_and_nothing_else(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    (shell.folder / "outputs/study/code/feedfeedfeedfeed").mkdir()
    code, out, _ = shell.run("clean", "study", "--dry-run")
    assert (code, "would remove 1 things" in out) == (0, True)
    shell.run("clean", "study")
    assert not (shell.folder / "outputs/study/code/feedfeedfeedfeed").exists()
    assert set(shell.states().values()) == {"done"}


def test_a_changed_analysis_is_flagged_once_data_exist(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    shell.write(TRAINS.replace("last_steps: 3", "last_steps: 2"))
    code, _, _ = shell.run("run", "study", "--no-report")
    assert code == 0
    plan = shell.read("study/plan.json")
    assert plan["analysis"]["last_steps"] == 2
    assert [spec["last_steps"] for spec in plan["earlier_analysis"]] == [3]
    code, out, _ = shell.run("plan", "study")
    assert "the analysis changed after data existed" in out


def test_the_output_folder_of_another_sweep_is_refused(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    (shell.folder / "outputs/study").rename(shell.folder / "outputs/other")
    shell.write(TRAINS, name="other")
    code, _, err = shell.run("run", "other")
    assert code == 2
    assert "holds runs of the sweep `study`, not of `other`" in err
    assert "--as NAME" in err


def test_editing_a_frozen_program_does_not_change_the_runs_that_wait(shell: Shell) -> None:
    gate = shell.folder / "gate"
    program = shell.folder / "my program" / "train.py"
    program.parent.mkdir()
    program.write_text((PROGRAMS / "waits.py").read_text())
    argv = f"['{{python}}', 'train.py', '{{trainer_dir}}/metrics.jsonl', '{gate}']"
    lines = sweep_text("unused").splitlines()
    lines = [f'  - "trainer.argv={argv}"' if "trainer.argv" in line else line for line in lines]
    lines.insert(lines.index("common:") + 1, "  - \"trainer.code_dir='my program'\"")
    shell.write("\n".join(lines))
    process = shell.start("run", "study", "--no-report", "--slots", "1")
    metrics = shell.folder / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0)
    program.write_text("raise SystemExit('edited')\n")
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert set(shell.states().values()) == {"done"}
    code_hash = shell.read("study/plan.json")["code"]["hash"]
    copy = shell.folder / "outputs/study/code" / code_hash / "program" / "train.py"
    assert copy.read_text() == (PROGRAMS / "waits.py").read_text()
    code, _, err = shell.run("run", "study", "--no-report")
    assert code == 2
    assert "4 done runs were made by other code" in err


def test_of_several_that_run_at_once_only_the_one_that_runs_writes_its_plan(shell: Shell) -> None:
    gate = shell.folder / "gate"
    shell.write(sweep_text("waits", str(gate)))
    steps = (6, 7, 8)
    processes = [shell.start("run", "study", f"max_steps={n}", "--no-report") for n in steps]
    wait_until(lambda: sum(p.poll() is not None for p in processes) == 2)
    [winner] = [p for p in processes if p.poll() is None]
    gate.touch()
    ends = [(p.communicate(timeout=60)[1], p.returncode) for p in processes]
    assert sorted(code for _, code in ends) == [0, 2, 2]
    assert all("is being run by pid" in err for err, code in ends if code == 2)
    wanted = steps[processes.index(winner)]
    assert {run["max_steps"] for run in shell.read("study/plan.json")["runs"]} == {wanted}
    [submission] = (shell.folder / "outputs/study/submissions").iterdir()
    intent = json.loads((submission / "intent.json").read_text())
    assert {run["max_steps"] for run in intent["runs"]} == {wanted}
    assert not (shell.folder / "outputs/study/plans").exists()
    assert not (shell.folder / "outputs/study/submit.lock").exists()


def test_the_lock_is_released_where_nothing_is_missing_or_the_command_is_refused(
    shell: Shell,
) -> None:
    shell.write(TRAINS)
    lock = shell.folder / "outputs/study/submit.lock"
    assert shell.run("run", "study", "--no-report")[0] == 0
    assert not lock.exists()
    assert shell.run("run", "study", "--no-report")[0] == 0
    assert not lock.exists()
    for path in shell.folder.glob("outputs/study/runs/*/*/attempts/1/claim.json"):
        claim = json.loads(path.read_text())
        path.write_text(json.dumps({**claim, "code_hash": "0123456789abcdef"}))
    assert shell.run("run", "study", "max_steps=9", "--no-report")[0] == 2
    assert not lock.exists()


def test_code_that_cannot_be_copied_leaves_the_plan_as_it_was(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    plan = (shell.folder / "outputs/study/plan.json").read_bytes()
    code_root = shell.folder / "outputs/study/code"
    code_root.rename(shell.folder / "moved")
    code_root.write_text("in the way")
    code, _, err = shell.run("run", "study", "max_steps=8", "--no-report")
    assert code == 2
    error, hint = err.splitlines()
    assert error.startswith("error: the code can't be copied to `outputs/study/code/")
    assert "HARNESS_OUTPUTS" in hint
    assert (shell.folder / "outputs/study/plan.json").read_bytes() == plan
    assert not (shell.folder / "outputs/study/submit.lock").exists()


def test_a_profile_that_does_not_fit_is_refused_before_anything_is_written(shell: Shell) -> None:
    shell.write(TRAINS)
    (shell.folder / "big.yaml").write_text("type: local\ngpus: ['0']\ngpus_per_run: 2\n")
    code, _, err = shell.run("run", "study", "--on", "big.yaml")
    assert code == 2
    assert "`gpus_per_run` is 2" in err
    assert not (shell.folder / "outputs").exists()


@pytest.mark.parametrize("name", ["exit", "claim"])
def test_a_run_with_a_damaged_record_is_left_out_and_the_others_run(
    shell: Shell, name: str
) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    path = "outputs/study/runs/ipo/seed_0/attempts/1"
    record = shell.folder / path / f"{name}.json"
    record.write_text(record.read_text()[:20])
    code, _, err = shell.run("run", "study", "max_steps=7", "--no-report")
    assert code == 1
    assert f"error: ipo/seed_0 can't be run, it is unknown: `{path}/{name}.json`" in err
    assert "hint: " in err
    assert "Traceback" not in err
    assert "4 runs = 2 arms x 2 seeds, 3 missing" in err
    expected = {"ipo/0": "unknown", "icepop/0": "done", "ipo/1": "done", "icepop/1": "done"}
    assert shell.states() == expected
    code, _, err = shell.run("run", "study", "max_steps=7", "--no-report")
    assert code == 1
    assert "none of the others is missing" in err
    assert shell.run("plan", "study", "max_steps=7")[0] == 0
    # What the hint says helps.
    if name == "exit":
        record.unlink()
    else:
        shutil.rmtree(record.parent)
    code, _, err = shell.run("run", "study", "max_steps=7", "--no-report")
    assert (code, set(shell.states().values())) == (0, {"done"}), err


def test_a_folder_that_is_no_run_disturbs_nothing(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    copy = shell.folder / "outputs/study/runs/ipo/seed_x"
    shutil.copytree(shell.folder / "outputs/study/runs/ipo/seed_0", copy)
    for verb in ("plan", "status", "run"):
        code, _, err = shell.run(verb, "study")
        assert (code, "Traceback" in err) == (0, False)


def test_lowering_max_steps_keeps_runs_done_and_shows_both_numbers(shell: Shell) -> None:
    shell.write(TRAINS)
    shell.run("run", "study", "--no-report")
    code, _, err = shell.run("run", "study", "max_steps=2", "--no-report")
    assert (code, "all done" in err) == (0, True)
    code, out, _ = shell.run("status", "study", "ipo/0")
    assert (code, "done" in out, "5, asked 2" in out) == (0, True, True)


def test_a_question_cannot_steer_the_terminal(shell: Shell) -> None:
    shell.write(TRAINS.replace("question: does it run?", 'question: "does \\e[2J it \\a run?"'))
    code, out, err = shell.run("run", "study")
    assert (code, "it \\x07 run?" in out) == (0, True)
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
