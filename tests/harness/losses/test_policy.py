"""Losses and their gradients against plain Python arithmetic in double precision."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from harness.losses.config import LOSS_TYPES, parse_loss
from harness.losses.policy import LOSSES, LossResult, TokenBatch, compute_loss

LOSS_NAMES = sorted(LOSS_TYPES)
Rows = list[list[float]]


@dataclass(frozen=True)
class Batch:
    """[num_sequences][num_tokens] of plain numbers."""

    lp: Rows
    lq: Rows
    advantages: Rows
    loss_mask: list[list[bool]]


def make_batch(
    lp: Rows, lq: Rows, advantages: Rows, loss_mask: list[list[bool]] | None = None
) -> Batch:
    return Batch(lp, lq, advantages, loss_mask or [[True] * len(row) for row in lp])


def make_random_batch(seed: int, *, max_log_ratio: float, lowest: float = -25.0) -> Batch:
    rng = random.Random(seed)
    lp = [
        [rng.choice((rng.uniform(lowest, 0), rng.uniform(-1, 0))) for _ in range(7)]
        for _ in range(24)
    ]
    lq = [
        [min(x + rng.uniform(-1, 1) * rng.choice((0.1, 1, max_log_ratio)), -1e-3) for x in row]
        for row in lp
    ]
    advantages = [[rng.choice((-1.5, 0.0, 0.7))] * 7 for _ in lp]
    loss_mask = [[rng.random() < 0.8 for _ in row] for row in lp[:-1]] + [[False] * 7]
    return Batch(lp, lq, advantages, loss_mask)


def run_loss(
    knobs: dict[str, Any], batch: Batch, dtype: torch.dtype = torch.float64, **options: int
) -> tuple[LossResult, Rows]:
    lp = torch.tensor(batch.lp, dtype=dtype, requires_grad=True)
    lq, advantages = (torch.tensor(x, dtype=dtype) for x in (batch.lq, batch.advantages))
    tokens = TokenBatch(lp, lq, advantages, torch.tensor(batch.loss_mask))
    result = compute_loss(parse_loss(knobs), tokens, **options)
    torch.autograd.backward(result.loss)
    assert lp.grad is not None
    gradient: Rows = lp.grad.tolist()
    return result, gradient


# ---------------------------------------------------------------- independent reference
# Written from the papers' formulas in probabilities and ratios, one token at a time.


@dataclass(frozen=True)
class Token:
    lp: float
    lq: float
    advantage: float

    @property
    def p(self) -> float:
        return math.exp(self.lp)

    @property
    def q(self) -> float:
        return math.exp(self.lq)

    @property
    def ratio(self) -> float:
        return math.exp(self.lp - self.lq)


def reference_kl(a: float, b: float, clamp: float) -> float:
    a, b = (min(max(x, clamp), 1 - clamp) for x in (a, b))
    return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))


def is_dropped(k: dict[str, Any], t: Token) -> Any:
    moved = t.p - t.q
    if k["type"] == "ipo":
        return abs(moved) > k["eps"]
    if k["type"] == "icepop":
        return not k["ratio_low"] <= t.ratio <= k["ratio_high"]
    if k["type"] == "ipo_band":
        return abs(moved) > k["eps"] or not k["ratio_low"] <= t.ratio <= k["ratio_high"]
    if k["type"] == "kpop":
        kls = (reference_kl(t.p, t.q, k["clamp"]), reference_kl(t.q, t.p, k["clamp"]))
        return max(kls) > k["phi"]
    if k["type"] == "dppo_tv":
        return moved > k["delta_high"] if t.advantage > 0 else -moved > k["delta_low"]
    if k["type"] == "dppo_kl":
        kl = t.q * math.log(t.q / t.p)
        kl += (1 - t.q) * math.log((1 - t.q + 1e-8) / (1 - t.p + 1e-8))
        return kl > k["delta"] and (t.p > t.q if t.advantage > 0 else t.p < t.q)
    return False


def weight_of(k: dict[str, Any], t: Token) -> Any:
    cap = k.get("max_importance_ratio") or math.inf
    if k["type"] == "cispo":
        return min(max(t.ratio, k["ratio_low"]), k["ratio_high"])
    return min(t.ratio, cap)


def surrogate(k: dict[str, Any], ratio: float, advantage: float) -> tuple[float, float]:
    """-min(rA, clip(r)A) and its derivative by log r."""
    cap = k.get("max_importance_ratio", math.inf)
    ratio = min(ratio, cap)
    clipped = min(max(ratio, k["ratio_low"]), k["ratio_high"])
    if clipped * advantage < ratio * advantage:
        return -clipped * advantage, 0.0
    return -ratio * advantage, -ratio * advantage


def reference_loss(k: dict[str, Any], batch: Batch) -> tuple[float, Rows, list[list[bool]]]:
    """Return loss, gradient by log p, and which tokens have none for their rule."""
    tau = k["adv_tau"]
    num_tokens = sum(map(sum, batch.loss_mask))
    loss = 0.0
    gradient = [[0.0] * len(row) for row in batch.lp]
    masked = [[False] * len(row) for row in batch.lp]
    for i, row in enumerate(batch.loss_mask):
        inside = [j for j, is_inside in enumerate(row) if is_inside]
        tokens = {j: Token(batch.lp[i][j], batch.lq[i][j], batch.advantages[i][j]) for j in inside}
        for j, t in tokens.items():
            advantage = tau * t.advantage
            if k["type"] == "gspo":
                s = math.exp(sum(u.lp - u.lq for u in tokens.values()) / len(tokens))
                value, slope = surrogate(k, s, advantage)
                loss += value
                masked[i][j] = slope == 0 and advantage != 0
                for other in inside:
                    gradient[i][other] += slope / len(tokens)
            elif k["type"] in ("ppo", "dapo"):
                value, slope = surrogate(k, t.ratio, advantage)
                loss += value
                masked[i][j] = slope == 0 and advantage != 0
                gradient[i][j] += slope
            elif is_dropped(k, t):
                masked[i][j] = True
            else:
                weight = weight_of(k, t)
                is_detached = k["type"] in ("dppo_tv", "dppo_kl", "cispo", "tis")
                loss += -advantage * weight * (t.lp if is_detached else 1)
                gradient[i][j] += -advantage * weight
    return loss / num_tokens, [[g / num_tokens for g in row] for row in gradient], masked


def complete(name: str, **knobs: Any) -> dict[str, Any]:
    return dict(vars(parse_loss({"type": name, **knobs})))


def flat(rows: list[list[Any]]) -> list[Any]:
    return [x for row in rows for x in row]


VARIANTS = [complete(name) for name in LOSS_NAMES] + [
    complete("ipo", eps=0.1, max_importance_ratio=1.5, adv_tau=0.3),
    complete("icepop", ratio_low=0.0, ratio_high=2.0),
    complete("kpop", phi=2.0, clamp=1e-4, max_importance_ratio=3.0),
    complete("dppo_tv", delta_low=0.05, delta_high=0.3, max_importance_ratio=2.0),
    complete("dppo_kl", delta=0.01, adv_tau=2.0),
    complete("cispo", ratio_low=0.7, ratio_high=1.3),
    complete("ppo", max_importance_ratio=1.5),
    complete("gspo", ratio_low=0.9, ratio_high=1.1, adv_tau=0.5),
    complete("none", max_importance_ratio=1.5),
]


def variant_id(knobs: dict[str, Any]) -> str:
    is_default = knobs == complete(knobs["type"])
    return knobs["type"] if is_default else f"{knobs['type']}-tuned"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("knobs", VARIANTS, ids=variant_id)
def test_loss_and_gradient_equal_the_reference_in_float64(knobs: dict[str, Any], seed: int) -> None:
    batch = make_random_batch(seed, max_log_ratio=4.0)
    loss, gradient, masked = reference_loss(knobs, batch)
    result, found = run_loss(knobs, batch)
    assert result.loss.item() == pytest.approx(loss, rel=1e-6)
    assert flat(found) == pytest.approx(flat(gradient), rel=1e-6, abs=1e-18)
    assert result.is_masked.tolist() == masked
    assert not result.is_nonfinite.any()
    has_mask = knobs["type"] not in ("none", "tis", "cispo")
    assert any(flat(masked)) == has_mask


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("knobs", VARIANTS, ids=variant_id)
def test_float32_stays_within_1e_5_up_to_log_ratios_of_20(knobs: dict[str, Any], seed: int) -> None:
    batch = make_random_batch(seed, max_log_ratio=20.0)
    lp, lq = (torch.tensor(rows, dtype=torch.float32).tolist() for rows in (batch.lp, batch.lq))
    batch = Batch(lp, lq, batch.advantages, batch.loss_mask)
    log_ratios = [p - q for p, q in zip(flat(batch.lp), flat(batch.lq), strict=True)]
    assert 15 < max(map(abs, log_ratios)) <= 20.0001
    loss, gradient, masked = reference_loss(knobs, batch)
    result, found = run_loss(knobs, batch, torch.float32)
    assert result.loss.dtype == torch.float32
    assert result.loss.item() == pytest.approx(loss, rel=1e-5)
    assert flat(found) == pytest.approx(flat(gradient), rel=1e-5, abs=1e-12)
    assert result.is_masked.tolist() == masked


@pytest.mark.parametrize("name", ["ipo", "icepop", "kpop", "ipo_band", "none", "ppo", "gspo"])
def test_gradient_is_the_slope_of_the_loss(name: str) -> None:
    """Central differences; these losses have no detached weight, and no cap is reached here."""
    batch = make_random_batch(11, max_log_ratio=3.0)
    knobs = complete(name)
    _, gradient = run_loss(knobs, batch)
    step = 1e-6
    for i, j in [(i, j) for i in range(8) for j in range(7)]:
        ends = []
        for sign in (1, -1):
            lp = [list(row) for row in batch.lp]
            lp[i][j] += sign * step
            moved, _ = run_loss(knobs, Batch(lp, batch.lq, batch.advantages, batch.loss_mask))
            ends.append(moved.loss.item())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert gradient[i][j] == pytest.approx(slope, rel=1e-5, abs=1e-8), (i, j)


# ---------------------------------------------------------------- by hand


HAND = [
    # (p, q, advantage): r = 1.25, 6, 2/9, 1, and one outside the loss mask
    (0.5, 0.4, 2.0),
    (0.06, 0.01, 1.0),
    (0.2, 0.9, -1.0),
    (0.5, 0.5, -3.0),
    (0.9, 0.1, 5.0),
]
HAND_GRADIENTS = {
    # N = 4; a term's gradient is -A * weight / 4
    "ipo": [-0.625, -1.5, 0.0, 0.75, 0.0],
    "icepop": [-0.625, 0.0, 2 / 36, 0.75, 0.0],
    "kpop": [-0.625, -1.5, 0.0, 0.75, 0.0],
    "ipo_band": [-0.625, 0.0, 0.0, 0.75, 0.0],
    "dppo_tv": [-0.625, -1.5, 0.0, 0.75, 0.0],
    "dppo_kl": [-0.625, -1.5, 0.0, 0.75, 0.0],
    "ppo": [0.0, 0.0, 0.0, 0.75, 0.0],
    "dapo": [-0.625, 0.0, 0.0, 0.75, 0.0],
    "cispo": [-0.625, -1.25, 2 / 36, 0.75, 0.0],
    "tis": [-0.625, -0.5, 2 / 36, 0.75, 0.0],
    "none": [-0.625, -1.5, 2 / 36, 0.75, 0.0],
}


@pytest.mark.parametrize("name", HAND_GRADIENTS)
def test_gradients_by_hand(name: str) -> None:
    batch = make_batch(
        [[math.log(p) for p, _, _ in HAND]],
        [[math.log(q) for _, q, _ in HAND]],
        [[advantage for _, _, advantage in HAND]],
        [[True] * 4 + [False]],
    )
    _, gradient = run_loss({"type": name}, batch)
    assert gradient == [pytest.approx(HAND_GRADIENTS[name], rel=1e-12)]


def test_loss_value_by_hand_keeps_masked_tokens_in_the_denominator() -> None:
    batch = make_batch(
        [[math.log(0.5), math.log(0.9)]], [[math.log(0.4), math.log(0.2)]], [[2.0, 1.0]]
    )
    result, _ = run_loss({"type": "ipo"}, batch)
    assert result.loss.item() == pytest.approx(-2.0 * 1.25 / 2, rel=1e-12)
    assert result.is_masked.tolist() == [[False, True]]


def test_capped_ratio_keeps_its_gradient() -> None:
    """r = e^90 at a change of probability of 5e-5: IPO keeps it and weighs it with the cap."""
    batch = make_batch([[-10.0]], [[-100.0]], [[1.0]])
    for dtype in (torch.float32, torch.float64):
        for name in ("ipo", "kpop", "dppo_tv"):
            result, gradient = run_loss({"type": name}, batch, dtype)
            assert gradient == [[pytest.approx(-1e4, rel=1e-5)]], name
        result, _ = run_loss({"type": "ipo"}, batch, dtype)
        assert result.loss.item() == pytest.approx(-1e4, rel=1e-5)


def test_ppo_caps_the_side_that_it_leaves_open() -> None:
    result, gradient = run_loss({"type": "ppo"}, make_batch([[-10.0]], [[-100.0]], [[-1.0]]))
    assert result.loss.item() == pytest.approx(1e4, rel=1e-9)
    assert gradient == [[pytest.approx(1e4, rel=1e-9)]]


def test_clipped_tokens_have_a_value_and_no_gradient() -> None:
    ratios = [0.5, 0.9, 1.0, 1.1, 2.0, 2.0]
    batch = make_batch([[math.log(r) - 10 for r in ratios]], [[-10.0] * 6], [[1.0] * 5 + [-1.0]])
    result, gradient = run_loss({"type": "ppo"}, batch, num_loss_tokens=1)
    assert result.loss.item() == pytest.approx(-(0.5 + 0.9 + 1 + 1.1 + 1.2 - 2), rel=1e-9)
    assert gradient == [pytest.approx([-0.5, -0.9, -1.0, -1.1, 0.0, 2.0], rel=1e-9)]
    assert result.is_masked.tolist() == [[False] * 4 + [True, False]]


def test_gspo_gradient_reaches_every_token_of_the_sequence() -> None:
    """s = exp(mean(1, -0.5, -0.2)) = e^0.1: per token -A s / 3 from each of three terms."""
    lp, lq = [[-1.0, -2.0, -2.0, -7.0]], [[-2.0, -1.5, -1.8, 0.0]]
    batch = make_batch(lp, lq, [[2.0] * 4], [[True, True, True, False]])
    knobs = {"type": "gspo", "ratio_low": 0.8, "ratio_high": 1.2}
    result, gradient = run_loss(knobs, batch)
    assert result.loss.item() == pytest.approx(-2 * math.exp(0.1), rel=1e-12)
    assert gradient == [pytest.approx([-2 * math.exp(0.1) / 3] * 3 + [0.0], rel=1e-12)]
    clipped, gradient = run_loss({**knobs, "ratio_high": 1.1}, batch)
    assert clipped.loss.item() == pytest.approx(-2.2, rel=1e-12)
    assert gradient == [[0.0] * 4]
    assert clipped.is_masked.tolist() == [[True, True, True, False]]


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSS_NAMES)
def test_extreme_tokens_give_finite_loss_and_gradient(name: str, dtype: torch.dtype) -> None:
    far = -1e4
    pairs = [(-1.0, far), (far, -1.0), (far, far), (0.0, 0.0), (0.0, far), (far, 0.0), (-88.0, 0.0)]
    for sign in (1.0, -1.0, 0.0):
        batch = make_batch([[p for p, _ in pairs]], [[q for _, q in pairs]], [[sign] * len(pairs)])
        result, gradient = run_loss({"type": name}, batch, dtype)
        assert math.isfinite(result.loss.item())
        assert all(map(math.isfinite, flat(gradient)))
        if sign == 0:
            assert result.loss.item() == 0
            assert flat(gradient) == [0.0] * len(pairs)


NONFINITE = [(math.nan, -1.0), (-1.0, math.nan), (-math.inf, -1.0), (-1.0, -math.inf)]
NONFINITE += [(-math.inf, -math.inf), (math.inf, -1.0), (-1.0, math.inf), (math.nan, math.nan)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSS_NAMES)
def test_a_token_that_is_not_finite_leaves_the_loss_and_stays_in_the_denominator(
    name: str, dtype: torch.dtype
) -> None:
    good = [(-1.0, -1.2), (-0.5, -0.45), (-2.0, -2.0)]
    clean = make_batch([[p for p, _ in good]], [[q for _, q in good]], [[1.3, -0.7, 0.4]])
    pairs = good + NONFINITE
    dirty = make_batch(
        [[p for p, _ in pairs]],
        [[q for _, q in pairs]],
        [[1.3, -0.7, 0.4] + [1.0, -1.0] * 4],
    )
    expected, expected_gradient = run_loss({"type": name}, clean, dtype, num_loss_tokens=len(pairs))
    result, gradient = run_loss({"type": name}, dirty, dtype)
    assert result.loss.item() == pytest.approx(expected.loss.item(), rel=1e-6)
    assert gradient[0][:3] == pytest.approx(expected_gradient[0], rel=1e-6)
    assert gradient[0][3:] == [0.0] * len(NONFINITE)
    assert result.is_nonfinite.tolist() == [[False] * 3 + [True] * len(NONFINITE)]
    assert not result.is_masked[0, 3:].any()


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_what_stands_outside_the_loss_mask_is_never_looked_at(name: str) -> None:
    nan = math.nan
    batch = make_batch(
        [[-1.0, nan, 0.0, -math.inf]],
        [[-1.1, nan, -1e4, 0.0]],
        [[1.0, nan, nan, math.inf]],
        [[True, False, False, False]],
    )
    alone, alone_gradient = run_loss({"type": name}, make_batch([[-1.0]], [[-1.1]], [[1.0]]))
    result, gradient = run_loss({"type": name}, batch)
    assert result.loss.item() == alone.loss.item()
    assert gradient == [[alone_gradient[0][0], 0.0, 0.0, 0.0]]
    assert not result.is_nonfinite.any()
    assert not result.is_masked[0, 1:].any()


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_an_empty_loss_mask_gives_zero(name: str) -> None:
    batch = make_batch([[-1.0, math.nan]], [[-2.0, -1.0]], [[1.0, 1.0]], [[False, False]])
    result, gradient = run_loss({"type": name}, batch)
    assert result.loss.item() == 0
    assert gradient == [[0.0, 0.0]]
    nothing = TokenBatch(
        torch.zeros(0, 5, requires_grad=True),
        torch.zeros(0, 5),
        torch.zeros(0, 5),
        torch.zeros(0, 5, dtype=torch.bool),
    )
    empty = compute_loss(parse_loss({"type": name}), nothing)
    torch.autograd.backward(empty.loss)
    assert empty.loss.item() == 0


@pytest.mark.parametrize(
    ("name", "lp", "lq"),
    [("ipo", -0.1, -3.0), ("icepop", -1.0, -9.0), ("kpop", -0.1, -3.0), ("dapo", -1.0, -3.0)],
)
def test_all_tokens_masked_gives_a_zero_gradient(name: str, lp: float, lq: float) -> None:
    result, gradient = run_loss({"type": name}, make_batch([[lp] * 3], [[lq] * 3], [[1.0] * 3]))
    assert result.is_masked.all()
    assert gradient == [[0.0] * 3]
    assert math.isfinite(result.loss.item())


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_parts_of_an_update_add_up_with_a_common_denominator(name: str) -> None:
    batch = make_random_batch(5, max_log_ratio=3.0)
    whole, _ = run_loss({"type": name}, batch)
    parts = 0.0
    for rows in (slice(0, 4), slice(4, 24)):
        part = Batch(batch.lp[rows], batch.lq[rows], batch.advantages[rows], batch.loss_mask[rows])
        count = sum(map(sum, batch.loss_mask))
        parts += run_loss({"type": name}, part, num_loss_tokens=count)[0].loss.item()
    assert parts == pytest.approx(whole.loss.item(), rel=1e-12)


def test_none_is_icepop_with_an_open_band() -> None:
    batch = make_random_batch(7, max_log_ratio=5.0)
    none = run_loss({"type": "none"}, batch)
    open_band = run_loss({"type": "icepop", "ratio_low": 0.0, "ratio_high": 1e30}, batch)
    assert none[0].loss.item() == open_band[0].loss.item()
    assert none[1] == open_band[1]


def test_tis_is_cispo_without_a_lower_clip() -> None:
    batch = make_random_batch(7, max_log_ratio=5.0)
    tis = run_loss({"type": "tis", "max_importance_ratio": 3.0}, batch)
    cispo = run_loss({"type": "cispo", "ratio_low": 0.0, "ratio_high": 3.0}, batch)
    assert tis[0].loss.item() == cispo[0].loss.item()
    assert tis[1] == cispo[1]


def test_every_loss_type_has_its_arithmetic() -> None:
    assert set(LOSSES) == set(LOSS_TYPES)


def make_tensors(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    zeros = torch.zeros(2, 3)
    return {
        "trainer_logprobs": zeros,
        "inference_logprobs": zeros,
        "advantages": zeros,
        "loss_mask": zeros.bool(),
        **changes,
    }


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"inference_logprobs": torch.zeros(2, 3, dtype=torch.float64)}, "inference_logprobs"),
        ({"advantages": torch.zeros(2)}, "advantages"),
        ({"loss_mask": torch.zeros(2, 3)}, "loss_mask"),
        ({"trainer_logprobs": torch.zeros(6)}, "num_tokens"),
        ({"trainer_logprobs": torch.zeros(2, 3, dtype=torch.bfloat16)}, "bfloat16"),
    ],
)
def test_a_batch_of_other_shapes_or_types_is_refused(
    change: dict[str, torch.Tensor], named: str
) -> None:
    TokenBatch(**make_tensors())
    with pytest.raises(ValueError, match=named):
        TokenBatch(**make_tensors(**change))
