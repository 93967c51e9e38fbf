"""What can be drawn of a curve, and with how few points: no spike is lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from analysis.curve import BoolArray, Curve, FloatArray, IntArray

_DRAWABLE = (1e-100, 1e100)  # Beyond these, axes with margins leave the range of floats.


def decimate(steps: IntArray, values: FloatArray, max_columns: int) -> tuple[IntArray, FloatArray]:
    """Return the points of a line that `max_columns` columns of pixels can show.

    The range of steps is cut into columns of equal width. Of each column the lowest and the highest
    finite value stay, at their own steps, and one value that is not finite (as NaN, which breaks
    the line) where there is any; the first and the last point stay in any case. A line that has no
    more points than that comes back whole.

    Args:
        steps: increasing, [num_points].
        values: [num_points].
    """
    if len(steps) <= 2 * max_columns:
        return steps, np.where(np.isfinite(values), values, np.nan)
    is_finite = np.isfinite(values)
    starts = column_starts(steps, max_columns)
    kept: BoolArray = np.zeros(len(steps), dtype=np.bool_)
    kept[[0, -1]] = True
    for filler, is_wanted in ((np.inf, np.minimum), (-np.inf, np.maximum)):
        filled = np.where(is_finite, values, filler)
        extremes = np.repeat(is_wanted.reduceat(filled, starts), _lengths(starts, len(steps)))
        kept[_firsts(is_finite & (filled == extremes), starts)] = True
    kept[_firsts(~is_finite, starts)] = True
    return steps[kept], np.where(is_finite, values, np.nan)[kept]


def column_starts(steps: IntArray, num_columns: int) -> IntArray:
    """Return the places of `steps` (increasing, at least one) at which a column begins.

    Columns are of equal width in steps; those without a point are left out.
    """
    span = int(steps[-1]) - int(steps[0]) + 1
    columns = (steps - steps[0]) * num_columns // span
    return np.flatnonzero(np.diff(columns, prepend=-1)).astype(np.int64)


def envelope(
    columns: IntArray, values: FloatArray, num_columns: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return lowest, highest and mean finite value per column, NaN where a column has none.

    Args:
        columns: the column that each value lies in, not decreasing, [num_values].
    """
    low, high, mean = (np.full(num_columns, np.nan) for _ in range(3))
    is_finite = np.isfinite(values)
    columns, values = columns[is_finite], values[is_finite]
    if len(columns):
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        places = columns[starts]
        low[places] = np.minimum.reduceat(values, starts)
        high[places] = np.maximum.reduceat(values, starts)
        mean[places] = np.add.reduceat(values, starts) / _lengths(starts, len(values))
    return low, high, mean


def _lengths(starts: npt.NDArray[np.intp], total: int) -> npt.NDArray[np.intp]:
    return np.diff(starts, append=total)


def _firsts(is_wanted: BoolArray, starts: IntArray) -> IntArray:
    """Return the first wanted place of each column that has one."""
    wanted = np.flatnonzero(is_wanted)
    columns = np.searchsorted(starts, wanted, side="right")
    return wanted[np.flatnonzero(np.diff(columns, prepend=-1))].astype(np.int64)


def drawable(curve: Curve) -> Curve:
    """Return `curve` without what no axis can hold: values beyond 1e100 are not finite here, and
    those below 1e-100 are 0."""
    size = np.abs(curve.values)
    values = np.where(size > _DRAWABLE[1], np.nan, curve.values)
    return Curve(curve.steps, np.where(size < _DRAWABLE[0], 0.0, values))


def floor_of(curves: Iterable[Curve]) -> float | None:
    """Return where a log axis should draw 0; None where no value of `curves` is 0 or less."""
    values = [drawable(curve).finite().values for curve in curves]
    together = np.concatenate(values) if values else np.array([])
    positive = together[together > 0]
    if len(positive) == len(together):
        return None
    return float(positive.min()) / 3 if len(positive) else 0.1
