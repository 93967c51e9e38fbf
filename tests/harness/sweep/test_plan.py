from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides
from harness.errors import UsageError
from harness.records.files import to_json
from harness.records.model import CodeRecord, KeyDifference, PlanRecord, from_record, to_record
from harness.resources import CONF_DIR
from harness.sweep.plan import Plan, build_plan
from harness.sweep.spec import load_sweep

CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})
HEAD = """
question: q
baseline: ipo
seeds: [0, 1]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]
"""


def plan(tmp_path: Path, arms: str, *overrides: str, head: str = HEAD) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(f"{head}\narms:\n{arms}")
    conf_dirs = [CONF_DIR, tmp_path / "conf"] if (tmp_path / "conf").is_dir() else [CONF_DIR]
    conf = load_conf(tuple(conf_dirs))
    return build_plan(load_sweep(path), conf, parse_overrides(overrides, "command line"), CODE)


def add_overlay(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "conf" / "overlay"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(f"# @package _global_\n{text}\n")


GOOD = "  ipo: [loss=ipo]\n  wide: [loss=ipo, loss.eps=0.5]\n"


def test_runs_are_seed_major_and_each_has_its_own_identity(tmp_path: Path) -> None:
    record = plan(tmp_path, GOOD).record
    assert [run.run_id for run in record.runs] == [
        "ipo/seed_0",
        "wide/seed_0",
        "ipo/seed_1",
        "wide/seed_1",
    ]
    assert len({run.identity for run in record.runs}) == 4


def test_each_arm_shows_what_it_changes_against_the_baseline(tmp_path: Path) -> None:
    arms = plan(tmp_path, GOOD).record.arms
    assert arms[0].differs == ()
    assert arms[1].differs == (KeyDifference("loss.eps", 0.3, 0.5),)


def test_a_restated_default_is_allowed_and_shown(tmp_path: Path) -> None:
    arms = plan(tmp_path, "  ipo: [loss=ipo, loss.eps=0.3]\n  icepop: [loss=icepop]\n").record.arms
    assert arms[0].restated == ("loss=ipo", "loss.eps=0.3")
    assert arms[1].restated == ()


def test_equal_inputs_give_equal_bytes_and_the_record_reads_back(tmp_path: Path) -> None:
    first, second = plan(tmp_path, GOOD).record, plan(tmp_path, GOOD).record
    assert to_json(to_record(first)) == to_json(to_record(second))
    assert from_record(PlanRecord, to_record(first), where="x") == first


def test_an_arm_may_overrule_common(tmp_path: Path) -> None:
    head = HEAD.replace("common: [", "common: [loss.adv_tau=2.0, ")
    arms = plan(tmp_path, "  ipo: []\n  other: [loss.adv_tau=1.5]\n", head=head).record.arms
    assert arms[1].differs == (KeyDifference("loss.adv_tau", 2.0, 1.5),)


@pytest.mark.parametrize(
    ("arms", "overrides", "message"),
    [
        ("  ipo: []\n  x: [max_steps=7, loss.eps=0.1]\n", [], "`max_steps`: 400 -> 7"),
        ("  ipo: []\n  x: [trainer.native.lr=1]\n", [], "`trainer.native.lr`: None -> 1"),
        ("  ipo: []\n  x: [loss=ipo]\n", [], "the arms `ipo` and `x` compute the same"),
        ("  ipo: []\n  x: [loss.eps=0.1, loss.eps=0.2]\n", [], "has no effect"),
        ("  ipo: []\n  x: [loss.eps=0.1]\n", ["loss.eps=0.2"], "overrules it"),
        ("  ipo: []\n  x: [seed=3]\n", [], "sets the seed"),
        ("  ipo: []\n  x: [loss.esp=0.1]\n", [], "unknown key `loss.esp`"),
        ("  ipo: []\n  x: [loss.eps=???]\n", [], "has no value"),
        ("  ipo: []\n  x: [loss=icepopp]\n", [], "there is no loss `icepopp`"),
    ],
)
def test_arms_that_could_not_be_compared_are_refused(
    tmp_path: Path, arms: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, arms, *overrides)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_mistake_in_an_arm_names_file_and_arm(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, "  ipo: []\n  x: [loss.esp=0.1]\n")
    assert caught.value.message == (
        f"`{tmp_path}/study.yaml`: arm `x`: override `loss.esp=0.1`: unknown key `loss.esp`"
    )


def test_a_declared_difference_outside_the_loss_is_allowed(tmp_path: Path) -> None:
    head = f"{HEAD}may_differ: [loss, trainer.native]\n"
    arms = plan(tmp_path, "  ipo: []\n  x: [trainer.native.lr=1]\n", head=head).record.arms
    assert arms[1].differs == (KeyDifference("trainer.native.lr", None, 1),)


def test_may_differ_is_by_whole_keys_not_by_prefix_of_letters(tmp_path: Path) -> None:
    head = f"{HEAD}may_differ: [trainer.native.l]\n"
    arms = "  ipo: [trainer.native.l=0]\n  x: [trainer.native.l=0, trainer.native.lr=1]\n"
    with pytest.raises(UsageError, match=r"`trainer\.native\.lr`: None -> 1"):
        plan(tmp_path, arms, head=head)


def test_an_overlay_that_is_overruled_entirely_is_refused(tmp_path: Path) -> None:
    add_overlay(tmp_path, "tau", "loss: {adv_tau: 2.0}")
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, "  ipo: []\n  x: ['overlay=[tau]', loss.adv_tau=3.0]\n")
    assert "overlay `tau` has no effect: none of its 1 values holds" in caught.value.message


def test_an_overlay_with_effect_shows_in_the_difference(tmp_path: Path) -> None:
    add_overlay(tmp_path, "tau", "loss: {adv_tau: 2.0}")
    arms = plan(tmp_path, "  ipo: []\n  x: ['overlay=[tau]']\n").record.arms
    assert arms[1].differs == (KeyDifference("loss.adv_tau", 1.0, 2.0),)


def test_an_overlay_that_tunes_the_recipe_of_one_arm_is_refused(tmp_path: Path) -> None:
    add_overlay(tmp_path, "slow", "trainer: {native: {lr: 0.1}}")
    with pytest.raises(UsageError, match=r"trainer\.native\.lr"):
        plan(tmp_path, "  ipo: []\n  x: ['overlay=[slow]', loss.eps=0.1]\n")


def test_an_override_on_the_command_line_reaches_every_arm(tmp_path: Path) -> None:
    result = plan(tmp_path, GOOD, "max_steps=77")
    assert {run.max_steps for run in result.record.runs} == {77}
    assert result.record.overrides == ("max_steps=77",)


def test_seed_dependent_keys_do_not_count_as_differences_between_arms(tmp_path: Path) -> None:
    head = HEAD.replace("common: [", "common: ['trainer.native.s=${seed}', ")
    result = plan(tmp_path, GOOD, head=head)
    assert [c["trainer"]["native"]["s"] for c in result.configs.values()] == [0, 0, 1, 1]
    assert [d.key for d in result.record.arms[1].differs] == ["loss.eps"]


def test_a_difference_that_only_some_seeds_show_is_found(tmp_path: Path) -> None:
    arms = "  ipo: [trainer.native.x=0]\n  kpop: [loss=kpop, 'trainer.native.x=${seed}']\n"
    with pytest.raises(UsageError, match=r"`trainer\.native\.x`: 0 -> 1"):
        plan(tmp_path, arms)


def test_arms_that_compute_the_same_with_one_seed_are_refused(tmp_path: Path) -> None:
    head = f"{HEAD}may_differ: [trainer.native]\n"
    arms = "  ipo: [trainer.native.x=1]\n  b: ['trainer.native.x=${seed}']\n"
    with pytest.raises(UsageError, match="`ipo` and `b` compute the same with seed 1"):
        plan(tmp_path, arms, head=head)
    later = head.replace("[0, 1]", "[2, 3]")
    assert len(plan(tmp_path, arms, head=later).record.runs) == 4


@pytest.mark.parametrize(("key", "hint"), [("los", "`loss`"), ("nothing.like.it", "compose")])
def test_a_declared_difference_that_is_no_key_is_refused(
    tmp_path: Path, key: str, hint: str
) -> None:
    with pytest.raises(UsageError, match="is no key of any run") as caught:
        plan(tmp_path, GOOD, head=f"{HEAD}may_differ: [{key}]\n")
    assert hint in caught.value.hint
