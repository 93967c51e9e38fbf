"""Colours and line styles of arms, the same in figures, in charts and in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SMOOTHED_STEPS = 10
"""Window of the trailing means that lines are drawn as, for the eye."""

# Okabe and Ito's palette, which colour-blind readers can tell apart; the yellow is too faint for
# lines on white, and the paler ones are darkened.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#B8478E", "#B07A00", "#6A51A3")
_BASELINE_COLOR = "#222222"
_DASHES: tuple[tuple[float, ...], ...] = (
    (5.0, 1.6),
    (1.2, 1.3),
    (7.0, 1.6, 1.2, 1.6),
    (3.0, 1.2),
    (8.0, 1.4, 1.2, 1.4, 1.2, 1.4),
)

_REPLICATE_DASH = (2.2, 2.2)

# The matrix of the filter `hue-rotate(180deg)`, as CSS defines it.
_HUE_ROTATE = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
_INVERTED = 0.91


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn. `dash`: on-off lengths in line widths; empty for a solid line."""

    color: str
    dash: tuple[float, ...]

    @property
    def dark_color(self) -> str:
        """The colour on dark paper: what the page's filter makes of it in a figure."""
        rgb = np.array([int(self.color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        inverted = _INVERTED - (2 * _INVERTED - 1) * rgb
        turned = np.clip(_HUE_ROTATE @ inverted, 0.0, 1.0)
        return "#" + "".join(f"{round(255 * float(part)):02X}" for part in turned)


def arm_styles(
    arms: Sequence[str], baseline: str, replicates: Mapping[str, str] | None = None
) -> dict[str, ArmStyle]:
    """Return a style per arm: the baseline alone solid and in ink, others by their place.

    Colour and dash advance together, so that the first 30 arms all differ. A replicate has the
    colour of its arm and a dash of its own.

    Args:
        replicates: replicate -> its arm.
    """
    replicates = replicates or {}
    others = [arm for arm in arms if arm != baseline and arm not in replicates]
    styles = {
        arm: ArmStyle(_COLORS[place % len(_COLORS)], _DASHES[place % len(_DASHES)])
        for place, arm in enumerate(others)
    }
    styles[baseline] = ArmStyle(_BASELINE_COLOR, dash=())
    for arm, of in replicates.items():
        styles[arm] = ArmStyle(styles[of].color, _REPLICATE_DASH)
    return {arm: styles[arm] for arm in arms if arm in styles}
