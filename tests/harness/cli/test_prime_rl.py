"""Ablations with prime-rl, as a user meets them: whole commands that call a test double of it.

The double (tests/harness/trainers/prime_rl/fake) trains nothing: no number here is a result.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.runner.process import pids_with
from tests.harness.cli.shell import Shell, wait_until
from tests.harness.trainers.prime_rl.fake.checkout import Layout, make_checkout, rl_command
from tests.harness.trainers.prime_rl.fake.driving import read_rows

SWEEPS = Path(__file__).parents[3] / "sweeps"
KL = "mismatch_kl/all/mean"
BASE = """
[ckpt]
interval = 2
[orchestrator]
batch_size = 16
group_size = 4
[[orchestrator.train.source]]
name = "toy"
env = { taskset = { id = "toy-tasks" } }
[inference]
[monitors.wandb]
project = "ablations"
name = "shared-by-all"
"""
STUDY = """
question: does it run?
baseline: ipo
seeds: [0]
common:
  - trainer=prime_rl
  - task=external
  - model=external
  - max_steps=6
  - trainer.base=[base.toml]
  - trainer.command={command}
{more}arms:
  ipo: [loss=ipo]
  {arm}
analysis: {{last_steps: 3, baseline_steps: [1, 2]}}
"""
SITE = """
type: local
gpus: ["4", "5", "6", "7"]
gpus_per_run: 2
grace_s: 1
"""
RUN = ("run", "study", "--on", "site.yaml")
WIDE = "wide: [loss=ipo, loss.eps=0.5]"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("double") / "prime-rl")


@pytest.fixture
def shell(tmp_path: Path, checkout: Path) -> Shell:
    """A working folder with a sweep of two arms."""
    shell = Shell(tmp_path, {"PRIME_RL_CHECKOUT": str(checkout), "FAKE_RL_STEP_S": "0.01"})
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "site.yaml").write_text(SITE)
    shell.write(study_text(checkout))
    return shell


def study_text(checkout: Path, arm: str = WIDE, more: Sequence[str] = ()) -> str:
    """Return a sweep of `ipo` and `arm`; `more` goes to all arms."""
    lines = "".join(f"  - {json.dumps(word)}\n" for word in more)
    return STUDY.format(command=json.dumps(rl_command(checkout)), arm=arm, more=lines)


def told(shell: Shell, **knobs: str) -> Shell:
    """Return `shell` with a double that is told to do something else."""
    return Shell(shell.folder, {**shell.env, **{f"FAKE_RL_{k}": v for k, v in knobs.items()}})


def run_folder(shell: Shell, arm: str = "ipo") -> Path:
    return shell.folder / f"outputs/study/runs/{arm}/seed_0/trainer/study-{arm}-s0"


def has_logged(shell: Shell, arm: str = "ipo", text: str = "Step 1 ") -> bool:
    log = run_folder(shell, arm) / "logs/latest/trainer.log"
    return log.exists() and text in log.read_text()


def document(shell: Shell, arm: str = "ipo", attempt: int = 1) -> dict[str, Any]:
    return shell.read(f"study/runs/{arm}/seed_0/attempts/{attempt}/inputs/rl.json")


def recorded_env(shell: Shell, arm: str = "ipo", attempt: int = 1) -> dict[str, Any]:
    path = run_folder(shell, arm) / f"logs/attempt_{attempt}/env.json"
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def numbers(value: Any, key: str = "") -> set[tuple[str, int]]:
    """Return the ports in a document, by key."""
    if isinstance(value, Mapping):
        pairs = [numbers(item, str(name)) for name, item in value.items()]
        return set().union(*pairs) if pairs else set()
    return {(key, value)} if key.endswith("port") else set()


def check_nothing_lives(shell: Shell) -> None:
    wait_until(
        lambda: not pids_with({"PRL_RUN_ID": recorded_env(shell)["PRL_RUN_ID"]}), "the end of all"
    )


def test_a_native_and_a_custom_loss_run_to_the_report(shell: Shell, checkout: Path) -> None:
    shell.write(study_text(checkout, "kpop: [loss=kpop]"))
    code, out, err = shell.run(*RUN)
    assert code == 0, err
    assert shell.states() == {"ipo/0": "done", "kpop/0": "done"}
    assert re.search(r"ipo/seed_0 done: step 6 of 6, .*, KL 0\.00\d+, solve rate 0\.\d+", err)
    assert re.search(r"arm +seeds +solve rate +mismatch KL", out)
    report = (shell.folder / "outputs/study/report/report.md").read_text()
    assert "Seeds are reruns" in report
    assert "| solve_rate | train/agg/all/agent/reward/mean |" in report
    assert "| mismatch_kl | mismatch_kl/all/mean |" in report
    assert document(shell)["trainer"]["loss"] == {
        "type": "ipo",
        "ipo_threshold": 0.3,
        "adv_tau": 1.0,
        "kl_tau": 0.0,
    }
    assert document(shell, "kpop")["trainer"]["loss"]["import_path"] == "ablation_loss.compute"
    code, out, _ = shell.run("logs", "study", "kpop/0", "--of", "trainer")
    assert code == 0
    assert out.startswith("custom loss ablation_loss.compute: ")
    code, out, _ = shell.run("logs", "study", "kpop/0", "--of", "inference")
    assert (code, out[:13]) == (0, "listening on ")
    code, out, _ = shell.run("logs", "study", "kpop/0", "--of", "orchestrator", "--tail", "1")
    assert (code, out[:16]) == (0, "Step 6 | Reward ")
    # Nothing of ours stands in prime-rl's folder, and no name is shared.
    names = {path.name for path in run_folder(shell).iterdir()}
    assert names == {
        "broadcasts",
        "checkpoints",
        "configs",
        "logs",
        "metrics.jsonl",
        "rollouts",
    }
    for arm in ("ipo", "kpop"):
        wandb = document(shell, arm)["monitors"]["wandb"]
        assert wandb == {
            "project": "ablations",
            "name": f"study-{arm}-s0",
            "group": "study",
            "tags": ["study", arm, "seed 0"],
        }
        record = shell.read(f"study/runs/{arm}/seed_0/run.json")
        text = f"study/{arm}/seed_0/{record['identity']}/{record['nonce']}"
        assert (
            recorded_env(shell, arm)["PRL_RUN_ID"]
            == (hashlib.sha256(text.encode()).hexdigest()[:32])
        )


def test_the_newest_layout_is_read_as_well(shell: Shell, tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "newest", layout="newest")
    shell.write(study_text(checkout, "icepop: [loss=icepop]"))
    code, out, err = shell.run(*RUN, f"trainer.checkout={checkout}")
    assert code == 0, err
    assert "2 of 2" not in out
    assert set(shell.states().values()) == {"done"}
    assert document(shell, "icepop")["trainer"]["loss"]["type"] == "icepop"
    rows = read_rows(run_folder(shell, "icepop") / "monitors/file/metrics.jsonl")
    assert [row["step"] for row in rows if KL in row] == [1, 2, 3, 4, 5, 6]


def test_runs_at_once_have_ports_of_their_own(shell: Shell) -> None:
    gate = shell.folder / "gate"
    process = told(shell, HOLD_AT="2", GATE=str(gate)).start(*RUN, "--no-report")
    wait_until(lambda: has_logged(shell) and has_logged(shell, "wide"), "two runs at once")
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    ports = [numbers(document(shell, arm)) for arm in ("ipo", "wide")]
    assert len(ports[0]) == len(ports[1]) > 2
    assert not {port for _, port in ports[0]} & {port for _, port in ports[1]}


def test_fixed_ports_are_refused_where_runs_share_a_machine(shell: Shell) -> None:
    code, _, err = shell.run(*RUN, "trainer.ports=fixed", "--slots", "2")
    assert code == 2
    assert err.splitlines()[0].startswith("error: arm `ipo` can't share a machine")
    assert not (shell.folder / "outputs").exists()


def test_a_killed_run_goes_on_from_its_checkpoint_as_the_same_run(shell: Shell) -> None:
    held = told(shell, HOLD_AT="4", GATE=str(shell.folder / "gate"))
    process = held.start(*RUN, "--no-report")
    wait_until(lambda: has_logged(shell, "wide", "Step 3 "), "step 3")
    wait_until(lambda: has_logged(shell, "ipo", "Step 3 "), "step 3")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert set(shell.states().values()) == {"cancelled"}
    code, _, err = shell.run(*RUN, "--no-report")
    assert code == 0, err
    assert set(shell.states().values()) == {"done"}
    assert "resume" not in document(shell)
    assert document(shell, attempt=2)["resume"] == {"step": 2}
    rows = read_rows(run_folder(shell) / "metrics.jsonl")
    assert [row["step"] for row in rows if KL in row] == [1, 2, 3, 3, 4, 5, 6]
    assert recorded_env(shell)["PRL_RUN_ID"] == recorded_env(shell, attempt=2)["PRL_RUN_ID"]
    log = (shell.folder / "outputs/study/runs/ipo/seed_0/attempts/2/log").read_text()
    assert "harness: going on from the checkpoint of step 2\n" in log


def test_a_run_without_a_whole_checkpoint_starts_over_and_nothing_is_deleted(shell: Shell) -> None:
    mended = shell.folder / "mended"
    broken = told(shell, FAIL_IN_SAVE="2", FAIL_UNLESS=str(mended))
    assert broken.run(*RUN, "--no-report")[0] == 1
    assert set(shell.states().values()) == {"failed"}
    old = (run_folder(shell) / "metrics.jsonl").read_bytes()
    mended.touch()
    code, _, err = broken.run("retry", "study", "--on", "site.yaml", "--no-report")
    assert code == 0, err
    assert set(shell.states().values()) == {"done"}
    assert "resume" not in document(shell, attempt=2)
    lost = run_folder(shell).with_name("study-ipo-s0.lost_1")
    assert (lost / "metrics.jsonl").read_bytes() == old
    assert (lost / "checkpoints/step_2/trainer/__0_0.distcp").is_file()
    rows = read_rows(run_folder(shell) / "metrics.jsonl")
    assert [row["step"] for row in rows if KL in row] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_ignores_sigterm_is_killed_after_the_grace(shell: Shell) -> None:
    deaf = told(shell, HOLD_AT="2", GATE=str(shell.folder / "gate"), IGNORE_SIGTERM="1")
    process = deaf.start(*RUN, "--no-report")
    wait_until(lambda: has_logged(shell) and has_logged(shell, "wide"), "two runs")
    code, _, err = shell.run("cancel", "study")
    assert code == 0, err
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert set(shell.states().values()) == {"cancelled"}
    check_nothing_lives(shell)


def test_one_arm_is_cancelled_and_retried_while_the_other_runs(shell: Shell) -> None:
    gate = shell.folder / "gate"
    held = told(shell, HOLD_AT="2", GATE=str(gate))
    process = held.start(*RUN, "--no-report")
    wait_until(lambda: has_logged(shell) and has_logged(shell, "wide"), "two runs")
    assert shell.run("cancel", "study", "ipo")[0] == 0
    wait_until((shell.folder / "outputs/study/runs/ipo/seed_0/attempts/1/exit.json").is_file)
    check_nothing_lives(shell)
    gate.touch()
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert shell.states() == {"ipo/0": "cancelled", "wide/0": "done"}
    assert shell.run("retry", "study", "--on", "site.yaml", "ipo", "--no-report")[0] == 0
    assert shell.states() == {"ipo/0": "done", "wide/0": "done"}


def test_a_failed_run_is_explained_by_what_its_trainer_said(shell: Shell) -> None:
    code, _, err = told(shell, FAIL_AT="3").run(*RUN, "--no-report")
    assert code == 1
    assert "RuntimeError: told to fail at step 3" in err
    code, out, _ = shell.run("why", "study", "ipo/0")
    assert code == 0
    assert "reason: trainer: RuntimeError: told to fail at step 3\n" in out


def test_a_mismatch_that_is_not_finite_shows_as_a_gap(shell: Shell) -> None:
    code, out, err = told(shell, NAN_FROM="4").run(*RUN)
    assert code == 0, err
    assert "* Mismatch KL exploded in ipo 1 of 1 (from step 4), wide 1 of 1 (from step 4)." in out
    assert "! mismatch KL is missing at steps that were trained (from step 4)" in out


def test_the_plan_says_what_it_replaced_and_how_the_arms_were_checked(
    shell: Shell, checkout: Path
) -> None:
    base = BASE + '[trainer.loss]\ntype = "ipo"\nipo_threshold = 0.1\n'
    (shell.folder / "base.toml").write_text(base)
    code, out, err = shell.run("plan", "study")
    assert (code, err) == (0, "")
    assert "`trainer.loss.ipo_threshold` 0.1" in out
    assert "prime-rl's own dry run resolved every arm" in out
    assert "Seeds are reruns" in out
    code, out, err = shell.run("plan", "study", "trainer.validate=schema")
    assert (code, err) == (0, "")
    assert "prime-rl itself did not check the arms" in out
    seeded = "trainer.seed_keys=[inference.vllm.seed]"
    shell.write(study_text(checkout, more=[seeded]))
    code, out, err = shell.run("plan", "study")
    assert (code, err) == (0, "")
    assert "Seeds set `inference.vllm.seed`" in out
    assert not (shell.folder / "outputs").exists()


@pytest.mark.parametrize("layout", ["august", "newest"])
@pytest.mark.parametrize("name", ["reverse_text", "glm45air_swe"])
def test_the_ablations_that_come_along_are_taken_by_prime_rl(
    shell: Shell, tmp_path: Path, name: str, layout: Layout
) -> None:
    checkout = make_checkout(tmp_path / layout, layout=layout)
    here = Shell(shell.folder, {"PRIME_RL_CHECKOUT": str(checkout)})
    command = f"trainer.command={json.dumps(rl_command(checkout))}"
    code, out, err = here.run("plan", str(SWEEPS / f"{name}.yaml"), command)
    assert (code, err) == (0, "")
    assert "15 runs = 5 arms x 3 seeds" in out
    assert "prime-rl's own dry run resolved every arm" in out


def test_the_checkout_can_be_named_on_the_command_line_alone(shell: Shell, checkout: Path) -> None:
    bare = Shell(shell.folder, {"PRIME_RL_CHECKOUT": ""})
    code, _, err = bare.run("plan", "study", f"trainer.checkout={checkout}")
    assert (code, err) == (0, "")


def test_planning_leaves_the_checkout_and_the_current_folder_as_they_are(
    shell: Shell, checkout: Path
) -> None:
    before = sorted(path for path in checkout.rglob("*") if "__pycache__" not in path.parts)
    here = sorted(shell.folder.rglob("*"))
    assert shell.run("plan", "study")[0] == 0
    assert sorted(path for path in checkout.rglob("*") if "__pycache__" not in path.parts) == before
    assert sorted(shell.folder.rglob("*")) == here


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["trainer.checkout=nowhere"], "`trainer.checkout` is 'nowhere', which is no folder"),
        (["trainer.checkout=sweeps"], "declares no losses of prime-rl"),
        (
            ["trainer.command=[no-such-program]", "trainer.validate=dry_run"],
            "no-such-program",
        ),
        (["trainer.command=[no-such-program]"], "no-such-program"),
        (["trainer.loss_version=1999"], "no known version '1999' of prime-rl's losses"),
        (["trainer.patch=['orchestrator.batch_size=16']"], "has no effect"),
        (
            ["trainer.native={orchestrator: {batchsize: 8}}"],
            "prime-rl refuses it: orchestrator.batchsize: Extra inputs are not permitted",
        ),
        (["trainer.native={orchestrator: {batch_size: 10}}"], "no multiple of group_size"),
        (["trainer.native={clean: true}"], "`clean` is True"),
        (["trainer.native={resume: {step: 3}}"], "`resume.step` is 3"),
        (["trainer.env={PRL_RUN_ID: mine}"], "`trainer.env.PRL_RUN_ID` names a run"),
        (["trainer.native={deployment: {type: multi_node, num_train_nodes: 1}}"], "nodes"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_anything_is_written(
    shell: Shell, checkout: Path, words: list[str], error: str
) -> None:
    shell.write(study_text(checkout, more=words))
    check_refused(shell, error)


def check_refused(shell: Shell, error: str, *words: str) -> None:
    code, out, err = shell.run(*RUN, *words)
    assert (code, out) == (2, ""), err
    lines = err.splitlines()
    assert lines[0].startswith("error: "), err
    assert error in lines[0]
    assert [line[:6] for line in lines[1:]] in ([], ["hint: "]), err
    assert not (shell.folder / "outputs").exists()


def test_no_checkout_at_all_is_refused(shell: Shell) -> None:
    bare = Shell(shell.folder, {**shell.env, "PRIME_RL_CHECKOUT": ""})
    check_refused(bare, "PRIME_RL_CHECKOUT is empty")


def test_a_wrong_variable_is_blamed_on_no_key(shell: Shell) -> None:
    wrong = Shell(shell.folder, {**shell.env, "PRIME_RL_CHECKOUT": "/nowhere"})
    code, _, err = wrong.run("plan", "study")
    assert code == 2
    assert err.splitlines()[0] == ("error: PRIME_RL_CHECKOUT is '/nowhere', which is no folder")


def test_a_missing_file_is_refused(shell: Shell) -> None:
    (shell.folder / "base.toml").rename(shell.folder / "bse.toml")
    check_refused(shell, "`trainer.base[0]` is 'base.toml': there is no such file")


def test_a_syntax_error_is_named_by_file_and_line(shell: Shell) -> None:
    (shell.folder / "base.toml").write_text("[ckpt]\ninterval = = 2\n")
    check_refused(shell, "base.toml:2")


def test_a_key_that_prime_rl_renamed_is_refused_by_its_declarations_too(shell: Shell) -> None:
    (shell.folder / "base.toml").write_text(BASE + "[file_monitor]\nfilename = 'm.jsonl'\n")
    check_refused(shell, "file_monitor")
    check_refused(shell, "file_monitor", "trainer.validate=schema")


@pytest.mark.parametrize(
    ("arm", "error"),
    [
        ("twin: [loss=ipo, loss.eps=0.3]", "the same"),
        ("typo: [loss=ippo]", "`ippo`"),
        ("gone: [loss=gspoo]", "gspo"),
        ("capped: [loss=ipo, loss.max_importance_ratio=5]", "`ipo` has no such knob"),
        ("idle: [loss=ipo, loss.eps=0.5, \"trainer.patch=['ckpt.interval=2']\"]", "has no effect"),
        ("other: [loss=icepop, 'trainer.native={max_off_policy_steps: 4}']", "may_differ"),
    ],
)
def test_arms_that_are_equal_or_confounded_are_refused(
    shell: Shell, checkout: Path, arm: str, error: str
) -> None:
    shell.write(study_text(checkout, arm))
    code, _, err = shell.run(*RUN)
    assert code == 2
    assert error in err
    assert not (shell.folder / "outputs").exists()


def test_a_checkout_that_changed_since_the_plan_ends_the_run(shell: Shell, tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "own")
    gate = shell.folder / "gate"
    held = told(shell, HOLD_AT="2", GATE=str(gate))
    words = (*RUN, f"trainer.checkout={checkout}", "--no-report", "--slots", "1")
    process = held.start(*words)
    wait_until(lambda: has_logged(shell), "the first run")
    with (checkout / "bin" / "rl").open("a") as file:
        file.write("# edited\n")
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert shell.states() == {"ipo/0": "done", "wide/0": "failed"}
    assert "changed since the plan" in err


def test_tokens_are_found_where_prime_rl_exports_them(shell: Shell, checkout: Path) -> None:
    native = "trainer.native={trainer: {enable_token_export: true}}"
    shell.write(study_text(checkout, more=[native]))
    code, _, err = shell.run(*RUN, "--no-report")
    assert code == 0, err
    record = shell.read("study/runs/ipo/seed_0/run.json")
    assert record["tokens_format"] == "prime_rl"
    assert (shell.folder / f"outputs/study/runs/ipo/seed_0/{record['tokens']}").is_dir()
    code, out, err = shell.run("replay", "study", "--json")
    assert code == 0, err
    assert json.loads(out)


def test_forks_start_from_a_checkpoint_and_a_rule_stops_them(shell: Shell, checkout: Path) -> None:
    assert shell.run(*RUN, "--no-report")[0] == 0
    parent = run_folder(shell) / "checkpoints/step_4"
    fork = study_text(checkout, "again: {replicate_of: ipo}").replace("max_steps=6", "max_steps=90")
    extra = (
        "start_from: {run: study/ipo/0, step: 4}\nstop_when: [{metric: mismatch_kl, above: 0}]\n"
    )
    (shell.folder / "fork.yaml").write_text(fork + extra)
    code, out, err = told(shell, STEP_S="0.1").run("run", "fork.yaml", "--on", "site.yaml")
    assert code == 0, err
    states = {
        arm: shell.read(f"fork/runs/{arm}/seed_0/attempts/1/exit.json") for arm in ("ipo", "again")
    }
    assert {arm: (end["reason"], end["rule_step"]) for arm, end in states.items()} == {
        "ipo": ("stopped", 5),
        "again": ("stopped", 5),
    }
    rendered = shell.read("fork/runs/again/seed_0/attempts/1/inputs/rl.json")
    assert rendered["resume"] == {"dir": str(parent)}
    ids = {shell.read(f"fork/runs/{arm}/seed_0/run.json")["nonce"] for arm in states}
    assert len(ids) == 2
    assert "A/A difference of ipo (again)" in out
