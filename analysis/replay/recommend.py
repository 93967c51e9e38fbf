"""Which threshold a replay recommends, and why."""

from __future__ import annotations

import numpy as np

from analysis.replay.result import Curve, Recommendation, ReplayResult
from analysis.replay.wording import format_fraction, format_knob, format_near

DEFAULT_MAX_SHARE = 0.001
DEFAULT_MOVED = 0.3


def recommend(
    result: ReplayResult, *, max_share: float = DEFAULT_MAX_SHARE, moved: float = DEFAULT_MOVED
) -> tuple[Recommendation, ...]:
    """Return a recommendation per curve of an absolute change of probability (IPO's eps).

    It is the smallest counted threshold that masks at most `max_share` of the tokens and is at most
    `moved`, so that every token whose probability moved by more is masked. For other curves there
    is none: which tokens a threshold masks can't be told from how many. Nor is there one where
    trainer and engine agree exactly on all tokens, as nothing can be chosen by them.
    """
    if result.num_identical == result.num_tokens:
        return ()
    return tuple(
        _of_curve(result, curve, max_share, moved)
        for curve in result.curves
        if (curve.type, curve.knob) == ("ipo", "eps")
    )


def _of_curve(result: ReplayResult, curve: Curve, max_share: float, moved: float) -> Recommendation:
    thresholds = np.array(curve.thresholds, dtype=np.float32)
    shares = np.array(curve.num_masked) / result.num_tokens
    is_small = shares <= max_share
    is_tail_masked = thresholds <= np.float32(moved)
    fitting = np.flatnonzero(is_small & is_tail_masked)
    if len(fitting):
        place = int(fitting[0])
        reasons = _reasons(curve, shares.tolist(), place, max_share, moved)
        threshold = curve.thresholds[place]
    else:
        num_tail = int(is_tail_masked.sum())
        reasons = _obstacles(curve, shares.tolist(), is_small.tolist(), num_tail, max_share, moved)
        threshold = None
    return Recommendation(curve.type, curve.knob, threshold, max_share, moved, reasons)


def _reasons(
    curve: Curve, shares: list[float], place: int, max_share: float, moved: float
) -> tuple[str, ...]:
    allowed = f"{100 * max_share:g} %"
    found = [
        f"It masks {curve.num_masked[place]:,} tokens, {format_fraction(shares[place])}: at most "
        f"{allowed}."
    ]
    if place:
        smaller = format_near(curve.thresholds[place - 1])
        found.append(
            f"The next smaller threshold counted, {smaller}, masks "
            f"{format_fraction(shares[place - 1])}."
        )
    else:
        found.append("It is the smallest threshold counted: smaller ones may do, too.")
    found.append(
        f"It masks every token whose probability moved by more than {format_knob(moved)}, as it "
        f"is no larger than that."
    )
    if curve.high and curve.high[place] > max_share:
        found.append(
            f"Over sequences, the share's interval reaches {format_fraction(curve.high[place])}."
        )
    return tuple(found)


def _obstacles(
    curve: Curve,
    shares: list[float],
    is_small: list[bool],
    num_tail: int,
    max_share: float,
    moved: float,
) -> tuple[str, ...]:
    allowed = f"{100 * max_share:g} %"
    found = []
    if any(is_small):
        place = is_small.index(True)
        # Between the last threshold that masks the tail and this one stand tokens for sure, but on
        # both sides of `moved` where it is no threshold itself.
        is_counted = num_tail > 0 and np.float32(curve.thresholds[num_tail - 1]) == np.float32(
            moved
        )
        verb = "keeps" if is_counted else "may keep"
        found.append(
            f"The smallest counted threshold that masks at most {allowed} is "
            f"{format_near(curve.thresholds[place])} ({format_fraction(shares[place])}): it "
            f"{verb} tokens whose probability moved by more than {format_knob(moved)}."
        )
    else:
        found.append(
            f"Every counted threshold masks more than {allowed}; the largest, "
            f"{format_near(curve.thresholds[-1])}, masks {format_fraction(shares[-1])}."
        )
    if num_tail:
        found.append(
            f"At {format_near(curve.thresholds[num_tail - 1])}, the largest one that masks that "
            f"tail, {format_fraction(shares[num_tail - 1])} are masked."
        )
    elif any(is_small):
        found.append(
            f"No threshold as small as {format_knob(moved)} was counted: let the curve begin there."
        )
    return tuple(found)
