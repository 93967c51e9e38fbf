"""Every shipped sweep and overlay is what it claims to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.records.model import CodeRecord
from harness.resources import CONF_DIR
from harness.sweep.plan import build_plan
from harness.sweep.spec import load_sweep

SWEEPS = Path(__file__).parents[3] / "sweeps"
CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_sweep_plans_and_its_arms_differ_in_the_loss_alone(path: Path) -> None:
    spec = load_sweep(path)
    plan = build_plan(spec, load_conf((CONF_DIR,)), (), CODE).record
    assert len(plan.runs) == len(spec.arms) * len(spec.seeds)
    assert {d.key.split(".")[0] for arm in plan.arms for d in arm.differs} == {"loss"}
    assert spec.question.endswith("?")


def test_the_demo_has_the_arms_of_the_page_and_at_least_eight_seeds() -> None:
    spec = load_sweep(SWEEPS / "ipo_vs_icepop.yaml")
    assert [arm.name for arm in spec.arms] == [
        "none",
        "ipo",
        "ipo_0.1",
        "icepop",
        "kpop",
        "ipo_band",
    ]
    assert len(spec.seeds) >= 8


@pytest.mark.parametrize("group", ["loss", "task", "model", "trainer", "overlay", "experiment"])
def test_every_option_says_in_its_first_comment_what_it_is_for(group: str) -> None:
    for option in load_conf((CONF_DIR,)).options[group].values():
        lines = option.path.read_text().splitlines()
        first = lines[1] if lines[0].startswith("# @package") else lines[0]
        assert first.startswith("# "), option.path
        assert "harness " in "\n".join(lines[:3]), option.path
