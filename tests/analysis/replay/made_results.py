"""Results of a replay, counted plainly over tokens that are drawn as a run leaves them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.replay.result import (
    Agreement,
    Bucket,
    Curve,
    Density,
    DifferingToken,
    Example,
    Recommendation,
    ReplayResult,
    RuleCount,
    SelfCheck,
    StepWindow,
)
from analysis.replay.tokens import BoolArray, Float32Array, TokenFile
from harness.losses.masks import drop_mask, mismatch_k3, prob_delta

RULES: dict[str, dict[str, Any]] = {
    "ipo:eps=0.3": {"type": "ipo", "eps": 0.3},
    "ipo:eps=0.2": {"type": "ipo", "eps": 0.2},
    "ipo:eps=0.1": {"type": "ipo", "eps": 0.1},
    "icepop:ratio_low=0.2,ratio_high=5": {"type": "icepop", "ratio_low": 0.2, "ratio_high": 5.0},
    "kpop:phi=0.1,clamp=1e-06": {"type": "kpop", "phi": 0.1, "clamp": 1e-6},
    "ipo_band:eps=0.3,ratio_low=0.2,ratio_high=5": {
        "type": "ipo_band",
        "eps": 0.3,
        "ratio_low": 0.2,
        "ratio_high": 5.0,
    },
}
_NUM_BINS = 256
_EDGES = (0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
_PAGE = ((0.01, 0.06), (0.90, 0.20))


def draw_tokens(num_tokens: int, seed: int = 0) -> tuple[Float32Array, Float32Array]:
    """Return log p and log q: 99.9 % near the diagonal, the rest anywhere."""
    random = np.random.default_rng(seed)
    likely = random.random(num_tokens) < 0.8
    log_q = np.where(
        likely, -random.exponential(0.05, num_tokens), -random.exponential(2.5, num_tokens)
    )
    spread = 0.02 + 0.12 * np.minimum(-log_q, 1.0)
    log_p = np.minimum(log_q + spread * random.standard_t(4, num_tokens), -1e-7)
    is_far = random.random(num_tokens) < 0.001
    log_p = np.where(is_far, np.log(random.uniform(1e-4, 1.0, num_tokens)), log_p)
    return log_p.astype(np.float32), log_q.astype(np.float32)


def made_result(num_tokens: int = 4000, **changes: Any) -> ReplayResult:
    """Return a result over `draw_tokens(num_tokens)`; `changes` replace fields of it."""
    log_p, log_q = draw_tokens(num_tokens)
    p, q = np.exp(log_p), np.exp(log_q)
    kl = mismatch_k3(log_p, log_q)
    masks = {label: drop_mask(loss, log_p, log_q) for label, loss in RULES.items()}
    steps = np.arange(num_tokens) * 4 // num_tokens
    fields: dict[str, Any] = {
        "label": "runs/ipo",
        "files": (
            TokenFile("runs/ipo/step_0.parquet", "parquet", 81920, num_tokens - 7, {}, 0),
            TokenFile(
                "runs/ipo/step_1.jsonl",
                "jsonl",
                4096,
                7,
                {"outside the loss mask": 12, "null": 1},
                1,
            ),
        ),
        "loss": {"type": "ipo", "eps": 0.3},
        "decimals": None,
        "num_tokens": num_tokens,
        "num_sequences": num_tokens // 400,
        "num_identical": int((log_p == log_q).sum()),
        "total_kl": float(kl.sum(dtype=np.float64)),
        "max_kl": float(kl.max()),
        "rules": tuple(_count(label, loss, masks[label], kl, q) for label, loss in RULES.items()),
        "curves": (_curve(log_p, log_q),),
        "agreements": tuple(
            _agreement(first, masks[first], second, masks[second])
            for place, first in enumerate(masks)
            for second in list(masks)[place + 1 :]
        ),
        "buckets": tuple(
            Bucket(low, high, **_part(masks, kl, (q > low) & (q <= high)))
            for low, high in itertools.pairwise(_EDGES)
        ),
        "steps": tuple(
            StepWindow(10 * step, 10 * step + 9, **_part(masks, kl, steps == step))
            for step in range(4)
        ),
        "examples": tuple(_example(*pair) for pair in _PAGE),
        "density": _density(p, q),
        "self_check": SelfCheck("ipo:eps=0.3", num_tokens, num_tokens, 0, ()),
        "recommendations": (
            Recommendation(
                "ipo",
                "eps",
                0.298,
                0.001,
                0.3,
                (
                    "eps = 0.298 masks 0.066 % of the tokens, at most 0.1 %.",
                    "It masks every token whose probability moved by more than 0.3.",
                ),
            ),
        ),
        "excluded": {"outside the loss mask": 12, "null": 1},
        "seed": 0,
        "num_replicates": 1000,
        "warnings": (),
    }
    return ReplayResult(**{**fields, **changes})


def differing_check() -> SelfCheck:
    """Return a self-check in which one token of 1000 differs."""
    token = DifferingToken(12, 7, -0.1, -2.0, 0.5, stored=False)
    return SelfCheck("ipo:eps=0.3", 1000, 999, 0, (token,))


def _count(
    label: str, loss: Mapping[str, Any], mask: BoolArray, kl: Float32Array, q: Float32Array
) -> RuleCount:
    share, num_masked = float(mask.mean()), int(mask.sum())
    half = 4 * (share / len(mask)) ** 0.5
    return RuleCount(
        label=label,
        type=loss["type"],
        knobs={knob: value for knob, value in loss.items() if knob != "type"},
        num_tokens=len(mask),
        num_masked=num_masked,
        num_undecidable=num_masked // 400,
        num_with_advantage=len(mask) // 2,
        num_masked_with_advantage=int(mask[: len(mask) // 2].sum()),
        low=max(share - half, 0.0),
        high=share + half,
        masked_kl=float(kl[mask].mean()) if num_masked else None,
        kept_kl=float(kl[~mask].mean()),
        masked_probability=float(q[mask].sum() / q.sum()),
    )


def _curve(log_p: Float32Array, log_q: Float32Array) -> Curve:
    moved = np.sort(abs(prob_delta(log_p, log_q)))
    thresholds = np.geomspace(0.01, 1.0, 100, dtype=np.float32)
    counts = len(moved) - np.searchsorted(moved, thresholds, side="right")
    half = 4 * (counts / len(moved) / len(moved)) ** 0.5
    shares = counts / len(moved)
    return Curve(
        "ipo",
        "eps",
        {},
        tuple(map(float, thresholds)),
        tuple(map(int, counts)),
        tuple(map(float, np.maximum(shares - half, 0.0))),
        tuple(map(float, shares + half)),
    )


def _agreement(first: str, a: BoolArray, second: str, b: BoolArray) -> Agreement:
    counts = (a & b, a & ~b, ~a & b, ~a & ~b)
    return Agreement(first, second, *(int(count.sum()) for count in counts))


def _part(masks: Mapping[str, BoolArray], kl: Float32Array, part: BoolArray) -> dict[str, Any]:
    num_tokens = int(part.sum())
    return {
        "num_tokens": num_tokens,
        "num_masked": {label: int((mask & part).sum()) for label, mask in masks.items()},
        "mean_kl": float(kl[part].mean()) if num_tokens else None,
    }


def _example(inference: float, trainer: float) -> Example:
    pair = np.log(np.array([trainer, inference], dtype=np.float32))
    decisions = {
        label: bool(drop_mask(loss, pair[:1], pair[1:])[0]) for label, loss in RULES.items()
    }
    return Example(inference, trainer, trainer / inference, decisions)


def _density(p: Float32Array, q: Float32Array) -> Density:
    rows, columns = (
        np.minimum((values * _NUM_BINS).astype(int), _NUM_BINS - 1) for values in (q, p)
    )
    counts = np.bincount(rows * _NUM_BINS + columns, minlength=_NUM_BINS**2)
    table = counts.reshape(_NUM_BINS, _NUM_BINS).tolist()
    return Density(_NUM_BINS, tuple(tuple(row) for row in table))
