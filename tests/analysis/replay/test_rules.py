"""Rules as users write them, and what they decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from analysis.replay.block import Block
from analysis.replay.edges import COMPARISONS, decide, undecidable
from analysis.replay.requests import INVERSE, make_curve, parse_curve
from analysis.replay.rules import RULES, Rule, make_rule, parse_rule
from analysis.replay.tokens import TokenChunk, TokenColumns
from harness.errors import UsageError
from harness.losses import masks
from harness.losses.config import LOSS_TYPES
from tests.analysis.replay.replay_tokens import adversarial_tokens, random_tokens

GOLDEN = [
    # p, q; then as the reference table: IPO, IcePop, KPop, A > 0, A < 0, CISPO, TIS.
    (0.06, 0.01, "000", "111", "00", "00011", "00000", "1", "1"),
    (0.01, 0.06, "000", "111", "00", "00000", "00111", "0", "0"),
    (0.20, 0.90, "111", "011", "10", "00000", "11111", "0", "0"),
    (0.90, 0.20, "111", "001", "10", "11111", "00000", "0", "1"),
    (0.55, 0.50, "000", "000", "00", "00000", "00000", "0", "0"),
    (0.999, 0.60, "111", "000", "11", "11111", "00000", "0", "0"),
    (0.60, 0.999, "111", "000", "11", "00000", "11111", "0", "0"),
    (1e-4, 1e-6, "000", "111", "00", "00011", "00000", "1", "1"),
    (1e-6, 1e-4, "000", "111", "00", "00000", "00011", "0", "0"),
    (0.30, 0.05, "110", "111", "10", "11111", "00000", "1", "1"),
]
COLUMNS = (
    ("ipo:eps=0.1", "ipo:eps=0.2", "ipo:eps=0.3"),
    (
        "icepop:ratio_low=0.2,ratio_high=5",
        "icepop:ratio_low=0.5,ratio_high=5",
        "icepop:ratio_low=0.5,ratio_high=2",
    ),
    ("kpop:phi=0.1", "kpop:phi=2"),
    (
        "dppo_tv:delta_low=0.15,delta_high=0.15",
        "dppo_tv:delta_low=0.2,delta_high=0.2",
        "dppo_kl:delta=0.05",
        "ppo",
        "dapo",
    ),
    ("cispo:ratio_high=5",),
    ("tis:max_importance_ratio=2",),
)


def everything() -> TokenColumns:
    return TokenColumns(advantages=True, sequences=True, steps=True)


def call(rule: Rule, columns: list[Any]) -> list[bool]:
    """Apply the rule's function, in whatever kind the columns are."""
    answer: list[bool] = rule.spec.mask(*columns, **rule.knobs).tolist()
    return answer


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("row", GOLDEN, ids=[f"{row[1]}-{row[0]}" for row in GOLDEN])
def test_every_rule_decides_as_the_golden_table_says(
    row: tuple[float, float, str, str, str, str, str, str, str], library: str
) -> None:
    p, q, ipo, icepop, kpop, positive, negative, cispo, tis = row
    numbers = [np.log(np.array([value], np.float64)).astype(np.float32) for value in (p, q)]
    expected = {
        1.0: (ipo, icepop, kpop, positive, cispo, tis),
        -1.0: (ipo, icepop, kpop, negative, cispo, tis),
    }
    for advantage, digits in expected.items():
        columns: list[Any] = [*numbers, np.array([advantage], np.float32)]
        if library == "torch":
            columns = [torch.from_numpy(column) for column in columns]
        for texts, digit in zip(COLUMNS, digits, strict=True):
            rules = [parse_rule(text) for text in texts]
            found = [
                call(rule, columns if "advantages" in rule.spec.needs else columns[:2])
                for rule in rules
            ]
            assert found == [[one == "1"] for one in digit], texts


@pytest.mark.parametrize("type", sorted(RULES))
def test_a_rule_decides_the_same_in_torch_as_in_the_replay_but_within_ulps_of_an_edge(
    type: str,
) -> None:
    trainer, inference = adversarial_tokens()
    advantages = np.resize(np.array([1, -1, 0], np.float32), len(trainer))
    block = Block(TokenChunk(trainer, inference, advantages, np.arange(len(trainer))))
    rule = make_rule(type, {})
    columns = [torch.from_numpy(column) for column in (trainer, inference)]
    if "advantages" in rule.spec.needs:
        columns.append(torch.from_numpy(advantages))
    if rule.spec.is_sequence_rule:
        columns = [column[:, None] for column in columns]
        columns.append(torch.ones_like(columns[0], dtype=torch.bool))
    with np.errstate(over="ignore"):
        ours, near = decide(rule, block), undecidable(rule, block, None)
    theirs = rule.spec.mask(*columns, **rule.knobs).reshape(-1).numpy()
    assert np.count_nonzero((ours != theirs) & ~near) == 0
    assert np.count_nonzero(near) < len(trainer) / 4


@pytest.mark.parametrize("type", sorted(RULES))
def test_the_comparisons_of_a_rule_mask_exactly_what_its_function_masks(type: str) -> None:
    trainer, inference = adversarial_tokens()
    made = random_tokens(4000, seed=3)
    trainer = np.concatenate([trainer, made.trainer_logprobs])
    inference = np.concatenate([inference, made.inference_logprobs])
    advantages = np.resize(np.array([1, -1, 0, -0.5], np.float32), len(trainer))
    block = Block(TokenChunk(trainer, inference, advantages, np.arange(len(trainer)) // 3))
    rule = make_rule(type, {})
    expected = decide(rule, block)
    found = np.zeros(len(block), np.bool_)
    for one in COMPARISONS[type]:
        values, edge = one.values(block, rule.knobs), one.edge(rule.knobs[one.knob])
        where = one.where(block)
        holds = values > edge if one.is_above else values < edge
        found |= holds if where is None else holds & where
    np.testing.assert_array_equal(found, expected)


def test_sequence_rules_look_at_the_whole_sequence() -> None:
    chunk = TokenChunk(
        np.log(np.array([0.2, 0.8, 0.5], np.float32)),
        np.log(np.array([0.1, 0.4, 0.5], np.float32)),
        np.array([1, -1, 1], np.float32),
        np.array([7, 7, 9]),
    )
    block = Block(chunk)
    assert decide(parse_rule("seq_tis:max_importance_ratio=3.9"), block).tolist() == [True] * 2 + [
        False
    ]
    assert decide(parse_rule("seq_tis:max_importance_ratio=4.1"), block).tolist() == [False] * 3
    assert decide(parse_rule("geo_mis:ratio_high=1.9"), block).tolist() == [True, True, False]
    assert decide(parse_rule("geo_mis:ratio_high=2.1"), block).tolist() == [False] * 3
    # GSPO clips a raised sequence where the token's advantage is positive.
    assert decide(parse_rule("gspo"), block).tolist() == [True, False, False]


def test_k1_bounds_the_inverse_of_icepops_ratio() -> None:
    block = Block(TokenChunk(*(np.log(np.array([x], np.float32)) for x in (0.6, 0.1))))
    assert decide(parse_rule("icepop:ratio_low=0.2,ratio_high=10"), block).tolist() == [False]
    assert decide(parse_rule("k1:ratio_low=0.2,ratio_high=10"), block).tolist() == [True]


@pytest.mark.parametrize("type", sorted(set(RULES) & set(LOSS_TYPES)))
def test_defaults_are_those_that_training_has(type: str) -> None:
    trained = LOSS_TYPES[type]()
    for name, value in make_rule(type, {}).knobs.items():
        assert value == getattr(trained, name)


def test_every_loss_that_drops_tokens_can_be_replayed() -> None:
    droppers = {name for name, rule in masks.DROP_RULES.items() if rule is not masks.keep_all_mask}
    assert {name for name in droppers if RULES[name].mask is masks.DROP_RULES[name]} == droppers


def test_a_rule_is_labelled_with_every_knob_and_reads_back() -> None:
    rule = parse_rule("kpop:phi=0.1")
    assert rule.label == "kpop:phi=0.1,clamp=1e-06"
    for type in RULES:
        assert parse_rule(make_rule(type, {}).label) == make_rule(type, {})
    odd = make_rule("ipo", {"eps": 0.1234567891234})
    assert parse_rule(odd.label) == odd


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("ipos:eps=0.3", "there is no rule `ipos`", "did you mean `ipo`?"),
        ("ipo:epsi=0.3", "rule `ipo` has no knob `epsi`", "did you mean `eps`?"),
        ("ipo:eps=1.5", "`eps` of rule `ipo` is 1.5", "`eps` must be at most 1"),
        ("ipo:eps=nan", "`eps` of rule `ipo` is nan", "`eps` must be finite"),
        ("k2:delta=200", "`delta` of rule `k2` is 200", "`delta` must be below 200"),
        ("ipo:eps=x", "`eps=x` in `ipo:eps=x` is no number", "like `0.3`"),
        ("ipo:0.3", "`0.3` in `ipo:0.3` is no knob", "write `name=value`"),
        (
            "ipo:eps=0.3,eps=0.2",
            "`eps` stands twice in `ipo:eps=0.3,eps=0.2`",
            "give each knob once",
        ),
        (
            "icepop:ratio_low=6",
            "rule `icepop`: `ratio_low` 6 is above `ratio_high` 5",
            "the band is [ratio_low, ratio_high]",
        ),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_rule_without_its_columns_is_refused_with_the_reason() -> None:
    nothing = TokenColumns()
    assert "column `advantages`" in make_rule("ppo", {}).refusal(nothing)
    assert "column `sequences`" in make_rule("seq_mis", {}).refusal(nothing)
    assert make_rule("ipo", {}).refusal(nothing) == ""
    assert all(make_rule(type, {}).refusal(everything()) == "" for type in RULES)


def test_a_curve_has_increasing_float32_thresholds_in_the_logarithm() -> None:
    curve = parse_curve("ipo:eps=0.01..1.0")
    assert (curve.type, curve.knob, dict(curve.fixed)) == ("ipo", "eps", {})
    assert len(curve.thresholds) == 100
    assert curve.thresholds[0] == float(np.float32(0.01))
    assert curve.thresholds[-1] == 1.0
    assert np.all(np.diff(np.log(curve.thresholds)) > 0.02)
    for round_number in (0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5):
        assert float(np.float32(round_number)) in curve.thresholds
    assert all(float(np.float32(at)) == at for at in curve.thresholds)


def test_a_curve_takes_points_spacing_and_other_knobs() -> None:
    assert parse_curve("ipo:eps=0..1:5").thresholds == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert parse_curve("ipo:eps=0.5..1:3:linear").thresholds == (0.5, 0.75, 1.0)
    curve = parse_curve("kpop:phi=0.01..1:7:log,".rstrip(","))
    assert (len(curve.thresholds), dict(curve.fixed)) == (7, {"clamp": 1e-6})
    band = parse_curve("icepop:ratio_low=1/ratio_high,ratio_high=1.1..10")
    assert dict(band.fixed) == {"ratio_low": INVERSE}
    assert band.at(4.0).knobs == {"ratio_low": 0.25, "ratio_high": 4.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ipo", "curve `ipo` has 0 ranges"),
        ("icepop:ratio_low=0.1..0.2,ratio_high=2..3", "has 2 ranges"),
        ("ipo:eps=1..0.1", "`eps=1..0.1` is no range"),
        ("ipo:eps=0..1:log", "`eps` from 0 has no logarithm"),
        ("ipo:eps=0.1..2", "`eps` of rule `ipo` is 2"),
        ("ipo:eps=0.1..1:many", "`many` at the end of curve"),
        ("ipo:eps=0.1..1:1", "a curve of 1 thresholds"),
        ("ipo:eps=0.1..1:10:20", "`20` at the end of curve"),
        ("ipo:eps=0.1..1:log:linear", "`linear` at the end of curve"),
        ("kpop:clamp=1e-8..1e-4", "no curve runs over `clamp` of rule `kpop`"),
        ("icepop:ratio_high=0.1..5", "`ratio_low` 0.2 is above `ratio_high` 0.1"),
        ("icepop:ratio_high=1/ratio_high,ratio_low=0.1..0.5", "`1/ratio_high` in a curve"),
    ],
)
def test_a_curve_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_curve(text)
    assert message in caught.value.message


def test_a_made_curve_is_what_its_text_says() -> None:
    assert make_curve("ipo", "eps", 0.01, 1.0, num_points=50) == parse_curve("ipo:eps=0.01..1:50")


@pytest.mark.parametrize("text", ["gspo:ratio_high=1.0001..1.1", "ipo:eps=0.29..0.31:3000"])
def test_a_narrow_curve_has_all_its_thresholds_within_its_range(text: str) -> None:
    curve = parse_curve(text)
    assert len(curve.thresholds) == (3000 if ":3000" in text else 100)
    low, high = (float(end) for end in text.split("=")[1].removesuffix(":3000").split(".."))
    ends = np.array([low, high], np.float32).tolist()
    assert [curve.thresholds[0], curve.thresholds[-1]] == ends
