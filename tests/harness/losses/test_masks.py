"""Mask rules against a table of hand-picked tokens, at their bounds, and on bad input."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import UsageError
from harness.losses import masks

DTYPES = ["float32", "float64"]


def make_array(library: str, values: Any, dtype: str = "float64") -> Any:
    if library == "numpy":
        return np.asarray(values, dtype=dtype)
    return torch.tensor(values, dtype=getattr(torch, dtype))


def to_list(array: Any) -> list[Any]:
    result: list[Any] = array.tolist()
    return result


@dataclass(frozen=True)
class GoldenToken:
    """A token of probabilities p (trainer) and q (inference), and what each rule does to it.

    Strings hold one digit per column, 1 = masked, clipped or capped, `=` = exactly on the bound,
    where the float type decides.
    """

    p: str
    q: str
    ratio: float
    delta: float
    k3: float
    kl_pq: float
    kl_qp: float
    ipo: str  # eps .1 .2 .3
    icepop: str  # .2-5  .5-5  .5-2
    kpop: str  # phi .1  2
    positive: str  # A = +1: DPPO-TV .15, DPPO-TV .2, DPPO-KL .05, PPO .8/1.2, DAPO .8/1.28
    negative: str  # A = -1: the same
    caps: str  # CISPO 0-5, TIS 2


GOLDEN = [
    GoldenToken(
        ".06", ".01", 6, 0.05, 3.208, 0.05879, 0.03339, "000", "111", "00", "00011", "00000", "11"
    ),
    GoldenToken(
        ".01",
        ".06",
        0.1667,
        -0.05,
        0.9584,
        0.03339,
        0.05879,
        "000",
        "111",
        "00",
        "00000",
        "00111",
        "00",
    ),
    GoldenToken(
        ".20",
        ".90",
        0.2222,
        -0.7,
        0.7263,
        1.363,
        1.146,
        "111",
        "011",
        "10",
        "00000",
        "11111",
        "00",
    ),
    GoldenToken(
        ".90", ".20", 4.5, 0.7, 1.996, 1.146, 1.363, "111", "001", "10", "11111", "00000", "01"
    ),
    GoldenToken(
        ".55",
        ".50",
        1.1,
        0.05,
        0.00469,
        0.005008,
        0.005025,
        "000",
        "000",
        "00",
        "00000",
        "00000",
        "00",
    ),
    GoldenToken(
        ".999",
        ".60",
        1.665,
        0.399,
        0.1552,
        0.5033,
        2.091,
        "111",
        "000",
        "11",
        "11111",
        "00000",
        "00",
    ),
    GoldenToken(
        ".60",
        ".999",
        0.6006,
        -0.399,
        0.1104,
        2.091,
        0.5033,
        "111",
        "000",
        "11",
        "00000",
        "11111",
        "00",
    ),
    GoldenToken(
        "1e-4",
        "1e-6",
        100,
        9.9e-5,
        94.39,
        3.615e-4,
        9.439e-5,
        "000",
        "111",
        "00",
        "00011",
        "00000",
        "11",
    ),
    GoldenToken(
        "1e-6",
        "1e-4",
        0.01,
        -9.9e-5,
        3.615,
        9.439e-5,
        3.615e-4,
        "000",
        "111",
        "00",
        "00000",
        "00011",
        "00",
    ),
    GoldenToken(
        ".30", ".05", 6, 0.25, 3.208, 0.3238, 0.2005, "110", "111", "10", "11111", "00000", "11"
    ),
    GoldenToken(
        "1.0",
        ".80",
        1.25,
        0.2,
        0.02686,
        0.2231,
        2.263,
        "1=0",
        "000",
        "11",
        "1=110",
        "00000",
        "00",
    ),
    GoldenToken(
        ".80",
        "1.0",
        0.8,
        -0.2,
        0.02314,
        2.263,
        0.2231,
        "1=0",
        "000",
        "11",
        "00000",
        "1=1==",
        "00",
    ),
]

KNOBS: dict[str, list[dict[str, Any]]] = {
    "ipo": [{"type": "ipo", "eps": eps} for eps in (0.1, 0.2, 0.3)],
    "icepop": [
        {"type": "icepop", "ratio_low": low, "ratio_high": high}
        for low, high in ((0.2, 5.0), (0.5, 5.0), (0.5, 2.0))
    ],
    "kpop": [{"type": "kpop", "phi": phi, "clamp": 1e-6} for phi in (0.1, 2.0)],
    "signed": [
        {"type": "dppo_tv", "delta_low": 0.15, "delta_high": 0.15},
        {"type": "dppo_tv", "delta_low": 0.2, "delta_high": 0.2},
        {"type": "dppo_kl", "delta": 0.05},
        {"type": "ppo", "ratio_low": 0.8, "ratio_high": 1.2},
        {"type": "dapo", "ratio_low": 0.8, "ratio_high": 1.28},
    ],
}


def exact_binary_kl(a: Decimal, b: Decimal, clamp: Decimal) -> Decimal:
    a, b = (min(max(x, clamp), 1 - clamp) for x in (a, b))
    return a * (a / b).ln() + (1 - a) * ((1 - a) / (1 - b)).ln()


def exact_dppo_kl(p: Decimal, q: Decimal) -> Decimal:
    offset = Decimal("1e-8")
    return q * (q / p).ln() + (1 - q) * ((1 - q + offset) / (1 - p + offset)).ln()


def digits(decisions: list[tuple[Decimal, Decimal]]) -> str:
    """One digit per (value, bound): whether the value is beyond the bound, `=` on it."""
    return "".join("=" if value == bound else str(int(value > bound)) for value, bound in decisions)


@pytest.mark.parametrize("token", GOLDEN, ids=lambda token: f"{token.p}-{token.q}")
def test_golden_table_agrees_with_decimal_arithmetic(token: GoldenToken) -> None:
    with localcontext() as context:
        context.prec = 40
        p, q = Decimal(token.p), Decimal(token.q)
        ratio, delta = p / q, p - q
        kl_pq, kl_qp = (exact_binary_kl(*pair, Decimal("1e-6")) for pair in ((p, q), (q, p)))
        tenths = [Decimal(text) for text in ("0.1", "0.2", "0.3")]
        bands = [
            (Decimal(low), Decimal(high)) for low, high in ((".2", "5"), (".5", "5"), (".5", "2"))
        ]
        dppo = exact_dppo_kl(p, q)

        assert [token.ratio, token.delta, token.k3] == pytest.approx(
            [float(ratio), float(delta), float(ratio - 1 - ratio.ln())], rel=1e-3
        )
        assert [token.kl_pq, token.kl_qp] == pytest.approx([float(kl_pq), float(kl_qp)], rel=1e-3)
        assert token.ipo == digits([(abs(delta), eps) for eps in tenths])
        assert token.icepop == digits(
            [(max(low / ratio, ratio / high), Decimal(1)) for low, high in bands]
        )
        assert token.kpop == digits([(max(kl_pq, kl_qp), phi) for phi in (tenths[0], Decimal(2))])
        never = (Decimal(0), Decimal(1))
        kl = (dppo, Decimal("0.05"))
        assert token.positive == digits(
            [
                (delta, Decimal("0.15")),
                (delta, Decimal("0.2")),
                kl if delta > 0 else never,
                (ratio, Decimal("1.2")),
                (ratio, Decimal("1.28")),
            ]
        )
        assert token.negative == digits(
            [
                (-delta, Decimal("0.15")),
                (-delta, Decimal("0.2")),
                kl if delta < 0 else never,
                (Decimal("0.8") / ratio, Decimal(1)),
                (Decimal("0.8") / ratio, Decimal(1)),
            ]
        )
        assert token.caps == digits([(ratio, Decimal(5)), (ratio, Decimal(2))])


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rules_decide_as_the_golden_table(library: str, dtype: str) -> None:
    p = make_array(library, [math.log(float(token.p)) for token in GOLDEN], dtype)
    q = make_array(library, [math.log(float(token.q)) for token in GOLDEN], dtype)

    def column(loss: dict[str, Any], sign: float) -> list[bool]:
        advantages = make_array(library, [sign] * len(GOLDEN), dtype)
        return to_list(masks.drop_mask(loss, p, q, advantages=advantages))

    for name, sign, expected in (
        ("ipo", 1.0, [token.ipo for token in GOLDEN]),
        ("icepop", 1.0, [token.icepop for token in GOLDEN]),
        ("kpop", 1.0, [token.kpop for token in GOLDEN]),
        ("signed", 1.0, [token.positive for token in GOLDEN]),
        ("signed", -1.0, [token.negative for token in GOLDEN]),
    ):
        found = list(zip(*(column(loss, sign) for loss in KNOBS[name]), strict=True))
        shown = ["".join(str(int(hit)) for hit in row) for row in found]
        open_bounds = [
            "".join("=" if want == "=" else got for want, got in zip(wanted, row, strict=True))
            for wanted, row in zip(expected, shown, strict=True)
        ]
        assert open_bounds == expected, (name, sign)

    cispo = masks.clip_mask({"type": "cispo", "ratio_low": 0.0, "ratio_high": 5.0}, p, q)
    tis = masks.cap_mask({"type": "tis", "max_importance_ratio": 2.0}, p, q)
    assert [f"{int(a)}{int(b)}" for a, b in zip(to_list(cispo), to_list(tis), strict=True)] == [
        token.caps for token in GOLDEN
    ]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_quantities_match_decimal_arithmetic_in_the_type_given(
    library: str, dtype: str, tolerance: float
) -> None:
    tokens = [
        ("-0.1", "-2.3"),
        ("-2.3", "-0.1"),
        ("-1e-6", "-3e-6"),
        ("-20", "-1e-3"),
        ("-3", "-3.001"),
    ]
    lp = make_array(library, [float(a) for a, _ in tokens], dtype)
    lq = make_array(library, [float(b) for _, b in tokens], dtype)
    found = {
        "delta": masks.prob_delta(lp, lq),
        "kl": masks.binary_kl(lp, lq, clamp=1e-9),
        "k1": masks.mismatch_k1(lp, lq),
        "k2": masks.mismatch_k2(lp, lq),
        "k3": masks.mismatch_k3(lp, lq),
    }
    with localcontext() as context:
        context.prec = 40
        for i, (given_p, given_q) in enumerate(zip(to_list(lp), to_list(lq), strict=True)):
            log_p, log_q = Decimal(given_p), Decimal(given_q)
            p, q = log_p.exp(), log_q.exp()
            log_ratio = log_p - log_q
            exact = {
                "delta": p - q,
                "kl": exact_binary_kl(p, q, Decimal("1e-9")),
                "k1": -log_ratio,
                "k2": log_ratio**2 / 2,
                "k3": log_ratio.exp() - 1 - log_ratio,
            }
            for name, value in exact.items():
                relative = tolerance if name in ("delta", "k1", "k2") else 10 * tolerance
                assert to_list(found[name])[i] == pytest.approx(
                    float(value), rel=relative, abs=tolerance / 10
                ), (name, i)
    for name, value in found.items():
        assert str(value.dtype).endswith(dtype), name


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [0.2, 5.0])
def test_icepop_keeps_a_ratio_equal_to_its_bound(library: str, dtype: str, bound: float) -> None:
    if library == "numpy":
        lp = np.log(np.asarray([bound], dtype=dtype))
    else:
        lp = torch.tensor([bound], dtype=getattr(torch, dtype)).log()
    assert to_list(masks.ratio_band_mask(lp, lp * 0, ratio_low=0.2, ratio_high=5.0)) == [False]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [0.2, 5.0, 0.5, 2.0, 0.8, 1.2, 1.28, 1.0004, 1e4])
def test_a_log_ratio_equal_to_the_bound_is_on_the_inner_side(
    library: str, dtype: str, bound: float
) -> None:
    """One ulp beyond it is not."""
    number = np.float32 if dtype == "float32" else np.float64
    on = number(math.log(number(bound)))
    values = [on, np.nextafter(on, number(-9)), np.nextafter(on, number(99))]
    lr = make_array(library, [float(value) for value in values], dtype)
    zero = lr * 0
    for sign, expected in ((1.0, [False, False, True]), (-1.0, [False, True, False])):
        clipped = masks.ppo_clip_mask(lr, zero, zero + sign, ratio_low=bound, ratio_high=bound)
        assert to_list(clipped) == expected
    assert to_list(masks.ratio_cap_mask(lr, zero, max_importance_ratio=bound)) == [
        False,
        False,
        True,
    ]
    band = masks.ratio_band_mask(lr, zero, ratio_low=bound, ratio_high=bound)
    assert to_list(band) == [False, True, True]
    unbounded = masks.ratio_band_mask(lr, zero, ratio_low=0.0, ratio_high=1e30)
    assert to_list(unbounded) == [False, False, False]


def test_ipo_keeps_a_change_equal_to_eps() -> None:
    lp, lq = np.log([0.75, 1.0]), np.log([0.25, 0.5])
    assert to_list(masks.ipo_drop_mask(lp, lq, eps=0.5)) == [False, False]
    below = float(np.nextafter(0.5, 0))
    assert to_list(masks.ipo_drop_mask(lp[1:], lq[1:], eps=below)) == [True]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clamp", [1e-6, 1e-8])
def test_kpop_keeps_certain_tokens(library: str, dtype: str, clamp: float) -> None:
    """p = q = 1 is most of what a trained model samples; 1 - 1e-8 is 1 in float32."""
    lp = make_array(library, [0.0, 0.0, -1e4, math.log(0.999)], dtype)
    lq = make_array(library, [0.0, math.log(0.9), -1e4, 0.0], dtype)
    assert to_list(masks.kpop_drop_mask(lp, lq, phi=0.1, clamp=clamp)) == [
        False,
        True,
        False,
        False,
    ]


def test_kpop_near_one_depends_on_the_clamp() -> None:
    """At p = 1 the KL is (1-q) ln(1/clamp) - H(q): where it reaches phi moves with the clamp."""
    lp = np.zeros(2)
    lq = np.log1p([-0.0118, -0.0120])
    assert to_list(masks.kpop_drop_mask(lp, lq, phi=0.1, clamp=1e-6)) == [False, True]
    lq = np.log1p([-0.0225, -0.0227])
    assert to_list(masks.kpop_drop_mask(lp, lq, phi=0.1, clamp=1e-4)) == [False, True]


def test_dppo_counts_a_zero_advantage_as_not_positive() -> None:
    lp, lq = np.log([0.2, 0.8]), np.log([0.8, 0.2])
    zero = np.zeros(2)
    assert to_list(masks.dppo_tv_drop_mask(lp, lq, zero, delta_low=0.2, delta_high=0.2)) == [
        True,
        False,
    ]
    assert to_list(masks.dppo_kl_drop_mask(lp, lq, zero, delta=0.05)) == [True, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dppo_kl_is_defined_where_a_probability_rounds_above_one(dtype: str) -> None:
    lp, lq = make_array("numpy", [1e-6, -0.1], dtype), make_array("numpy", [-0.1, 1e-6], dtype)
    ones = make_array("numpy", [1.0, -1.0], dtype)
    assert to_list(masks.dppo_kl_drop_mask(lp, lq, ones, delta=0.05)) == [True, True]


def test_token_classes_split_where_the_two_masks_disagree() -> None:
    p = np.array([0.06, 0.5, 0.01, 0.20, 0.05, 0.5, 0.65])
    q = np.array([0.01, 0.05, 0.06, 0.90, 0.90, 0.5, 0.95])
    lp, lq = np.log(p), np.log(q)
    # r = 6, 10, 1/6, .22, .056, 1, .68 and p - q = .05, .45, -.05, -.7, -.85, 0, -.3
    assert to_list(masks.rise_class(lp, lq)) == [True] + [False] * 6
    assert to_list(masks.drop_class(lp, lq))[:6] == [False, False, False, True, False, False]
    ipo = masks.ipo_drop_mask(lp, lq, eps=0.3)
    icepop = masks.ratio_band_mask(lp, lq, ratio_low=0.2, ratio_high=5.0)
    assert to_list(masks.rise_class(lp, lq)) == to_list(~ipo & icepop & (lp > lq))
    assert to_list(masks.drop_class(lp, lq)) == to_list(ipo & ~icepop & (lp < lq))


def test_token_classes_at_their_bounds() -> None:
    """Both are on IPO's side of eps and on IcePop's side of the ratio bound."""
    lp, lq = np.log([0.6]), np.log([0.1])
    eps = float(masks.prob_delta(lp, lq)[0])
    assert to_list(masks.rise_class(lp, lq, eps=eps)) == [True]
    assert to_list(masks.drop_class(lq, lp, ratio_low=0.0, eps=eps)) == [False]
    assert to_list(masks.drop_class(lq, lp, ratio_low=0.0, eps=eps * 0.999)) == [True]
    for dtype in DTYPES:
        zero = np.zeros(1, dtype=dtype)
        low, high = (np.log(np.asarray([bound], dtype=dtype)) for bound in (0.2, 5.0))
        assert to_list(masks.drop_class(low, zero)) == [True]
        assert to_list(masks.drop_class(low - np.asarray(1e-5, dtype=dtype), zero)) == [False]
        assert to_list(masks.rise_class(high, zero, eps=9)) == [False]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_sequence_ratio_is_the_geometric_mean_over_the_loss_mask(library: str) -> None:
    lp = make_array(library, [[-1.0, -2.0, -9.0], [-1.0, -1.0, -1.0]])
    lq = make_array(library, [[-1.5, -1.0, -1.0], [-2.0, -2.0, -2.0]])
    rows = [[True, True, False], [False, False, False]]
    loss_mask = np.array(rows) if library == "numpy" else torch.tensor(rows)
    found = masks.sequence_log_ratio(lp, lq, loss_mask)
    assert to_list(found) == [[-0.25], [0.0]]
    advantages = make_array(library, [[1.0, -1.0, 1.0]] * 2)
    clipped = masks.gspo_clip_mask(lp, lq, advantages, loss_mask, ratio_low=0.9, ratio_high=1.1)
    assert to_list(clipped) == [[False, True, False], [False, False, False]]


def test_tokens_that_are_not_finite_are_reported_and_never_masked() -> None:
    inf, nan = math.inf, math.nan
    lp = np.array([nan, -inf, -1.0, -inf, inf, -1.0])
    lq = np.array([-1.0, -1.0, -inf, -inf, -1.0, -9.0])
    assert to_list(masks.is_nonfinite(lp, lq)) == [True] * 5 + [False]
    for loss in (
        {"type": "ipo", "eps": 0.3},
        {"type": "icepop", "ratio_low": 0.2, "ratio_high": 5},
    ):
        assert to_list(masks.drop_mask(loss, lp, lq)) == [False] * 5 + [True]
    capped = masks.cap_mask({"type": "tis", "max_importance_ratio": 2.0}, lp, lq)
    assert to_list(capped) == [False] * 5 + [True]
    gspo = {"type": "gspo", "ratio_low": 0.9, "ratio_high": 1.1}
    found = masks.drop_mask(gspo, lp, lq, advantages=np.ones(6), loss_mask=np.ones(6, dtype=bool))
    assert to_list(found) == [False] * 5 + [True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_k3_stays_finite_and_below_its_limit(dtype: str) -> None:
    lp = make_array("numpy", [0.0, 0.0, 0.0, -1e4, -1e37], dtype)
    lq = make_array("numpy", [-60.0, -1000.0, -1e37, 0.0, 0.0], dtype)
    found = to_list(masks.mismatch_k3(lp, lq))
    assert found == pytest.approx([math.exp(60) - 61, 1e30, 1e30, 9999.0, 1e30], rel=1e-5)


def test_k3_keeps_small_positive_values() -> None:
    """exp(x) - x - 1 in float32 is 0 or negative here; x^2 / 2 = 5e-9 is right."""
    log_ratio = np.array([1e-4, -1e-4], dtype=np.float32)
    found = masks.mismatch_k3(log_ratio, np.zeros(2, dtype=np.float32))
    assert to_list(found) == pytest.approx([5e-9, 5e-9], rel=2e-3)


def test_a_loss_without_a_mask_keeps_all() -> None:
    lp, lq = np.array([0.0, -9.0]), np.array([-9.0, 0.0])
    for name in ("none", "tis", "cispo"):
        assert to_list(masks.drop_mask({"type": name}, lp, lq)) == [False, False]
    assert masks.clip_mask({"type": "ipo", "eps": 0.3}, lp, lq) is None
    assert masks.cap_mask({"type": "none", "max_importance_ratio": None}, lp, lq) is None


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        ({"type": "ippo", "eps": 0.3}, "'ippo'"),
        ({}, "None"),
        ({"type": "ipo"}, "`eps`"),
        ({"type": "icepop", "ratio_low": 0.2, "ratio_high": None}, "`ratio_high`"),
        ({"type": "ppo", "ratio_low": 0.8, "ratio_high": 1.2}, "`advantages`"),
    ],
)
def test_drop_mask_refuses_what_it_cannot_decide(loss: dict[str, Any], named: str) -> None:
    lp = np.zeros(2)
    with pytest.raises(UsageError) as caught:
        masks.drop_mask(loss, lp, lp)
    assert named in caught.value.message
    assert caught.value.hint


def test_gspo_rule_needs_the_loss_mask() -> None:
    lp = np.zeros((1, 2))
    loss = {"type": "gspo", "ratio_low": 0.9, "ratio_high": 1.1}
    with pytest.raises(UsageError, match="`loss_mask`"):
        masks.drop_mask(loss, lp, lp, advantages=lp)


@pytest.mark.parametrize(
    ("lp", "lq"),
    [
        (np.zeros(2, dtype=np.float16), np.zeros(2, dtype=np.float16)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
        (np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)),
        (np.zeros(2, dtype=np.float32), np.zeros(2, dtype=np.float64)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        ([0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_other_types_are_refused_rather_than_promoted(lp: Any, lq: Any) -> None:
    for rule in (masks.ipo_drop_mask, masks.mismatch_k3, masks.is_nonfinite, masks.keep_all_mask):
        with pytest.raises(TypeError, match=r"float|arrays"):
            rule(lp, lq, **({"eps": 0.3} if rule is masks.ipo_drop_mask else {}))
    with pytest.raises(TypeError):
        masks.ratio_band_mask(lp, lq, ratio_low=0.2, ratio_high=5.0)


def test_mask_rules_import_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, harness.losses.masks, harness.losses.config\n"
        "heavy = {'torch', 'numpy', 'hydra', 'omegaconf', 'typer', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
