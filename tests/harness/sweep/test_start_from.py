"""What `start_from` finds and refuses, with parents of real files beside the sweep."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.records.files import read_json, write_json
from harness.records.layout import OUTPUTS_ENV, RunPaths, SweepPaths
from harness.records.model import RunRecord, read_record
from harness.sweep.prepare import Prepared, prepare
from harness.sweep.start_from import describe_starts
from harness.sweep.store import write_plan

PARENT = """
baseline: none
seeds: [0, 1]
common: [experiment=stress, max_steps=60]
arms: {none: [loss=none]}
"""
FORK = """
baseline: none
seeds: [0, 1]
start_from: START
common: [experiment=stress, max_steps=100]
arms:
  none: [loss=none]
  ipo: [loss=ipo]
"""
STATE = b"weights of step "


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(OUTPUTS_ENV, str(tmp_path / "outputs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outputs"


def plan(text: str, name: str, *overrides: str) -> Prepared:
    Path(f"{name}.yaml").write_text(text)
    return prepare(f"{name}.yaml", overrides=overrides)


def fork(start: str, *overrides: str, name: str = "fork", text: str = FORK) -> Prepared:
    return plan(text.replace("START", start), name, *overrides)


def write(prepared: Prepared) -> SweepPaths:
    write_plan(prepared.plan, prepared.paths, prepared.source.path.read_bytes())
    return prepared.paths


def save(run: RunPaths, step: int, about: dict[str, Any] | None = None) -> Path:
    """Leave what the built-in trainer leaves at `step`."""
    path = run.checkpoints_dir / f"step_{step:06d}"
    path.mkdir(parents=True)
    content = STATE + str(step).encode()
    (path / "state.pt").write_bytes(content)
    manifest: dict[str, Any] = {"sha256": hashlib.sha256(content).hexdigest(), "step": step}
    write_json(path / "manifest.json", manifest | ({} if about is None else {"about": about}))
    return path


@pytest.fixture
def parent(outputs: Path) -> SweepPaths:
    """A sweep with two runs; that of seed 0 has checkpoints of steps 20 and 40."""
    paths = write(plan(PARENT, "parent"))
    save(paths.run("none", 0), 20)
    save(paths.run("none", 0), 40)
    return paths


def identities(prepared: Prepared) -> list[str]:
    return [run.identity for run in prepared.plan.record.runs]


def refusal(start: str, *overrides: str, text: str = FORK) -> UsageError:
    with pytest.raises(UsageError) as caught:
        fork(start, *overrides, text=text)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_every_run_starts_from_the_one_checkpoint_and_keeps_its_own_seed(
    parent: SweepPaths,
) -> None:
    prepared = fork("{run: parent/none/0, step: 20}")
    [start] = prepared.plan.record.start_from
    assert (start.seed, start.step, start.parent) == (None, 20, "parent/none/seed_0")
    assert start.checkpoint == "../parent/runs/none/seed_0/trainer/checkpoints/step_000020"
    for config in prepared.plan.configs.values():
        assert config["start_from"] == {"step": 20, "sha256": start.sha256}
    assert [c["seed"] for c in prepared.plan.configs.values()] == [0, 0, 1, 1]
    paths = write(prepared)
    record = read_record(RunRecord, paths.run("ipo", 1).record)
    assert record.start_from == start
    text = describe_starts(prepared.plan.record.start_from)
    assert text == "every run starts from step 20 of parent/none/seed_0"


def test_a_start_makes_other_runs_than_none_and_another_step_others_again(
    parent: SweepPaths,
) -> None:
    plain = plan(FORK.replace("start_from: START\n", ""), "plain")
    at_20, at_40 = (fork(f"{{run: parent/none/0, step: {step}}}") for step in (20, 40))
    assert len({*identities(plain), *identities(at_20), *identities(at_40)}) == 12


@pytest.mark.parametrize(
    "start",
    [
        "{run: parent/none/seed_0, step: 20}",
        "{run: outputs/parent/none/0, step: 20}",
        "{run: outputs/parent/runs/none/seed_0, step: 20}",
        "{checkpoint: outputs/parent/runs/none/seed_0/trainer/checkpoints/step_000020}",
        "{checkpoint: elsewhere/step_20}",
        "{checkpoint: elsewhere/step_20, step: 20}",
    ],
)
def test_the_same_checkpoint_by_another_name_or_path_makes_the_same_runs(
    parent: SweepPaths, start: str
) -> None:
    source = parent.run("none", 0).checkpoints_dir / "step_000020"
    shutil.copytree(source, "elsewhere/step_20")
    assert identities(fork(start)) == identities(fork("{run: parent/none/0, step: 20}"))


def test_planned_runs_follow_a_parent_that_moved(parent: SweepPaths, outputs: Path) -> None:
    paths = write(fork("{run: parent/none/0, step: 20}"))
    parent.root.rename(outputs / "moved")
    assert write(fork("{run: moved/none/0, step: 20}")) == paths
    record = read_record(RunRecord, paths.run("ipo", 1).record)
    assert record.start_from is not None
    assert record.start_from.checkpoint.startswith("../moved/")
    assert record.start_from.parent_dir == "../moved/runs/none/seed_0"


def test_without_a_step_it_is_the_newest_whole_one_and_stays_it(parent: SweepPaths) -> None:
    torn = save(parent.run("none", 0), 50)
    (torn / "state.pt").write_bytes(b"torn")
    prepared = fork("{run: parent/none/0}")
    assert prepared.plan.record.start_from[0].step == 40
    write(prepared)
    save(parent.run("none", 0), 60)
    assert fork("{run: parent/none/0}").plan.record.start_from[0].step == 40


def test_paired_forks_start_from_the_run_of_their_own_seed(parent: SweepPaths) -> None:
    error = refusal("{run: parent/none, step: 20}")
    assert "`parent/none/seed_1` has no checkpoint of step 20" in error.message
    save(parent.run("none", 1), 20, about={})
    starts = fork("{run: parent/none, step: 20}").plan.record.start_from
    assert [(start.seed, start.parent) for start in starts] == [
        (0, "parent/none/seed_0"),
        (1, "parent/none/seed_1"),
    ]
    text = describe_starts(starts)
    assert text == "each run starts from step 20 of the run of its own seed in parent/none"


def test_a_fork_of_a_fork_starts_from_its_parents_own_checkpoints(parent: SweepPaths) -> None:
    paths = write(fork("{run: parent/none/0, step: 20}"))
    save(paths.run("ipo", 1), 70)
    prepared = fork("{run: fork/ipo/1}", name="again")
    [start] = prepared.plan.record.start_from
    assert (start.step, start.parent) == (70, "fork/ipo/seed_1")
    assert start.parent_identity == read_record(RunRecord, paths.run("ipo", 1).record).identity
    with pytest.raises(UsageError, match="`fork/ipo/seed_1` has no checkpoint of step 20"):
        fork("{run: fork/ipo/1, step: 20}", name="again")


@pytest.mark.parametrize(
    ("start", "message", "hint"),
    [
        ("parent", "`start_from` is 'parent'", "start_from: {run:"),
        ("{step: 3}", "wants one of `run` and `checkpoint`", "start_from: {run:"),
        ("{run: a/b/0, checkpoint: c}", "wants one of", "start_from: {run:"),
        ("{run: parent/none/0, stpe: 3}", "unknown key `start_from.stpe`", "`step`"),
        ("{run: parent/none/0, step: 0}", "`start_from.step` is 0", "start_from: {run:"),
        ("{run: parent}", "`parent` names no run", "SWEEP/ARM/SEED"),
        ("{run: parnt/none/0}", "there is no sweep `parnt`", "name a sweep"),
        ("{run: parent/non/0}", "has no run of an arm `non`", "`none`"),
        ("{run: parent/none/7}", "no run `parent/none/seed_7`", "the seeds 0, 1"),
        ("{run: parent/none/0, step: 30}", "no checkpoint of step 30", "of step 20, 40"),
        ("{run: parent/none/1}", "`parent/none/seed_1` has no checkpoint yet", "harness status"),
        ("{checkpoint: nowhere/step_3}", "does not exist", "no other checkpoint"),
        ("{checkpoint: outputs}", "its name is not `step_N`", "step_200"),
    ],
)
def test_a_start_that_is_not_there_is_one_error(
    parent: SweepPaths, start: str, message: str, hint: str
) -> None:
    error = refusal(start)
    assert message in error.message
    assert error.message.startswith("`fork.yaml`: ")
    assert hint in error.hint
    assert not SweepPaths(parent.root.parent / "fork").root.exists()


def test_a_half_written_checkpoint_is_refused(parent: SweepPaths) -> None:
    (parent.run("none", 0).checkpoints_dir / "step_000020" / "manifest.json").unlink()
    error = refusal("{run: parent/none/0, step: 20}")
    assert "damaged or half-written: it has no `manifest.json`" in error.message
    assert "those of step 40" in error.hint


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dim=64", "is of another model: `model.dim`: 32 -> 64"),
        ("task.num_symbols=8", "is of another task: `task.num_symbols`: 16 -> 8"),
        ("max_steps=20", "`max_steps` is 20, and `parent/none/seed_0` has done 20 steps"),
    ],
)
def test_runs_that_do_not_fit_their_parent_are_refused(
    parent: SweepPaths, override: str, message: str
) -> None:
    text = FORK.replace("max_steps=100", override)
    error = refusal("{run: parent/none/0, step: 20}", text=text)
    assert message in error.message
    assert "arm `none`" in error.message


def test_a_checkpoint_says_itself_what_it_was_made_with(parent: SweepPaths) -> None:
    config = read_json(parent.run("none", 0).config)
    about = {"task": config["task"], "model": config["model"]}
    about["trainer"] = {"optim": {"type": "adamw"}}
    save(parent.run("none", 0), 50, about=about)
    shutil.move(parent.run("none", 0).checkpoints_dir / "step_000050", "step_50")
    error = refusal("{checkpoint: step_50}")
    assert "state of another recipe: `trainer.optim.type`: adamw -> sgd" in error.message
    assert len(identities(fork("{checkpoint: step_50}", text=with_optimizer("adamw")))) == 4


def with_optimizer(name: str) -> str:
    return FORK.replace("max_steps=100", f"max_steps=100, trainer.optim.type={name}")


def test_optimisers_without_averages_follow_each_other(parent: SweepPaths) -> None:
    manifest = parent.run("none", 0).checkpoints_dir / "step_000020" / "manifest.json"
    config = read_json(parent.run("none", 0).config)
    about = {"task": config["task"], "model": config["model"]}
    about["trainer"] = {"optim": {"type": "sgd"}}
    write_json(manifest, {**read_json(manifest), "about": about})
    start = "{run: parent/none/0, step: 20}"
    assert len(identities(fork(start, text=with_optimizer("sign_sgd")))) == 4
    error = refusal(start, text=with_optimizer("adamw"))
    assert "`trainer.optim.type`: sgd -> adamw" in error.message


def command(argv: Sequence[str]) -> str:
    words = json.dumps(list(argv)).replace('"', "'")
    text = FORK.replace("experiment=stress", "trainer=command, task=external, model=external")
    return text.replace("max_steps=100", f'max_steps=100, "trainer.argv={words}"')


def test_a_program_must_be_told_of_its_start(parent: SweepPaths) -> None:
    shutil.copytree(parent.run("none", 0).checkpoints_dir / "step_000020", "step_20")
    start = "{checkpoint: step_20}"
    error = refusal(start, text=command(["train"]))
    assert "uses neither `{start_checkpoint}` nor `{start_step}`" in error.message
    told = command(["train", "--from={start_checkpoint}"])
    assert len(identities(fork(start, text=told))) == 4
    with pytest.raises(UsageError, match=r"`trainer\.argv\[1\]` uses `\{start_checkpoint\}`"):
        plan(told.replace("start_from: START\n", ""), "plain")


def test_a_run_of_another_trainer_is_no_parent(parent: SweepPaths) -> None:
    text = command(["train", "{start_step}"])
    error = refusal("{run: parent/none/0, step: 20}", text=text)
    assert "`trainer.type`: `parent/none/seed_0` is a run of the trainer `builtin`" in error.message


def test_once_all_runs_have_begun_their_parent_may_go(parent: SweepPaths) -> None:
    start = "{run: parent/none/0, step: 20}"
    prepared = fork(start)
    paths = write(prepared)
    shutil.rmtree(parent.root)
    assert "there is no sweep `parent`" in refusal(start).message
    for run in prepared.plan.record.runs:
        save(paths.run(run.arm, run.seed), 30)
        claim = paths.run(run.arm, run.seed).attempt(1).claim
        write_json(claim, _claim())
    again = fork(start)
    assert identities(again) == identities(prepared)
    assert again.plan.record.start_from == prepared.plan.record.start_from
    more = FORK.replace("seeds: [0, 1]", "seeds: [0, 1, 2]")
    assert "there is no sweep `parent`" in refusal(start, text=more).message


def _claim() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "attempt": 1,
        "submission": "1",
        "nonce": "n",
        "host": "h",
        "pid": 1,
        "pid_started": "1",
        "time": 0.0,
        "max_steps": 100,
        "code_hash": "c",
        "machine": {},
    }


def test_a_parent_at_work_whose_trainer_may_drop_the_checkpoint_is_warned_of(
    parent: SweepPaths,
) -> None:
    start = "{run: parent/none/0, step: 20}"
    assert fork(start).warnings == ()
    write_json(parent.run("none", 0).attempt(1).claim, _claim())
    [warning] = fork(start).warnings
    assert "parent/none/seed_0, which runs start from, may still be at work" in warning
    config = parent.run("none", 0).config
    content = read_json(config)
    content["trainer"]["checkpoints"]["keep_every"] = 20
    write_json(config, content)
    assert fork(start).warnings == ()


def test_a_checkpoint_that_changed_makes_other_runs_and_is_refused_under_the_old_name(
    parent: SweepPaths,
) -> None:
    start = "{run: parent/none/0, step: 20}"
    write(fork(start))
    shutil.rmtree(parent.run("none", 0).checkpoints_dir / "step_000020")
    path = save(parent.run("none", 0), 20)
    assert len(identities(fork(start))) == 4
    write_json(path / "manifest.json", {**read_json(path / "manifest.json"), "about": {}})
    assert "`start_from.sha256`: " in refusal(start).message
