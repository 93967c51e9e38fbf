"""From what a sweep declares to the rules that its runs' events are found by. Needs numpy alone."""

from __future__ import annotations

from analysis.events import EventRules
from harness.records.model import AnalysisSpec


def event_rules(spec: AnalysisSpec) -> EventRules:
    """Return the event rules that a sweep declares."""
    return EventRules(
        baseline_steps=spec.baseline_steps,
        explode_factor=spec.explode_factor,
        explode_hold=spec.explode_hold,
        collapse_window=spec.collapse_window,
        collapse_fraction=spec.collapse_fraction,
        entropy_fraction=spec.entropy_fraction,
        spike_factor=spec.spike_factor,
        mask_floor=spec.mask_floor,
        mask_ceiling=spec.mask_ceiling,
        onset_false_alarm=spec.onset_false_alarm,
    )
