"""Colours and line styles of arms, the same in figures and in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's palette, which colour-blind readers can tell apart; the yellow is too faint for
# lines on white, and the paler ones are darkened.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#B8478E", "#B07A00", "#6A51A3")
_BASELINE_COLOR = "#222222"
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5.0, 1.6),
    (1.2, 1.3),
    (7.0, 1.6, 1.2, 1.6),
    (3.0, 1.2),
)


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn. `dash`: on-off lengths in line widths; empty for a solid line."""

    color: str
    dash: tuple[float, ...]


def arm_styles(arms: Sequence[str], baseline: str) -> dict[str, ArmStyle]:
    """Return a style per arm: the baseline solid in ink, others by their place among the rest.

    Colour and dash advance together, so that the first 30 arms all differ.
    """
    others = [arm for arm in arms if arm != baseline]
    styles = {
        arm: ArmStyle(_COLORS[place % len(_COLORS)], _DASHES[place % len(_DASHES)])
        for place, arm in enumerate(others)
    }
    styles[baseline] = ArmStyle(_BASELINE_COLOR, dash=())
    return {arm: styles[arm] for arm in arms if arm in styles}
