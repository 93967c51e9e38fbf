from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config.compose import identity_config
from harness.config.conf_dir import load_conf
from harness.errors import UsageError
from harness.records.files import to_json
from harness.records.layout import SweepPaths
from harness.records.model import CodeRecord, PlanRecord, from_record, to_record
from harness.resources import CONF_DIR
from harness.sweep.identity import hash_identity
from harness.sweep.plan import Plan, build_plan
from harness.sweep.replicates import describe_replicates
from harness.sweep.spec import SweepSpec, load_sweep
from harness.sweep.store import reconcile, write_plan
from harness.sweep.validate import validate_plan

CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})
COMMAND = """[trainer=command, task=external, model=external, "trainer.argv=[a,'{replicate}']"]"""
PLAIN = "{ipo: [loss=ipo], icepop: [loss=icepop]}"
REPLICATED = (
    "{icepop: [loss=icepop], icepop_2: {replicate_of: icepop}, ipo: [loss=ipo],"
    " icepop_3: {replicate_of: icepop}, ipo_2: {replicate_of: ipo}}"
)


def load(tmp_path: Path, arms: str, *, common: str = "[]", extra: str = "") -> SweepSpec:
    path = tmp_path / "study.yaml"
    path.write_text(f"baseline: ipo\nseeds: [0, 1]\ncommon: {common}\narms: {arms}\n{extra}")
    return load_sweep(path)


def plan(tmp_path: Path, arms: str, **options: str) -> Plan:
    return build_plan(load(tmp_path, arms, **options), load_conf((CONF_DIR,)), (), CODE)


def identities(found: Plan, arm: str) -> list[str]:
    return [run.identity for run in found.record.runs if run.arm == arm]


def test_a_replicate_differs_from_its_arm_in_its_number_alone(tmp_path: Path) -> None:
    configs = plan(tmp_path, REPLICATED).configs
    for name, of, number in (("icepop_2", "icepop", 1), ("icepop_3", "icepop", 2)):
        for seed in (0, 1):
            arm = configs[f"{of}/seed_{seed}"]
            assert configs[f"{name}/seed_{seed}"] == {**arm, "replicate": number}
    assert configs["ipo_2/seed_0"]["replicate"] == 1
    assert "replicate" not in configs["ipo/seed_0"]


def test_replicates_have_identities_of_their_own_and_change_no_other(tmp_path: Path) -> None:
    without, found = plan(tmp_path, PLAIN), plan(tmp_path, REPLICATED)
    assert len({run.identity for run in found.record.runs}) == 10
    for arm in ("ipo", "icepop"):
        assert identities(found, arm) == identities(without, arm)
    config = found.configs["ipo_2/seed_0"]
    assert hash_identity(identity_config(config)) == identities(found, "ipo_2")[0]


def test_a_replicate_shows_the_differences_of_its_arm_and_no_other(tmp_path: Path) -> None:
    record = plan(tmp_path, REPLICATED).record
    assert [arm.replicate_of for arm in record.arms] == [None, "icepop", None, "icepop", "ipo"]
    assert record.arm("icepop_2").differs == record.arm("icepop").differs != ()
    assert record.arm("icepop_2").overrides == ("loss=icepop",)
    assert record.arm("ipo_2").differs == ()
    assert from_record(PlanRecord, to_record(record), where="plan") == record


def test_a_plan_without_the_field_reads_as_one_without_replicates(tmp_path: Path) -> None:
    content: dict[str, Any] = to_record(plan(tmp_path, PLAIN).record)
    for arm in content["arms"]:
        assert arm.pop("replicate_of") is None
    read = from_record(PlanRecord, content, where="plan")
    assert {arm.replicate_of for arm in read.arms} == {None}


@pytest.mark.parametrize(
    ("arm", "message", "hint"),
    [
        ("{replicate_of: ipp}", "a replicate of `ipp`, which is no arm", "did you mean `ipo`?"),
        ("{replicate_of: again}", "arm `again` is a replicate of itself", "name another: ipo"),
        (
            "{replicate_of: third}",
            "a replicate of `third`, which is a replicate itself",
            "write `{replicate_of: ipo}`: an arm may have several",
        ),
        (
            "{replicate_of: ipo, overrides: [loss.eps=0.1]}",
            "arm `again`: unknown key `overrides`",
            "a replicate has exactly its arm's configuration: write `{replicate_of: ARM}`",
        ),
        (
            "{replicates: ipo}",
            "arm `again`: unknown key `replicates`",
            "did you mean `replicate_of`?; overrides stand in a list",
        ),
        ("{}", "`replicate_of` is None", "write `{replicate_of: ARM}`"),
        ("{replicate_of: [ipo]}", "`replicate_of` is ['ipo']", "write `{replicate_of: ARM}`"),
    ],
)
def test_what_is_no_replicate_of_an_arm_is_refused(
    tmp_path: Path, arm: str, message: str, hint: str
) -> None:
    arms = f"{{ipo: [loss=ipo], again: {arm}, third: {{replicate_of: ipo}}}}"
    with pytest.raises(UsageError) as caught:
        load(tmp_path, arms)
    assert message in caught.value.message
    assert caught.value.hint == hint


def test_replicates_of_each_other_are_refused(tmp_path: Path) -> None:
    arms = "{ipo: [loss=ipo], a: {replicate_of: b}, b: {replicate_of: a}}"
    with pytest.raises(UsageError, match="`b`, which is a replicate itself") as caught:
        load(tmp_path, arms)
    assert caught.value.hint == "name an arm with overrides: ipo"


def test_a_baseline_that_is_a_replicate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the baseline `ipo` is a replicate of `one`") as caught:
        load(tmp_path, "{one: [loss=ipo], ipo: {replicate_of: one}}")
    assert caught.value.hint.startswith("write `baseline: one`")


def test_arms_that_compute_the_same_are_pointed_to_replicates(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`ipo` and `again` compute the same") as caught:
        plan(tmp_path, "{ipo: [loss=ipo], again: [loss=ipo]}")
    assert "write `again: {replicate_of: ipo}`" in caught.value.hint


@pytest.mark.parametrize("key", ["replicate=1", "replicate_of=ipo"])
def test_no_override_makes_a_replicate(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=f"unknown key `{key.split('=')[0]}`"):
        plan(tmp_path, f"{{ipo: [loss=ipo], again: [loss=ipo, {key}]}}")


def test_the_number_of_a_replicate_can_not_be_declared_to_differ(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`may_differ` holds `replicate`"):
        plan(tmp_path, REPLICATED, extra="may_differ: [loss, replicate]")


def test_a_replicate_gets_the_resources_of_its_arm_but_for_its_own(tmp_path: Path) -> None:
    extra = "resources: {icepop: {time: 60}, icepop_3: {time: 90}}"
    resources = load(tmp_path, REPLICATED, extra=extra).resources
    assert {arm: keys["time"] for arm, keys in resources.items()} == {
        "icepop": 60,
        "icepop_2": 60,
        "icepop_3": 90,
    }


def test_the_plan_says_what_a_replicate_shares(tmp_path: Path) -> None:
    builtin = describe_replicates(plan(tmp_path, REPLICATED).record)
    assert builtin.startswith("replicates: icepop_2 of icepop, icepop_3 of icepop, ipo_2 of ipo;")
    assert "share each seed's start alone" in builtin
    command = describe_replicates(plan(tmp_path, REPLICATED, common=COMMAND).record)
    assert "equal seeds are no replicate: with the trainer command every run is a rerun" in command
    assert describe_replicates(plan(tmp_path, PLAIN).record) == ""


def test_a_trainer_is_asked_about_the_arms_and_not_about_their_replicates(tmp_path: Path) -> None:
    found = plan(tmp_path, REPLICATED, common=COMMAND)
    validated, _ = validate_plan(found)
    record = replace(validated.record, remarks=())
    assert to_json(to_record(record)) == to_json(to_record(found.record))


def test_replicates_that_were_renumbered_are_refused_with_what_helps(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "outputs" / "study")
    write_plan(plan(tmp_path, REPLICATED), paths, b"")
    fewer = REPLICATED.replace(" icepop_2: {replicate_of: icepop},", "")
    with pytest.raises(UsageError) as refused:
        reconcile(plan(tmp_path, fewer), paths)
    assert "icepop_3/seed_0` was planned with another configuration" in refused.value.message
    assert refused.value.hint.startswith("replicates of an arm are numbered as they stand in")
