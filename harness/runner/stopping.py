"""Evaluates the stop rules of a run on its node, while its trainer works.

Nothing but a run with rules loads what that takes (numpy and the readers of metrics).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from harness.errors import HarnessError
from harness.records.layout import RunPaths
from harness.records.model import (
    AnalysisSpec,
    Exit,
    RunRecord,
    StopRule,
    read_record_if_there,
)

if TYPE_CHECKING:
    from analysis.curve import Curve
    from analysis.stopping import Firing

ResultT = TypeVar("ResultT")

STOPPED = "stopped"
"""Why a trainer was stopped, and what its attempt is called then."""

_MAX_SHARE = 0.02
"""Of a core, at most, is taken from the trainer for the rules."""
_BLIND_AFTER = 50
"""Step by which a metric should have been logged."""


def spent_rules(paths: RunPaths) -> frozenset[str]:
    """Return the rules, as text, that have stopped the run before.

    A rule stops a run once: what it fired on stays in the metrics, so that it would fire again at
    once where somebody has the run go on all the same.
    """
    found = set()
    for attempt in paths.attempts():
        with contextlib.suppress(HarnessError):  # a damaged record is told of elsewhere
            ended = read_record_if_there(Exit, attempt.exit)
            if ended is not None and ended.reason == STOPPED:
                found.add(ended.rule)
    return frozenset(found)


class StopWatch:
    """Says when a rule fires on what a run has logged so far.

    The newest step isn't looked at: other rows of it may still come. The step that is named is the
    one that `analysis.stopping` names of the whole run, however seldom it is looked for.

    Args:
        say: prints a line for people.
    """

    def __init__(
        self,
        paths: RunPaths,
        record: RunRecord,
        rules: Sequence[StopRule],
        spec: AnalysisSpec,
        max_steps: int,
        say: Callable[[str], None],
    ) -> None:
        self._paths = paths
        self._record = record
        self._rules = tuple(rules)
        self._spec = spec
        self._max_steps = max_steps
        self._say = say
        self._seen: int | None = None
        self._next_at = float("-inf")
        self._told: set[str] = set()
        self._past: Mapping[str, Curve] = {}
        self._try(self._evaluate)  # loads what that takes while the trainer is starting

    def poll(self, step: int | None) -> Firing | None:
        """Return the firing, where `step`, the newest of this attempt, is a new one and it is time
        to look again.

        After the first look all others take at most 2 % of a core. Whatever goes wrong is said
        once, and the run goes on.
        """
        began, worked_s = time.monotonic(), time.process_time()
        if step is None or step == self._seen or began < self._next_at:
            return None
        firing = self._try(self._evaluate)
        ended, worked_s = time.monotonic(), time.process_time() - worked_s
        # A file system that lets this process wait doesn't hold up the trainer. The first look
        # loads more of what looking takes, so that it tells nothing about the next.
        pause_s = ended - began
        if self._seen is not None:
            pause_s = max(pause_s, worked_s * (1 / _MAX_SHARE - 1))
        self._seen, self._next_at = step, ended + pause_s
        return firing

    def _evaluate(self) -> Firing | None:
        from analysis.stopping import find_stop  # noqa: PLC0415 (numpy, only where there are rules)

        curves, newest = self._read()
        self._tell_blind(curves, newest)
        if newest >= self._max_steps:
            return (
                None  # nothing is left to save, and the trainer may be writing its last checkpoint
            )
        start = self._record.start_from
        return find_stop(
            curves,
            self._rules,
            self._spec,
            self._max_steps,
            fork_step=0 if start is None else start.step,
        )

    def _read(self) -> tuple[dict[str, Curve], int]:
        """Return the curves up to the last step that is whole, and the newest step.

        Those of a fork begin with its parent's.
        """
        from analysis.live import read_curves  # noqa: PLC0415 (numpy, only where there are rules)
        from analysis.parents import join, read_parent  # noqa: PLC0415
        from analysis.series import trained_steps  # noqa: PLC0415
        from analysis.sources.cache import without_cache  # noqa: PLC0415

        with without_cache():  # the next reading will find another file
            curves = read_curves(self._paths.root, self._record)
            start = self._record.start_from
            if start is not None:
                self._past = self._past or read_parent(self._paths.sweep.root, start).curves
                curves = join(self._past, curves)
        steps = trained_steps(curves)
        newest = int(steps[-1]) if len(steps) else 0
        whole = {name: curve.up_to(newest - 1) for name, curve in curves.items()}
        return {name: curve for name, curve in whole.items() if len(curve)}, newest

    def _tell_blind(self, curves: dict[str, Curve], newest: int) -> None:
        from analysis.stopping import why_blind  # noqa: PLC0415 (numpy, only where there are rules)

        for rule in self._rules:
            if newest <= max(_BLIND_AFTER, rule.after_step, self._spec.baseline_steps[1]):
                continue
            reason = why_blind(curves, rule, self._spec)
            if reason:
                self._tell(rule.text, f"the stop rule `{rule.text}` can't fire: {reason}")

    def _try(self, work: Callable[[], ResultT]) -> ResultT | None:
        try:
            return work()
        except Exception as error:
            kind = type(error).__name__
            self._tell("error", f"the stop rules can't be evaluated: {kind}: {error}")
            return None

    def _tell(self, about: str, text: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self._say(f"warning: {text}; the run goes on")
