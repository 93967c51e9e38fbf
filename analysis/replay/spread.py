"""Places for labels that would lie over each other."""

from __future__ import annotations

from collections.abc import Sequence


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the nearest places to `places` that keep order and lie `gap` apart.

    Ends may leave the range of `places`; equal places keep their order.
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        # Labels that would overlap stand together around the mean of where they belong.
        while len(groups) > 1 and _bottom(groups[-1], places, gap) < (
            _bottom(groups[-2], places, gap) + gap * len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    found = [0.0] * len(places)
    for group in groups:
        bottom = _bottom(group, places, gap)
        for rank, index in enumerate(group):
            found[index] = bottom + rank * gap
    return found


def _bottom(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    middle = sum(places[index] for index in group) / len(group)
    return middle - gap * (len(group) - 1) / 2
