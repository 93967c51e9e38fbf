"""What must hold between mask rules for any token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.losses import masks
from harness.losses.config import LOSS_TYPES, parse_loss

FloatArray = npt.NDArray[np.float64]
Rule = Callable[[FloatArray, FloatArray], Any]

NUM_TOKENS = 8
repeatable = settings(deadline=None, derandomize=True)
logprob = st.one_of(
    st.floats(-30, 0),
    st.floats(-1e-4, 0),
    st.floats(1e-5, 1).map(lambda probability: math.log(probability)),
)
token_lists = st.lists(st.tuples(logprob, logprob), min_size=NUM_TOKENS, max_size=NUM_TOKENS).map(
    lambda pairs: (np.array([p for p, _ in pairs]), np.array([q for _, q in pairs]))
)
Tokens = tuple[FloatArray, FloatArray]

pytestmark = pytest.mark.filterwarnings("error")


def ipo(eps: float) -> Rule:
    return lambda lp, lq: masks.ipo_drop_mask(lp, lq, eps=eps)


def kpop(phi: float, clamp: float = 1e-6) -> Rule:
    return lambda lp, lq: masks.kpop_drop_mask(lp, lq, phi=phi, clamp=clamp)


def band(low: float, high: float) -> Rule:
    return lambda lp, lq: masks.ratio_band_mask(lp, lq, ratio_low=low, ratio_high=high)


@repeatable
@given(tokens=token_lists, phi=st.floats(1e-3, 2))
def test_kpop_keeps_only_what_pinsker_lets_ipo_keep(tokens: Tokens, phi: float) -> None:
    """D >= 2 (p-q)^2, so kept by KPop(phi) is kept by IPO(sqrt(phi/2)).

    The clamp moves each probability by up to 1e-6 before Pinsker holds.
    """
    kept_by_kpop = ~kpop(phi)(*tokens)
    kept_by_ipo = ~ipo(math.sqrt(phi / 2) + 2e-6)(*tokens)
    assert not np.any(kept_by_kpop & ~kept_by_ipo)


@repeatable
@given(tokens=token_lists)
def test_kpop_of_a_tenth_keeps_a_subset_of_ipo_of_its_pinsker_bound(tokens: Tokens) -> None:
    kept_by_kpop = ~kpop(0.1)(*tokens)
    kept_by_ipo = ~ipo(math.sqrt(0.05))(*tokens)
    assert not np.any(kept_by_kpop & ~kept_by_ipo)


@repeatable
@given(tokens=token_lists, low=st.floats(0.01, 1), high=st.floats(1, 50))
def test_a_band_bounds_the_change_of_probability(tokens: Tokens, low: float, high: float) -> None:
    kept = ~band(low, high)(*tokens)
    largest = max(1 - low, 1 - 1 / high)
    assert not np.any(kept & (np.abs(masks.prob_delta(*tokens)) > largest + 1e-12))


@repeatable
@given(tokens=token_lists)
@pytest.mark.parametrize("rule", [ipo(0.3), kpop(0.1), kpop(2.0), band(0.25, 4.0)])
def test_double_sided_rules_are_symmetric_in_trainer_and_inference(
    rule: Rule, tokens: Tokens
) -> None:
    lp, lq = tokens
    assert np.array_equal(rule(lp, lq), rule(lq, lp))


@repeatable
@given(tokens=token_lists, bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@pytest.mark.parametrize(
    "rule_of",
    [
        ipo,
        kpop,
        lambda width: band(1 / (1 + 9 * width), 1 + 9 * width),
        lambda width: (
            lambda lp, lq: masks.ipo_band_drop_mask(
                lp, lq, eps=width, ratio_low=1 / (1 + 9 * width), ratio_high=1 + 9 * width
            )
        ),
    ],
    ids=["ipo", "kpop", "icepop", "ipo_band"],
)
def test_a_wider_bound_never_masks_more(
    rule_of: Callable[[float], Rule], tokens: Tokens, bounds: tuple[float, float]
) -> None:
    narrow, wide = sorted(bounds)
    assert not np.any(rule_of(wide)(*tokens) & ~rule_of(narrow)(*tokens))


@repeatable
@given(tokens=token_lists)
def test_ipo_band_masks_what_either_rule_masks(tokens: Tokens) -> None:
    both = masks.ipo_band_drop_mask(*tokens, eps=0.3, ratio_low=0.2, ratio_high=5.0)
    assert np.array_equal(both, ipo(0.3)(*tokens) | band(0.2, 5.0)(*tokens))


@repeatable
@given(tokens=token_lists, delta=st.floats(0.01, 1))
def test_dppo_of_both_signs_is_ipo(tokens: Tokens, delta: float) -> None:
    up, down = (
        masks.dppo_tv_drop_mask(
            *tokens, np.full(NUM_TOKENS, sign), delta_low=delta, delta_high=delta
        )
        for sign in (1.0, -1.0)
    )
    assert np.array_equal(up | down, ipo(delta)(*tokens))
    assert not np.any(up & down)


@repeatable
@given(tokens=token_lists)
def test_binary_kl_is_not_negative_and_k3_neither(tokens: Tokens) -> None:
    lp, lq = tokens
    assert np.all(masks.binary_kl(lp, lq, clamp=1e-6) >= -1e-9)
    assert np.all(masks.mismatch_k3(lp, lq) >= 0)


@repeatable
@given(
    log_ratios=st.lists(
        st.floats(-(2.0**127), 2.0**127, width=32) | st.floats(-(2.0**-10), 2.0**-10, width=32),
        min_size=8,
        max_size=8,
    ),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_k3_is_finite_and_not_negative_at_any_log_ratio(
    log_ratios: list[float], dtype: str
) -> None:
    lr = np.array(log_ratios, dtype=dtype)
    for found in (
        masks.mismatch_k3(lr, np.zeros_like(lr)),
        masks.mismatch_k3(
            torch.from_numpy(lr), torch.zeros(8, dtype=getattr(torch, dtype))
        ).numpy(),
    ):
        assert np.all(np.isfinite(found))
        assert np.all(found >= 0)


@repeatable
@given(
    tokens=token_lists,
    signs=st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=NUM_TOKENS, max_size=NUM_TOKENS),
    keep=st.lists(st.booleans(), min_size=NUM_TOKENS, max_size=NUM_TOKENS),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_numpy_and_torch_decide_alike(
    tokens: Tokens, signs: list[float], keep: list[bool], dtype: str
) -> None:
    lp, lq, advantages = (
        np.asarray(values, dtype=dtype).reshape(2, -1) for values in (*tokens, signs)
    )
    loss_mask = np.array(keep).reshape(2, -1)
    as_torch = [torch.from_numpy(array) for array in (lp, lq, advantages, loss_mask)]
    for name in LOSS_TYPES:
        knobs = vars(parse_loss({"type": name}))
        for decide in (masks.drop_mask, masks.clip_mask):
            by_numpy = decide(knobs, lp, lq, advantages=advantages, loss_mask=loss_mask)
            by_torch: Any = decide(
                knobs, as_torch[0], as_torch[1], advantages=as_torch[2], loss_mask=as_torch[3]
            )
            assert (by_numpy is None) == (by_torch is None)
            if by_numpy is not None:
                assert np.array_equal(by_numpy, by_torch.numpy()), name
