"""Where two rules mask in the plane of the two probabilities: IPO's band and IcePop's cone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from analysis.replay.result import ReplayResult, RuleCount
from analysis.replay.wording import format_knob, replayed

_IPO_COLOR = "#0072B2"
_ICEPOP_COLOR = "#D55E00"
_ONLY_IPO = "#CFE5F5"
_ONLY_ICEPOP = "#FBDCC4"
_BOTH = "#E3D3EA"
_NEITHER = "#FFFFFF"
_NUM_POINTS = 2000


@dataclass(frozen=True)
class DrawnRule:
    """A rule whose edges are drawn."""

    label: str
    text: str
    color: str
    line: Any


@dataclass(frozen=True)
class Regions:
    """The regions that one IPO rule and one IcePop rule cut the plane into.

    Attributes:
        eps: of the IPO rule; None without one.
        ratio_low, ratio_high: of the IcePop rule; None without one.
        counts: name of a region -> tokens in it, as the rules decide.
    """

    eps: float | None
    ratio_low: float | None
    ratio_high: float | None
    rules: tuple[DrawnRule, ...]
    counts: Mapping[str, int]
    colors: Mapping[str, str]


def find_regions(result: ReplayResult) -> Regions:
    """Return the regions of the first listed IPO rule and of the first listed IcePop rule."""
    ipo, icepop = (_first(result, kind) for kind in ("ipo", "icepop"))
    drawn = []
    if ipo is not None:
        text = f"IPO |p - q| = {format_knob(ipo.knobs['eps'])}"
        drawn.append(DrawnRule(ipo.label, text, _IPO_COLOR, "-"))
    if icepop is not None:
        low, high = (format_knob(icepop.knobs[knob]) for knob in ("ratio_low", "ratio_high"))
        text = f"IcePop p = {low} q and p = {high} q"
        drawn.append(DrawnRule(icepop.label, text, _ICEPOP_COLOR, (0, (5, 1.6))))
    return Regions(
        float(ipo.knobs["eps"]) if ipo else None,
        float(icepop.knobs["ratio_low"]) if icepop else None,
        float(icepop.knobs["ratio_high"]) if icepop else None,
        tuple(drawn),
        _counts(result, ipo, icepop),
        {
            "both": _BOTH,
            "only IPO": _ONLY_IPO,
            "only IcePop": _ONLY_ICEPOP,
            "IPO": _ONLY_IPO,
            "IcePop": _ONLY_ICEPOP,
            "neither": _NEITHER,
        },
    )


def _first(result: ReplayResult, kind: str) -> RuleCount | None:
    return next((rule for rule in replayed(result.rules) if rule.type == kind), None)


def _counts(
    result: ReplayResult, ipo: RuleCount | None, icepop: RuleCount | None
) -> dict[str, int]:
    if ipo is not None and icepop is not None:
        for pair in result.agreements:
            if {pair.first, pair.second} == {ipo.label, icepop.label}:
                only = (pair.only_first, pair.only_second)
                only_ipo, only_icepop = only if pair.first == ipo.label else only[::-1]
                return {
                    "both": pair.both,
                    "only IPO": only_ipo,
                    "only IcePop": only_icepop,
                    "neither": pair.neither,
                }
    named = (("IPO", ipo), ("IcePop", icepop))
    return {name: rule.num_masked for name, rule in named if rule is not None}


def fill_regions(axes: Axes, regions: Regions, smallest: float) -> None:
    """Tint what each rule masks; `smallest` is where the axes begin."""
    q = _grid(smallest)
    ipo_low, ipo_high, cone_low, cone_high = _edges(regions, q)
    top, bottom = np.ones_like(q), np.full_like(q, smallest)
    parts = (
        (np.maximum(ipo_high, cone_high), top, _BOTH),
        (bottom, np.minimum(ipo_low, cone_low), _BOTH),
        (ipo_high, cone_high, _ONLY_IPO),
        (cone_low, ipo_low, _ONLY_IPO),
        (cone_high, ipo_high, _ONLY_ICEPOP),
        (ipo_low, cone_low, _ONLY_ICEPOP),
    )
    for low, high, color in parts:
        low, high = np.clip(low, smallest, 1.0), np.clip(high, smallest, 1.0)
        axes.fill_between(q, low, high, where=high > low, color=color, linewidth=0, zorder=1)


def draw_boundaries(axes: Axes, regions: Regions, smallest: float) -> None:
    """Draw the band's and the cone's edges over the density, on a light rim."""
    q = _grid(smallest)
    ipo_low, ipo_high, cone_low, cone_high = _edges(regions, q)
    for rule in regions.rules:
        edges = (ipo_low, ipo_high) if rule.color == _IPO_COLOR else (cone_low, cone_high)
        for edge in edges:
            if not np.isfinite(edge).all():
                continue
            axes.plot(q, edge, color="white", linewidth=2.8, alpha=0.8, zorder=3)
            axes.plot(q, edge, color=rule.color, linestyle=rule.line, linewidth=1.6, zorder=4)


def _edges(regions: Regions, q: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Return the ends of what IPO keeps and of what IcePop keeps at each q."""
    far = np.full_like(q, np.inf)
    ipo = (-far, far) if regions.eps is None else (q - regions.eps, q + regions.eps)
    low, high = regions.ratio_low, regions.ratio_high
    cone = (-far, far) if low is None or high is None else (low * q, high * q)
    return (*ipo, *cone)


def _grid(smallest: float) -> npt.NDArray[np.float64]:
    if smallest > 0:
        return np.geomspace(smallest, 1.0, _NUM_POINTS)
    return np.linspace(0.0, 1.0, _NUM_POINTS)
