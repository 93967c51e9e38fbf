"""Knobs of the losses and the shipped overlays in conf/loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.config.check import check_group
from harness.errors import UsageError
from harness.losses import masks
from harness.losses.config import (
    EXTERNAL,
    LOSS_TYPES,
    IcepopConfig,
    IpoConfig,
    NoneConfig,
    parse_loss,
)

CONF_LOSS_DIR = Path(__file__).parents[3] / "conf" / "loss"
SHIPPED = sorted(path.stem for path in CONF_LOSS_DIR.glob("*.yaml") if path.stem != EXTERNAL)
"""Overlays of the losses that this project computes."""


def load_option(name: str) -> dict[str, Any]:
    data = yaml.safe_load((CONF_LOSS_DIR / f"{name}.yaml").read_text())
    assert isinstance(data, dict)
    return data


def test_the_losses_are_those_promised() -> None:
    assert set(LOSS_TYPES) == {
        "ipo",
        "icepop",
        "kpop",
        "ipo_band",
        "dppo_tv",
        "dppo_kl",
        "ppo",
        "dapo",
        "cispo",
        "tis",
        "gspo",
        "none",
    }


def test_every_loss_has_an_overlay_and_a_mask_rule() -> None:
    assert set(SHIPPED) == set(LOSS_TYPES) == set(masks.DROP_RULES)
    assert set(masks.CLIP_RULES) <= set(LOSS_TYPES)


@pytest.mark.parametrize("name", SHIPPED)
def test_an_overlay_states_every_knob_at_its_default(name: str) -> None:
    """Types included: a default of 1.0 and an overlay of 1 would be two ways to say one thing."""
    stated = load_option(name)
    defaults = dataclasses.asdict(LOSS_TYPES[name]())
    assert {k: (type(v), v) for k, v in stated.items()} == {
        k: (type(v), v) for k, v in defaults.items()
    }
    assert stated["type"] == name
    assert dataclasses.asdict(parse_loss(stated)) == stated


@pytest.mark.parametrize("name", SHIPPED)
def test_an_overlay_begins_with_its_purpose_and_comments_each_knob(name: str) -> None:
    lines = (CONF_LOSS_DIR / f"{name}.yaml").read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[1] == f"# harness compose loss={name}"
    keys = [i for i, line in enumerate(lines) if not line.startswith("#") and i > 2]
    assert all(lines[i - 1].startswith("# ") for i in keys)
    assert not any("@package" in line or line.startswith("defaults") for line in lines)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_mask_rule_finds_its_knobs_in_the_resolved_loss(name: str) -> None:
    zeros = np.zeros((1, 2))
    found = masks.drop_mask(load_option(name), zeros, zeros, advantages=zeros, loss_mask=zeros == 0)
    assert found.tolist() == [[False, False]]


def test_prime_rl_defaults() -> None:
    assert IpoConfig() == IpoConfig(eps=0.3, max_importance_ratio=1e4, adv_tau=1.0)
    assert IcepopConfig() == IcepopConfig(ratio_low=0.2, ratio_high=5.0, adv_tau=1.0)
    assert vars(parse_loss({"type": "ppo"})) == {
        "type": "ppo",
        "ratio_low": 0.8,
        "ratio_high": 1.2,
        "max_importance_ratio": 1e4,
        "adv_tau": 1.0,
    }
    assert vars(parse_loss({"type": "cispo"})) == {
        "type": "cispo",
        "ratio_low": 0.0,
        "ratio_high": 5.0,
        "adv_tau": 1.0,
    }
    assert NoneConfig().max_importance_ratio is None


@pytest.mark.parametrize(
    ("loss", "named", "hint"),
    [
        ({"type": "ipoo"}, "'ipoo'", "`ipo`"),
        ({"eps": 0.3}, "`loss.type`", "ipo"),
        ({"type": "external", "name": "gspo"}, "no formula here", "trainer=command"),
        ({"type": "ipo", "ratio_low": 0.2}, "`loss.ratio_low`", "eps"),
        ({"type": "icepop", "ratio_lo": 0.2}, "`loss.ratio_lo`", "`ratio_low`"),
        ({"type": "icepop", "ratio_low": 6.0}, "`loss.ratio_low` 6", "band"),
        ({"type": "ipo_band", "ratio_high": 0.1}, "`loss.ratio_high` 0.1", "band"),
        ({"type": "cispo", "ratio_low": 7.0}, "`loss.ratio_low` 7", "band"),
        ({"type": "ppo", "max_importance_ratio": 1.1}, "`loss.max_importance_ratio` 1.1", "1.2"),
        ({"type": "dapo", "max_importance_ratio": 1.25}, "`loss.ratio_high` 1.28", "1.28"),
    ],
)
def test_contradictions_are_refused_naming_keys_and_values(
    loss: dict[str, Any], named: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_loss(loss)
    assert named in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


def test_equal_bounds_and_a_cap_at_the_bound_are_allowed() -> None:
    parse_loss({"type": "icepop", "ratio_low": 1.0, "ratio_high": 1.0})
    parse_loss({"type": "ppo", "max_importance_ratio": 1.2})
    parse_loss({"type": "ipo_band", "max_importance_ratio": 2.0})


@pytest.mark.parametrize(
    ("name", "knob", "value"),
    [
        ("ipo", "eps", -0.1),
        ("ipo", "eps", 1.5),
        ("ipo", "max_importance_ratio", 0.5),
        ("ipo", "max_importance_ratio", 1e31),
        ("ipo", "adv_tau", -1.0),
        ("icepop", "ratio_low", -0.2),
        ("icepop", "ratio_high", 0.0),
        ("kpop", "phi", -1.0),
        ("kpop", "clamp", 0.0),
        ("kpop", "clamp", 0.5),
        ("dppo_tv", "delta_low", -0.1),
        ("dppo_kl", "delta", -0.1),
        ("ppo", "ratio_low", 1.1),
        ("ppo", "ratio_high", 0.9),
        ("dapo", "ratio_low", 0.0),
        ("gspo", "ratio_high", 0.5),
        ("tis", "max_importance_ratio", 0.9),
        ("none", "max_importance_ratio", 0.0),
    ],
)
def test_bounds_of_the_knobs_hold(name: str, knob: str, value: float) -> None:
    kind = LOSS_TYPES[name]
    check_group(kind, {"type": name}, "loss", lambda key: "loss.yaml")
    with pytest.raises(UsageError, match=f"loss.{knob}"):
        check_group(kind, {"type": name, knob: value}, "loss", lambda key: "loss.yaml")
