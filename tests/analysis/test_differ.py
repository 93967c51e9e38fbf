from __future__ import annotations

from pathlib import Path

from analysis import load_sweep
from analysis.differ import Circumstances, Difference, find_differences, is_covered, text_of
from tests.analysis.conftest import HEALTHY, MACHINE, Behaviour, MakeSweep


def differences(root: Path) -> Circumstances:
    return find_differences(load_sweep(root))


def undeclared(root: Path) -> list[Difference]:
    return [item for item in differences(root).differences if not item.is_declared]


def test_arms_that_differ_in_the_loss_alone_have_declared_differences_only(
    sweep_maker: MakeSweep,
) -> None:
    found = differences(sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, max_steps=5))
    [item] = found.differences
    assert (item.area, item.key, item.is_declared) == ("config", "loss.type", True)
    assert item.values == {"ipo": ("ipo",), "icepop": ("icepop",)}
    assert found.same["cpu_model"] == "Synthetic CPU 1"
    assert found.same["code hash"] == "c0de"


def test_a_key_beyond_the_declared_ones_is_undeclared(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(
        {"ipo": HEALTHY, "icepop": HEALTHY},
        max_steps=5,
        extra_config=lambda arm, seed: {"trainer": {"lr": 0.5 if arm == "ipo" else 0.25}},
    )
    [item] = undeclared(root)
    assert (item.area, item.key) == ("config", "trainer.lr")
    assert item.values == {"0.5": ("ipo",), "0.25": ("icepop",)}


def test_keys_that_follow_the_seed_are_no_difference_between_arms(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(
        {"ipo": HEALTHY, "icepop": HEALTHY},
        max_steps=5,
        extra_config=lambda arm, seed: {"task": {"data_seed": 10 + seed}},
    )
    assert undeclared(root) == []


def test_a_key_that_only_one_arm_has_is_shown_as_absent(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(
        {"ipo": HEALTHY, "icepop": HEALTHY},
        seeds=(0,),
        max_steps=5,
        extra_config=lambda arm, seed: {"note": 1} if arm == "ipo" else {},
    )
    [item] = undeclared(root)
    assert item.values == {"1": ("ipo",), "(absent)": ("icepop",)}


def test_another_machine_or_code_is_named_with_its_runs(sweep_maker: MakeSweep) -> None:
    other = Behaviour(machine={**MACHINE, "cpu_model": "Synthetic CPU 2"}, code_hash="beef")
    root = sweep_maker({"ipo": HEALTHY, "icepop": other}, seeds=(0, 1), max_steps=5)
    found = {item.key: item for item in undeclared(root)}
    assert found["cpu_model"].values == {
        "Synthetic CPU 1": ("ipo/seed_0", "ipo/seed_1"),
        "Synthetic CPU 2": ("icepop/seed_0", "icepop/seed_1"),
    }
    assert found["code hash"].area == "code"


def test_names_of_hosts_are_no_difference(sweep_maker: MakeSweep) -> None:
    other = Behaviour(machine={**MACHINE, "hostname": "another-host"})
    root = sweep_maker({"ipo": HEALTHY, "icepop": other}, max_steps=5)
    assert undeclared(root) == []
    assert differences(root).same["versions.torch"] == "2.13.0"


def test_runs_of_other_code_than_the_plans_are_named(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(code_hash="beef")}, max_steps=5)
    [item] = undeclared(root)
    assert item.values == {"c0de": ("the plan",), "beef": ("every run",)}


def test_covered_keys_are_the_root_and_what_lies_below() -> None:
    assert is_covered("loss", ["loss"])
    assert is_covered("loss.eps", ["loss"])
    assert not is_covered("loss_scale", ["loss"])
    assert not is_covered("trainer.lr", [])


def test_values_are_written_as_people_write_them() -> None:
    assert text_of("1e-3") == "1e-3"
    assert text_of(0.1) == "0.1"
    assert text_of(None) == "null"
    assert text_of([1, "a"]) == '[1,"a"]'
