from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.sweep.spec import SweepSpec, load_sweep

GOOD = """
question: does it work?
baseline: ipo
seeds: [0, 1]
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
"""


def load(tmp_path: Path, text: str, name: str = "study") -> SweepSpec:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return load_sweep(path)


def test_a_plain_sweep_has_its_declared_parts_and_the_documented_defaults(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD)
    assert spec.name == "study"
    assert spec.seeds == (0, 1)
    assert [(arm.name, [o.text for o in arm.overrides]) for arm in spec.arms] == [
        ("ipo", ["loss=ipo"]),
        ("icepop", ["loss=icepop"]),
    ]
    assert spec.may_differ == ("loss",)
    assert spec.pairing == "seed"
    assert (spec.analysis.explode_factor, spec.analysis.explode_hold) == (20.0, 3)


def test_grid_is_the_product_of_its_axes_named_by_the_template(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        """
baseline: ipo_0.1_x1.0
seeds: [0]
grid:
  ipo_{eps}_x{loss.adv_tau}:
    overrides: [loss=ipo]
    axes: {loss.eps: [0.1, 1e-3], loss.adv_tau: [1.0]}
""",
    )
    assert [(arm.name, [o.text for o in arm.overrides]) for arm in spec.arms] == [
        ("ipo_0.1_x1.0", ["loss=ipo", "loss.eps=0.1", "loss.adv_tau=1.0"]),
        ("ipo_0.001_x1.0", ["loss=ipo", "loss.eps=0.001", "loss.adv_tau=1.0"]),
    ]


def test_zip_walks_its_axes_together(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        """
baseline: band_0.2_5
seeds: [0]
zip:
  band_{ratio_low}_{ratio_high}:
    axes: {loss.ratio_low: [0.2, 0.5], loss.ratio_high: [5, 2]}
""",
    )
    assert [arm.name for arm in spec.arms] == ["band_0.2_5", "band_0.5_2"]


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("baseline: ipo", "baseline: ipoo", "the baseline `ipoo` is not an arm", "`ipo`"),
        ("baseline: ipo", "baselin: ipo", "unknown key `baselin`", "`baseline`"),
        ("baseline: ipo\n", "", "has no `baseline`", "ipo, icepop"),
        ("[0, 1]", "[0, 0]", "the seed 0 stands twice", "once"),
        ("[0, 1]", "[0, -1]", "`seeds` is -1, want at least 0", ""),
        ("[0, 1]", "[0, 1.5]", "`seeds` is 1.5, want a whole number", ""),
        ("[0, 1]", "8", "`seeds` is 8, want a list", "[0, 1, 2]"),
        ("[0, 1]", "[]", "`seeds` is []", ""),
        ("  icepop: [loss=icepop]", "  ICEPOP: []\n  icepop: []", "have one name", "case"),
        ("  icepop:", "  a/b:", "'a/b' can't be the name of an arm", ""),
        ("  icepop:", "  ..:", "'..' can't be the name of an arm", ""),
        ("  icepop:", "  50%:", "'50%' can't be the name of an arm", ""),
        ("  icepop:", f"  {'x' * 65}:", "can't be the name of an arm", "at most 64"),
        ("[loss=icepop]", "loss=icepop", "arm `icepop` is 'loss=icepop', want a list", ""),
        ("[loss=icepop]", "[+loss=icepop]", "adds or deletes a key", "`loss=icepop`"),
        ("question:", "pairing: sed\nquestion:", "`pairing` is 'sed'", "`seed`"),
        ("question:", "analysis: {alhpa: 0.1}\nquestion:", "`analysis.alhpa`", "`alpha`"),
        ("question:", "analysis: {alpha: 0.6}\nquestion:", "want less than 0.5", ""),
        ("question:", "analysis: {alpha: '0.1'}\nquestion:", "want a number", "quotes"),
        ("question:", "analysis: {baseline_steps: [9, 3]}\nquestion:", "holds no step", ""),
        ("question:", "analysis: {primary: [solve_rat]}\nquestion:", "no metric", "`solve_rate`"),
        ("question:", "may_differ: [seed]\nquestion:", "`may_differ` holds `seed`", ""),
        ("question:", "analysis: {primary: []}\nquestion:", "want each metric once", ""),
        ("question:", "analysis: {last_steps: 9999999999}\nquestion:", "want at most", ""),
        ("question:", "analysis: {alpha: 1e-300}\nquestion:", "want at least 1e-06", ""),
        ("  icepop:", "  null:", "None can't be the name of an arm", "quote"),
        ("question:", "grid: {x: {overrides: a=1, axes: {b: [1]}}}\nquestion:", "want a list", ""),
        ("question: does it work?", "question: [1]", "`question` is [1], want text", ""),
        ("question:", "grid: {x_{a}: {axes: {b: [1]}}}\nquestion:", "not valid YAML", ""),
        ("question:", "grid: {'x_{a}': {axes: {b: [1]}}}\nquestion:", "is no axis", ""),
        ("question:", "grid: {x: {axes: {b: 1}}}\nquestion:", "axis `b` is 1", ""),
        ("question:", "zip: {x: {axes: {a: [1], b: [1, 2]}}}\nquestion:", "unequal lengths", ""),
    ],
)
def test_a_mistake_names_file_key_and_value(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert message in caught.value.message
    assert "study.yaml" in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("text", ["", "3", "[a]", "arms: {}\nbaseline: x\nseeds: [0]"])
def test_an_empty_or_shapeless_sweep_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        load(tmp_path, text)


def test_arm_names_that_yaml_11_would_read_as_booleans_stay_names(tmp_path: Path) -> None:
    spec = load(tmp_path, "baseline: on\nseeds: [0]\narms:\n  on: []\n  off: [loss=icepop]\n")
    assert [arm.name for arm in spec.arms] == ["on", "off"]


def test_the_file_name_must_be_a_sweep_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'a b' can't be the name of a sweep"):
        load(tmp_path, GOOD, name="a b")
