from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides
from harness.errors import UsageError
from harness.records.layout import SweepPaths
from harness.records.model import CodeRecord, PlanRecord, read_record
from harness.resources import CONF_DIR
from harness.sweep.plan import Plan, build_plan
from harness.sweep.spec import load_sweep
from harness.sweep.store import reconcile, write_plan

CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})
SWEEP = """
question: q
baseline: ipo
seeds: [0, 1]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]
arms:
  ipo: [loss=ipo]
  kpop: [loss=kpop]
"""


def make_plan(tmp_path: Path, text: str = SWEEP, *overrides: str) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    conf = load_conf((CONF_DIR,))
    return build_plan(load_sweep(path), conf, parse_overrides(overrides, "command line"), CODE)


@pytest.fixture
def stored(tmp_path: Path) -> SweepPaths:
    """A sweep that was planned and whose first run has begun."""
    paths = SweepPaths(tmp_path / "outputs" / "study")
    write_plan(reconcile(make_plan(tmp_path), paths), paths, SWEEP.encode())
    paths.run("ipo", 0).attempt(1).root.mkdir(parents=True)
    return paths


def refusal(plan: Plan, paths: SweepPaths) -> UsageError:
    with pytest.raises(UsageError) as caught:
        reconcile(plan, paths)
    assert caught.value.hint
    return caught.value


def test_the_same_plan_again_changes_no_file(stored: SweepPaths, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in stored.root.rglob("*") if p.is_file()}
    write_plan(reconcile(make_plan(tmp_path), stored), stored, SWEEP.encode())
    assert {p: p.read_bytes() for p in stored.root.rglob("*") if p.is_file()} == before


def test_max_steps_stands_in_the_plan_and_not_in_the_run(
    stored: SweepPaths, tmp_path: Path
) -> None:
    plan = make_plan(tmp_path, SWEEP, "max_steps=77")
    write_plan(reconcile(plan, stored), stored, SWEEP.encode())
    assert {run.max_steps for run in read_record(PlanRecord, stored.plan).runs} == {77}
    assert "max_steps" not in json.loads(stored.run("ipo", 0).config.read_text())
    assert read_record(PlanRecord, stored.earlier_plan(1)).runs[0].max_steps == 400


def test_a_stray_file_among_earlier_plans_is_no_obstacle(
    stored: SweepPaths, tmp_path: Path
) -> None:
    stored.earlier_plans_dir.mkdir()
    (stored.earlier_plans_dir / "notes.json").write_text("{}")
    write_plan(
        reconcile(make_plan(tmp_path, SWEEP, "max_steps=77"), stored), stored, SWEEP.encode()
    )
    assert stored.earlier_plan(1).is_file()


def test_a_run_folder_copied_by_hand_is_refused(stored: SweepPaths, tmp_path: Path) -> None:
    shutil.rmtree(stored.run("kpop", 0).root)
    shutil.copytree(stored.run("ipo", 0).root, stored.run("kpop", 0).root)
    assert (
        "is a copy: its `run.json` says ipo/seed_0" in refusal(make_plan(tmp_path), stored).message
    )


def test_an_edited_config_is_refused(stored: SweepPaths, tmp_path: Path) -> None:
    path = stored.run("ipo", 0).config
    config = json.loads(path.read_text())
    config["loss"]["eps"] = 0.9
    path.write_text(json.dumps(config))
    error = refusal(make_plan(tmp_path), stored)
    assert "is not what is planned now: `loss.eps`: 0.9 -> 0.3" in error.message


def test_an_output_key_of_a_planned_run_can_not_change_silently(
    stored: SweepPaths, tmp_path: Path
) -> None:
    error = refusal(make_plan(tmp_path, SWEEP, "trainer.cwd=x"), stored)
    assert "`trainer.cwd`: None -> x" in error.message


def test_a_key_that_an_older_version_did_not_know_is_no_change(
    stored: SweepPaths, tmp_path: Path
) -> None:
    path = stored.run("ipo", 0).config
    config = json.loads(path.read_text())
    del config["trainer"]["code_dir"]
    path.write_text(json.dumps(config))
    reconcile(make_plan(tmp_path), stored)


def test_a_lost_config_is_written_again(stored: SweepPaths, tmp_path: Path) -> None:
    path = stored.run("ipo", 0).config
    before = path.read_bytes()
    path.unlink()
    write_plan(reconcile(make_plan(tmp_path), stored), stored, SWEEP.encode())
    assert path.read_bytes() == before


def test_attempts_without_an_identity_are_refused(stored: SweepPaths, tmp_path: Path) -> None:
    stored.run("ipo", 0).record.unlink()
    assert "has attempts and no `run.json`" in refusal(make_plan(tmp_path), stored).message


def test_another_sweep_of_that_name_is_refused(stored: SweepPaths, tmp_path: Path) -> None:
    text = SWEEP.replace("ipo: [loss=ipo]", "a: [loss=ppo]").replace("kpop: [", "b: [")
    text = text.replace("baseline: ipo", "baseline: a")
    assert "none of its arms is planned here" in refusal(make_plan(tmp_path, text), stored).message
    assert "--as" in refusal(make_plan(tmp_path, text), stored).hint


def test_a_changed_arm_is_refused_naming_the_key(stored: SweepPaths, tmp_path: Path) -> None:
    text = SWEEP.replace("[loss=kpop]", "[loss=kpop, loss.phi=0.2]")
    assert "`loss.phi`: 0.1 -> 0.2" in refusal(make_plan(tmp_path, text), stored).message
