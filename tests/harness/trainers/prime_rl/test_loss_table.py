from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.errors import UsageError
from harness.losses.config import LOSS_TYPES, parse_loss
from harness.trainers.prime_rl.loss_schema import SCHEMAS, LossSchema
from harness.trainers.prime_rl.loss_table import (
    CUSTOM_PATH,
    parse_table,
    render_loss,
    replace_loss,
    unrendered_knobs,
)


def _group(kind: str, **knobs: Any) -> dict[str, Any]:
    return dict(vars(parse_loss({"type": kind, **knobs})))


@pytest.mark.parametrize(
    ("group", "version", "table"),
    [
        (
            _group("ipo", eps=0.2),
            "newest",
            {
                "type": "ipo",
                "eps": 0.2,
                "max_importance_ratio": 1e4,
                "adv_tau": 1.0,
                "score_centering": False,
            },
        ),
        (
            _group("ipo", eps=0.2),
            "3526",
            {"type": "ipo", "eps": 0.2, "adv_tau": 1.0, "kl_tau": 0.0},
        ),
        (
            _group("ipo", eps=0.2),
            "3418",
            {"type": "ipo", "eps": 0.2, "adv_tau": 1.0, "kl_tau": 0.0},
        ),
        (
            _group("ipo", eps=0.2),
            "2798",
            {"type": "ipo", "ipo_threshold": 0.2, "adv_tau": 1.0, "kl_tau": 0.0},
        ),
        (
            _group("icepop", ratio_low=0.5),
            "newest",
            {"type": "icepop", "ratio_low": 0.5, "ratio_high": 5.0, "adv_tau": 1.0},
        ),
        (
            _group("ppo", adv_tau=0.5),
            "newest",
            {
                "type": "ppo",
                "ratio_low": 0.8,
                "ratio_high": 1.2,
                "max_importance_ratio": 1e4,
                "adv_tau": 0.5,
            },
        ),
        (
            _group("cispo"),
            "newest",
            {"type": "cispo", "ratio_low": 0.0, "ratio_high": 5.0, "adv_tau": 1.0},
        ),
    ],
)
def test_a_loss_of_prime_rl_becomes_its_own_table_with_every_knob_written_out(
    group: dict[str, Any], version: str, table: dict[str, Any]
) -> None:
    assert render_loss(group, version=version) == table


@pytest.mark.parametrize("kind", sorted({*LOSS_TYPES} - {"ipo", "icepop", "ppo", "cispo"}))
@pytest.mark.parametrize("version", SCHEMAS)
def test_a_loss_that_prime_rl_lacks_becomes_a_custom_one(kind: str, version: str) -> None:
    group = _group(kind)
    kwargs = {name: value for name, value in group.items() if value is not None}
    assert render_loss(group, version=version) == {
        "type": "custom",
        "import_path": "ablation_loss.compute",
        "kwargs": kwargs,
    }


@pytest.mark.parametrize("kind", ["icepop", "ppo", "cispo"])
def test_a_loss_that_came_later_is_custom_in_an_older_version(kind: str) -> None:
    table = render_loss(_group(kind), version="3418")
    assert (table["type"], table["kwargs"]) == ("custom", _group(kind))


def test_a_null_knob_is_left_out_of_the_arguments_of_a_custom_loss() -> None:
    table = render_loss(_group("none"), version="newest")
    assert table["kwargs"] == {"type": "none", "adv_tau": 1.0}


def test_knobs_that_are_left_out_take_their_defaults() -> None:
    assert render_loss({"type": "ipo"}, version="newest") == render_loss(
        _group("ipo"), version="newest"
    )


def test_a_knob_at_its_default_that_the_version_lacks_is_reported_not_rendered() -> None:
    assert unrendered_knobs(_group("ipo"), version="3418") == {"max_importance_ratio": 1e4}
    assert unrendered_knobs(_group("ipo"), version="newest") == {}
    assert unrendered_knobs(_group("kpop"), version="3418") == {}


@pytest.mark.parametrize(
    ("group", "version", "message"),
    [
        (
            {"type": "ipo", "max_importance_ratio": 100.0},
            "3526",
            "`loss.max_importance_ratio` is 100, but prime-rl's `ipo` has no such knob"
            " (version 3526)",
        ),
        (
            {"type": "icepop", "ratio_low": 0.0},
            "newest",
            "`loss.ratio_low` is 0, and prime-rl's `icepop` wants a number above 0",
        ),
        (
            {"type": "cispo", "ratio_low": 2.0},
            "newest",
            "`loss.ratio_low` is 2, and prime-rl's `cispo` wants a number from 0 to 1",
        ),
        (
            {"type": "cispo", "ratio_high": 0.5},
            "newest",
            "`loss.ratio_high` is 0.5, and prime-rl's `cispo` wants a number of at least 1",
        ),
        ({"type": "ip"}, "newest", "there is no loss type 'ip' (`loss.type`)"),
        ({"type": "ipo", "epsilon": 1}, "newest", "loss `ipo` has no knob `loss.epsilon`"),
        ({"type": "ipo"}, "0.5.0", "there is no known version '0.5.0' of prime-rl's losses"),
        (
            {"type": "ipo"},
            LossSchema("x.py", {"ipo": ("eps", "entropy_tau"), "custom": ()}),
            "prime-rl's loss `ipo` has the knob `entropy_tau`, unknown here (version x.py)",
        ),
    ],
)
def test_what_a_version_cannot_express_is_refused(
    group: dict[str, Any], version: str | LossSchema, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        render_loss(group, version=version)
    assert caught.value.message == message
    assert caught.value.hint


def test_the_loss_table_is_replaced_as_a_whole_and_the_bases_knobs_are_reported() -> None:
    base = {
        "max_steps": 10,
        "trainer": {"loss": {"type": "ipo", "eps": 0.3}, "model": {"cp": 4}},
    }
    before = copy.deepcopy(base)
    table = render_loss({"type": "icepop"}, version="newest")
    document, replaced = replace_loss(base, table)
    assert document == {"max_steps": 10, "trainer": {"loss": table, "model": {"cp": 4}}}
    assert replaced == {"trainer.loss.type": "ipo", "trainer.loss.eps": 0.3}
    document["trainer"]["model"]["cp"] = 8
    assert base == before


@pytest.mark.parametrize(
    "base", [{}, {"trainer": {}}, {"trainer": {"loss": {}}}], ids=["nothing", "trainer", "empty"]
)
def test_a_base_without_loss_knobs_has_nothing_replaced(base: dict[str, Any]) -> None:
    assert replace_loss(base, {"type": "ipo"}) == ({"trainer": {"loss": {"type": "ipo"}}}, {})


def test_a_base_whose_trainer_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match="`trainer` is 3, want a table"):
        replace_loss({"trainer": 3}, {"type": "ipo"})


@pytest.mark.parametrize("kind", LOSS_TYPES)
def test_a_rendered_table_is_read_back_as_the_same_loss(kind: str) -> None:
    table = render_loss(_group(kind), version="newest")
    assert parse_loss(parse_table(table, "f")) == parse_loss(_group(kind))


def test_knobs_that_a_table_leaves_out_are_left_out() -> None:
    assert parse_table({"type": "ipo", "eps": 0.1}, "f") == {"type": "ipo", "eps": 0.1}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"eps": 0.1}, "f: `trainer.loss` has no `type`"),
        ({"type": "gspo"}, "f: `trainer.loss.type` is 'gspo', which is no loss of prime-rl"),
        ({"type": "icepp"}, "f: `trainer.loss.type` is 'icepp', which is no loss of prime-rl"),
        ({"type": "default", "dppo_mask_low": 0.2}, "f: `trainer.loss.dppo_mask_low` is a key"),
        ({"type": "ipo", "ipo_threshold": 0.1}, "f: `trainer.loss.ipo_threshold` is a key that"),
        ({"type": "ipo", "kl_tau": 1e-3}, "f: `trainer.loss.kl_tau` is a key that prime-rl"),
        ({"type": "ipo", "score_centering": True}, "f: `trainer.loss.score_centering` is True"),
        ({"type": "ipo", "epz": 1.0}, "f: loss `ipo` has no knob `loss.epz`"),
        ({"type": "icepop", "eps": 0.3}, "f: loss `icepop` has no knob `loss.eps`"),
        ({"type": "custom", "import_path": "my.loss"}, "f: `trainer.loss.import_path` is 'my.los"),
        (
            {"type": "custom", "import_path": CUSTOM_PATH, "kwargs": {"type": "kpop"}, "x": 1},
            "f: `trainer.loss.x` is 1, which the loss here does not have",
        ),
        ({"type": "custom", "import_path": CUSTOM_PATH}, "f: `loss.type` is missing"),
    ],
)
def test_a_table_that_cannot_be_read_back_is_refused_by_key(
    table: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_table(table, "f")
    assert caught.value.message.startswith(message)
    assert caught.value.hint
