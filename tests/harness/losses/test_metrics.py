"""Metrics of a step, by hand."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch

from harness.losses.config import LOSS_TYPES, parse_loss
from harness.losses.metrics import token_metrics
from harness.losses.policy import TokenBatch, compute_loss

Rows = list[list[float]]

ALWAYS = {
    "mismatch_kl/all/mean",
    "mismatch_kl/all/std",
    "mismatch_kl/all/max",
    "is_masked/mean",
    "is_masked/token_mean",
    "masked_mismatch_kl/mean",
    "unmasked_mismatch_kl/mean",
    "importance_ratio/max_kept",
    "token_class/rise",
    "token_class/drop",
    "nonfinite/count",
    "loss/mean",
}
CLIPPED = "is_clipped/mean"
CAPPED = "ratio_capped/mean"


def measure(
    knobs: dict[str, Any],
    p: Rows,
    q: Rows,
    loss_mask: list[list[bool]] | None = None,
    advantage: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> dict[str, float]:
    """Metrics of tokens given by their probabilities."""
    lp = torch.tensor(p, dtype=torch.float64).log().to(dtype).requires_grad_()
    lq = torch.tensor(q, dtype=torch.float64).log().to(dtype)
    mask = torch.tensor(loss_mask) if loss_mask else torch.ones(lp.shape, dtype=torch.bool)
    batch = TokenBatch(lp, lq, torch.full_like(lq, advantage), mask)
    config = parse_loss(knobs)
    return token_metrics(config, batch, compute_loss(config, batch))


def k3(ratio: float) -> float:
    return ratio - 1 - math.log(ratio)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sequence_mean_and_token_mean_differ_with_the_lengths(dtype: torch.dtype) -> None:
    """1000 tokens of which 0 are masked, 10 tokens of which 5 are."""
    p = [[0.5] * 1000, [0.9] * 5 + [0.5] * 995]
    q = [[0.5] * 1000, [0.2] * 5 + [0.5] * 995]
    loss_mask = [[True] * 1000, [True] * 10 + [False] * 990]
    metrics = measure({"type": "ipo"}, p, q, loss_mask, dtype=dtype)
    assert metrics["is_masked/mean"] == pytest.approx(0.25)
    assert metrics["is_masked/token_mean"] == pytest.approx(0.00495, rel=1e-3)
    # 0 for the sequence without a masked token, then the plain mean
    assert metrics["masked_mismatch_kl/mean"] == pytest.approx(k3(4.5) / 2, rel=1e-6)
    assert metrics["unmasked_mismatch_kl/mean"] == pytest.approx(0, abs=1e-12)
    assert metrics["mismatch_kl/all/mean"] == pytest.approx(5 * k3(4.5) / 1010, rel=1e-6)
    assert metrics["importance_ratio/max_kept"] == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_by_hand(dtype: torch.dtype) -> None:
    # r = 6, 10, 1.25 | 2/9, 0.5, outside; p - q = .05, .45, .1 | -.7, -.3
    p = [[0.06, 0.50, 0.50], [0.20, 0.30, 0.99]]
    q = [[0.01, 0.05, 0.40], [0.90, 0.60, 0.01]]
    loss_mask = [[True, True, True], [True, True, False]]
    metrics = measure({"type": "ipo", "eps": 0.4}, p, q, loss_mask, dtype=dtype)
    kls = [k3(6), k3(10), k3(1.25), k3(2 / 9), k3(0.5)]
    assert metrics == {
        "mismatch_kl/all/mean": pytest.approx(statistics.mean(kls), rel=1e-5),
        "mismatch_kl/all/std": pytest.approx(statistics.stdev(kls), rel=1e-5),
        "mismatch_kl/all/max": pytest.approx(k3(10), rel=1e-5),
        "is_masked/mean": pytest.approx((1 / 3 + 1 / 2) / 2),
        "is_masked/token_mean": pytest.approx(2 / 5),
        "masked_mismatch_kl/mean": pytest.approx((k3(10) + k3(2 / 9)) / 2, rel=1e-5),
        "unmasked_mismatch_kl/mean": pytest.approx(
            ((k3(6) + k3(1.25)) / 2 + k3(0.5)) / 2, rel=1e-5
        ),
        "importance_ratio/max_kept": pytest.approx(6, rel=1e-5),
        "token_class/rise": pytest.approx(1 / 5),
        "token_class/drop": pytest.approx(1 / 5),
        "ratio_capped/mean": 0.0,
        "nonfinite/count": 0.0,
        "loss/mean": pytest.approx(-(6 + 1.25 + 0.5) / 5, rel=1e-5),
    }


def test_sequences_without_a_loss_token_are_left_out_of_the_sequence_mean() -> None:
    p, q = [[0.9, 0.9], [0.9, 0.9]], [[0.2, 0.9], [0.2, 0.9]]
    metrics = measure({"type": "ipo"}, p, q, [[True, True], [False, False]])
    assert metrics["is_masked/mean"] == 0.5
    assert metrics["masked_mismatch_kl/mean"] == pytest.approx(k3(4.5))


@pytest.mark.parametrize("name", sorted(LOSS_TYPES))
def test_keys_follow_from_what_the_loss_does(name: str) -> None:
    expected = set(ALWAYS)
    if name in ("ppo", "dapo", "gspo", "cispo"):
        expected.add(CLIPPED)
    if name in ("ipo", "kpop", "ipo_band", "dppo_tv", "dppo_kl", "ppo", "dapo", "tis"):
        expected.add(CAPPED)
    metrics = measure({"type": name}, [[0.5, 0.4]], [[0.5, 0.4]])
    assert set(metrics) == expected
    assert all(isinstance(value, float) for value in metrics.values())


def test_clipped_and_capped_shares() -> None:
    # r = 6, 2.5, 0.5, 1
    p, q = [[0.06, 0.5, 0.2, 0.3]], [[0.01, 0.2, 0.4, 0.3]]
    ppo = measure({"type": "ppo", "max_importance_ratio": 3.0}, p, q)
    assert (ppo["is_masked/mean"], ppo[CLIPPED], ppo[CAPPED]) == (0.5, 0.5, 0.25)
    assert ppo["importance_ratio/max_kept"] == pytest.approx(1)
    down = measure({"type": "ppo", "max_importance_ratio": 3.0}, p, q, advantage=-1.0)
    assert (down["is_masked/mean"], down[CLIPPED], down[CAPPED]) == (0.25, 0.25, 0.25)
    assert down["importance_ratio/max_kept"] == pytest.approx(6)
    cispo = measure({"type": "cispo", "ratio_low": 0.6, "ratio_high": 5.0}, p, q)
    assert (cispo["is_masked/mean"], cispo[CLIPPED]) == (0.0, 0.5)
    tis = measure({"type": "tis"}, p, q)
    assert (tis["is_masked/mean"], tis[CAPPED]) == (0.0, 0.5)
    gspo = measure({"type": "gspo"}, [[0.5, 0.5], [0.4, 0.4]], [[0.4, 0.4], [0.5, 0.5]])
    assert (gspo["is_masked/mean"], gspo[CLIPPED]) == (0.5, 0.5)
    capped_none = measure({"type": "none", "max_importance_ratio": 3.0}, p, q)
    assert (capped_none["is_masked/mean"], capped_none[CAPPED]) == (0.0, 0.25)


def test_tokens_that_are_not_finite_are_counted_and_poison_nothing() -> None:
    nan, inf = math.nan, math.inf
    lp = torch.tensor([[nan, -1.0, -0.7, -0.1], [-0.5, -inf, -0.5, nan]])
    lq = torch.tensor([[-1.0, inf, -0.9, -3.0], [-0.5, -0.5, -0.5, nan]])
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    batch = TokenBatch(lp, lq, torch.ones(2, 4), mask)
    for name in LOSS_TYPES:
        config = parse_loss({"type": name})
        metrics = token_metrics(config, batch, compute_loss(config, batch))
        assert metrics["nonfinite/count"] == 3
        assert all(map(math.isfinite, metrics.values())), name
        kls = [k3(math.exp(0.2)), k3(math.exp(2.9)), 0.0, 0.0]
        assert metrics["mismatch_kl/all/mean"] == pytest.approx(statistics.mean(kls), rel=1e-5)
        assert metrics["mismatch_kl/all/std"] == pytest.approx(statistics.stdev(kls), rel=1e-5)
    ipo = parse_loss({"type": "ipo"})
    metrics = token_metrics(ipo, batch, compute_loss(ipo, batch))
    assert metrics["is_masked/token_mean"] == pytest.approx(1 / 7)
    assert metrics["is_masked/mean"] == pytest.approx((1 / 4 + 0) / 2)


def test_huge_ratios_stay_finite() -> None:
    lp, lq = torch.tensor([[-1.0, -10.0, -0.5]]), torch.tensor([[-1e4, -1e4, -0.5]])
    batch = TokenBatch(lp, lq, torch.ones(1, 3), torch.ones(1, 3, dtype=torch.bool))
    config = parse_loss({"type": "none"})
    metrics = token_metrics(config, batch, compute_loss(config, batch))
    assert all(map(math.isfinite, metrics.values()))
    assert metrics["mismatch_kl/all/max"] == pytest.approx(1e30, rel=1e-5)
    assert metrics["importance_ratio/max_kept"] == pytest.approx(1e30, rel=1e-5)


def test_a_mean_over_nothing_is_absent_rather_than_zero() -> None:
    empty = measure({"type": "ipo"}, [[0.5, 0.4]], [[0.5, 0.4]], [[False, False]])
    assert empty == {"nonfinite/count": 0.0, "loss/mean": 0.0}
    nothing = torch.zeros(0, 4)
    no_token = TokenBatch(nothing, nothing, nothing, nothing.bool())
    config = parse_loss({"type": "ipo"})
    assert token_metrics(config, no_token, compute_loss(config, no_token)) == empty
    one = measure({"type": "ipo"}, [[0.9]], [[0.2]])
    assert one["mismatch_kl/all/mean"] == pytest.approx(k3(4.5))
    assert "mismatch_kl/all/std" not in one
    assert one["is_masked/mean"] == 1.0
    assert "importance_ratio/max_kept" not in one
    assert one["unmasked_mismatch_kl/mean"] == 0.0


def test_measuring_leaves_the_gradient_alone() -> None:
    lp = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    batch = TokenBatch(lp, lp.detach() - 0.1, torch.ones(1, 2), torch.ones(1, 2).bool())
    config = parse_loss({"type": "ipo"})
    result = compute_loss(config, batch)
    token_metrics(config, batch, result)
    torch.autograd.backward(result.loss)
    assert lp.grad is not None
    assert lp.grad.tolist() == [pytest.approx([-math.exp(0.1) / 2] * 2)]
