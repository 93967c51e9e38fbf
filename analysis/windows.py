"""The steps that means are taken over, and means of one run over them.

Only steps that every run of a comparison logged count; nothing is interpolated or filled forward,
and nothing here is smoothed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curve import EMPTY_CURVE, IntArray, mean_of
from analysis.events import gone_steps
from analysis.runs import Run
from analysis.series import trained_steps


@dataclass(frozen=True)
class FinalWindow:
    """The steps that final means are taken over.

    Attributes:
        steps: the last steps that every finished run logged, increasing.
        common_first, common_last, num_common: all steps that every finished run logged.
    """

    steps: IntArray
    common_first: int
    common_last: int
    num_common: int

    @property
    def first(self) -> int:
        return int(self.steps[0])

    @property
    def last(self) -> int:
        return int(self.steps[-1])


@dataclass(frozen=True)
class WindowMean:
    """Mean of one metric of one run over a window.

    Attributes:
        mean: over the finite values; None where there are none.
        num_values, num_nonfinite: steps of the window with a finite value, and with one that is
            not finite or is gone while the trainer went on.
    """

    mean: float | None
    num_values: int
    num_nonfinite: int


def final_window(runs: Sequence[Run], last_steps: int) -> FinalWindow | None:
    """Return the last `last_steps` steps that every finished one of `runs` logged; None without
    any. Of two arms' runs it is the window of that pair."""
    common = _common_steps(runs)
    if not len(common):
        return None
    return FinalWindow(common[-last_steps:], int(common[0]), int(common[-1]), len(common))


def last_judged_step(runs: Sequence[Run]) -> int | None:
    """Return the last step that every finished run logged; None without finished runs.

    Events and peaks are judged up to there in every run, as a run that went on for longer has had
    more chances. Where finished runs share no step it is the step at which the first of them ended.
    """
    common = _common_steps(runs)
    if len(common):
        return int(common[-1])
    ends = [int(steps[-1]) for steps in _steps_of_finished(runs)]
    return min(ends, default=None)


def window_mean(run: Run, name: str, steps: IntArray, gone: IntArray | None = None) -> WindowMean:
    """Return the mean of metric `name`, which `run` logs, over `steps`.

    Args:
        gone: steps at which the metric was due but wasn't logged; they count as not finite.
    """
    inside = run.curves[name].at(steps)
    finite = inside.finite().values
    mean = mean_of(finite) if len(finite) else None
    num_gone = 0 if gone is None else int(np.isin(gone, steps).sum())
    return WindowMean(mean, len(finite), len(inside) - len(finite) + num_gone)


def gone_kl_steps(run: Run, last_reference_step: int, judged_to: int | None = None) -> IntArray:
    """Return the steps up to `judged_to` at which the mismatch KL of `run` was due but wasn't
    logged, see `gone_steps`."""
    kl = run.history.get("mismatch_kl", EMPTY_CURVE).up_to(judged_to)
    return gone_steps(kl, going_on(run, judged_to), last_reference_step=last_reference_step)


def going_on(run: Run, judged_to: int | None = None) -> IntArray:
    """Return the `trained_steps` of `run`, and of its parents, up to `judged_to`."""
    steps = trained_steps(run.history)
    return steps if judged_to is None else steps[steps <= judged_to]


def _steps_of_finished(runs: Sequence[Run]) -> list[IntArray]:
    """Return the steps that each finished run logged anything at, for those that logged any."""
    return [
        _union_of_steps(run, list(run.curves))
        for run in runs
        if run.is_done and run.last_step is not None
    ]


def _union_of_steps(run: Run, names: Sequence[str]) -> IntArray:
    steps: IntArray = np.unique(np.concatenate([run.curves[name].steps for name in names]))
    return steps


def _common_steps(runs: Sequence[Run]) -> IntArray:
    logged = _steps_of_finished(runs)
    common = logged[0] if logged else EMPTY_CURVE.steps
    for steps in logged[1:]:
        common = np.intersect1d(common, steps, assume_unique=True)
    return common
