"""What happened in one run and between arms, each event by its own rule and never merged.

Needs numpy alone, so that a running job can use the same rules. An event is "no" only where its
rule could be applied from the baseline to the run's last step; otherwise it is "undecidable", with
the reason.
"""

from __future__ import annotations

from analysis.events.between_arms import Difference, first_difference
from analysis.events.health import Gap, MetricLog, NonFinite, Spikes, find_spikes, metric_log
from analysis.events.onset import find_onset
from analysis.events.rules import Event, EventRules, EventState, gone_steps, with_gone
from analysis.events.run_events import (
    RunEvents,
    find_baseline_events,
    find_mask_heavy,
    find_mask_silent,
    find_run_events,
)
from analysis.events.survival import SurvivalCurve, survival
from analysis.events.thresholds import (
    Dip,
    find_baseline_explosion,
    find_collapse,
    find_dips,
    find_entropy_collapse,
    find_explosion,
)

__all__ = [
    "Difference",
    "Dip",
    "Event",
    "EventRules",
    "EventState",
    "Gap",
    "MetricLog",
    "NonFinite",
    "RunEvents",
    "Spikes",
    "SurvivalCurve",
    "find_baseline_events",
    "find_baseline_explosion",
    "find_collapse",
    "find_dips",
    "find_entropy_collapse",
    "find_explosion",
    "find_mask_heavy",
    "find_mask_silent",
    "find_onset",
    "find_run_events",
    "find_spikes",
    "first_difference",
    "gone_steps",
    "metric_log",
    "survival",
    "with_gone",
]
