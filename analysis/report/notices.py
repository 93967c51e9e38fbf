"""What a reader must know before believing the numbers."""

from __future__ import annotations

import dataclasses

from analysis.metrics import METRICS, metric_spec, nearest_keys
from analysis.replicates import repeating_runs
from analysis.report.forks import fork_notices
from analysis.report.numbers import format_effect, format_holders, format_runs
from analysis.report.stops import stop_notices
from analysis.results import Results
from analysis.runs import Notice, Run, RunState


def find_notices(results: Results) -> list[Notice]:
    """Return every warning of the report; errors, then the gravest first."""
    found = [
        *_confounders(results),
        *_changed_rules(results),
        *fork_notices(results),
        *_missing_runs(results),
        *_too_few(results),
        *_repeating_replicates(results),
        *_within_replicate_noise(results),
        *_metric_notices(results),
        *_event_notices(results),
        *_window_notices(results),
        *results.sweep.notices,
        *_left(results),
    ]
    return sorted(found, key=lambda notice: notice.severity != "error")


def _confounders(results: Results) -> list[Notice]:
    found = []
    for item in results.circumstances.differences:
        if not item.is_declared:
            values = "; ".join(
                f"{_shortened(text)} ({format_holders(holders)})"
                for text, holders in item.values.items()
            )
            message = f"{item.area} `{item.key}` differs between runs: {values}"
            found.append(Notice("undeclared_difference", message))
    return found


def _changed_rules(results: Results) -> list[Notice]:
    plan = results.sweep.plan
    now = dataclasses.asdict(plan.analysis)
    changed = sorted(
        {
            key
            for earlier in plan.earlier_analysis
            for key, value in dataclasses.asdict(earlier).items()
            if value != now[key]
        }
    )
    if not plan.earlier_analysis:
        return []
    keys = ", ".join(f"`{key}`" for key in changed) or "and changed back"
    message = f"the analysis was changed after data existed: {keys}"
    return [Notice("analysis_changed", f"{message}; these verdicts are post hoc")]


def _missing_runs(results: Results) -> list[Notice]:
    words = {
        RunState.PLANNED: "not started",
        RunState.UNFINISHED: "unfinished (running, or cut off)",
        RunState.FAILED: "failed",
        RunState.TIMEOUT: "at their time limit",
        RunState.OUT_OF_MEMORY: "out of memory",
        RunState.PREEMPTED: "preempted",
        RunState.CANCELLED: "cancelled",
        RunState.SHORT: "ended before their last planned step",
    }
    found = _foreign_runs(results)
    for state, text in words.items():
        runs = [(run.arm, run.seed) for run in results.sweep.runs if run.state is state]
        if runs:
            message = f"{text}, so kept out of means and verdicts: {format_runs(runs)}"
            found.append(Notice(f"runs_{state}", f"{message}{_errors(results, state)}"))
    return [*found, *stop_notices(results), *_missing_files(results)]


def _foreign_runs(results: Results) -> list[Notice]:
    reasons: dict[str, list[tuple[str, int]]] = {}
    for run in results.sweep.runs:
        if run.foreign:
            reasons.setdefault(run.foreign, []).append((run.arm, run.seed))
    return [
        Notice(
            "runs_foreign",
            f"the folder holds another run ({reason}), so it counts as not done: "
            f"{format_runs(runs)}",
        )
        for reason, runs in reasons.items()
    ]


def _errors(results: Results, state: RunState) -> str:
    """Return the different last errors of the runs in `state`, the first two of them."""
    exits = [
        run.attempts[-1].exit for run in results.sweep.runs if run.state is state and run.attempts
    ]
    errors = sorted({found.error for found in exits if found is not None and found.error})
    more = f" (and {len(errors) - 2} other errors)" if len(errors) > 2 else ""
    return f"; last error: {' / '.join(errors[:2])}{more}" if errors else ""


def _missing_files(results: Results) -> list[Notice]:
    reasons: dict[str, list[tuple[str, int]]] = {}
    for run in results.sweep.runs:
        for file in run.files:
            if file.problem and (run.attempts or run.source):
                reasons.setdefault(file.problem, []).append((run.arm, run.seed))
    return [
        Notice("no_metrics", f"metrics file: {reason} ({format_runs(runs)})")
        for reason, runs in reasons.items()
    ]


def _too_few(results: Results) -> list[Notice]:
    planned = {len(arm.runs) for arm in results.arms}
    if planned == {1}:
        message = "one seed per arm: facts about single runs, and no verdict between arms"
        return [Notice("one_seed", message)]
    return []


def _repeating_replicates(results: Results) -> list[Notice]:
    """Name the replicates that drew no noise of their own."""
    runs = [(arm, seed) for arm, seeds in repeating_runs(results.sweep).items() for seed in seeds]
    if not runs:
        return []
    message = (
        f"{format_runs(runs)} repeat their arm to the last bit, so they are no replicates: their"
        " trainer draws its noise from the seed alone (a program can be told `{replicate}`)"
    )
    return [Notice("replicates_repeat", message, "error")]


def _within_replicate_noise(results: Results) -> list[Notice]:
    """Name the effects that runs of one configuration may differ by, too."""
    found = [
        f"{item.arm} {metric_spec(item.name).label}"
        f" {format_effect(item.scale, item.effect, None, None)} (A/A of {aa.replicate_of}:"
        f" {format_effect(item.scale, aa.effect, aa.low, aa.high)})"
        for item in results.comparisons
        for aa in item.replicates
        if aa.covers and item.scale != "share"
    ]
    if not found:
        return []
    message = f"no larger than what runs of one configuration may differ by: {'; '.join(found)}"
    return [Notice("within_replicate_noise", message)]


def _metric_notices(results: Results) -> list[Notice]:
    runs = [run for run in results.sweep.runs if run.available_keys]
    found = []
    for name in results.sweep.plan.analysis.primary:
        without = [(run.arm, run.seed) for run in runs if run.curve(name) is None]
        if without and len(without) == len(runs):
            available = {key for run in runs for key in run.available_keys}
            message = f"primary metric `{name}` is not logged{nearest_keys(name, available)}"
            found.append(Notice("not_logged", message))
        elif without:
            available = {
                key for run in runs if run.curve(name) is None for key in run.available_keys
            }
            near = nearest_keys(name, available)
            message = f"primary metric `{name}` is not logged in {format_runs(without)}{near}"
            found.append(Notice("not_logged", message))
    for name in METRICS:
        keys = sorted({run.keys.keys[name] for run in runs if name in run.keys.keys})
        variants = sorted({run.keys.definitions.get(name, "") for run in runs if run.curve(name)})
        listed = ", ".join(f"`{key}`" for key in keys)
        if len(variants) > 1:
            parts = [
                f"{metric_spec(name).definition_of(variant)}: {_runs_of(runs, name, variant)}"
                for variant in variants
            ]
            message = f"`{name}` means different things in different runs ({listed}), so it is not"
            message += f" compared between them. {'. '.join(parts)}"
            found.append(Notice("mixed_definitions", message, "error"))
        elif len(keys) > 1:
            message = f"`{name}` comes from different keys in different runs: {listed}"
            found.append(Notice("mixed_keys", message))
        elif variants == ["effective"] and name == "solve_rate":
            message = f"no run logs the solve rate over all rollouts: `{keys[0]}` stands in for it,"
            message += f" {metric_spec(name).definition_of('effective')}"
            found.append(Notice("effective_only", message))
        problems = sorted({run.keys.problems[name] for run in runs if name in run.keys.problems})
        found += [Notice("unresolved_key", f"`{name}` left out: {text}") for text in problems]
    return found


def _runs_of(runs: list[Run], name: str, variant: str) -> str:
    of_it = [run for run in runs if run.keys.definitions.get(name) == variant]
    return format_runs([(run.arm, run.seed) for run in of_it])


def _event_notices(results: Results) -> list[Notice]:
    gone = [
        (summary.run.arm, summary.run.seed)
        for summary in results.runs
        if summary.kl_gone_from is not None
    ]
    found = []
    if gone:
        first = min(s.kl_gone_from for s in results.runs if s.kl_gone_from is not None)
        message = (
            f"mismatch KL is missing at steps that were trained (from step {first}), as when it is "
            f"not finite: {format_runs(gone)}"
        )
        found.append(Notice("vanished", message))
    found += _nonfinite_notices(results)
    found += _late_notices(results)
    found += _baseline_notices(results)
    found += _onset_notices(results)
    for name in ("exploded", "collapsed"):
        reasons: dict[str, list[tuple[str, int]]] = {}
        for summary in results.runs:
            event = summary.exploded if name == "exploded" else summary.collapsed
            if event.state == "undecidable" and summary.run.is_done:
                pair = (summary.run.arm, summary.run.seed)
                reasons.setdefault(event.reason, []).append(pair)
        for reason, runs in reasons.items():
            message = f"`{name}` is not decidable: {reason} ({format_runs(runs)})"
            found.append(Notice("event_not_decidable", message))
    return found


def _nonfinite_notices(results: Results) -> list[Notice]:
    """Name the metrics with values that aren't finite, wherever they stand."""
    by_metric: dict[str, list[tuple[Run, int, int]]] = {}
    for summary in results.runs:
        nonfinite = {} if summary.events is None else summary.events.nonfinite
        for name, (first, count) in nonfinite.items():
            by_metric.setdefault(name, []).append((summary.run, first, count))
    return [
        Notice(
            "nonfinite",
            f"{metric_spec(name).label} is not finite at {sum(count for _, _, count in found)} "
            f"steps (first: {min(first for _, first, _ in found)}): "
            f"{format_runs([(run.arm, run.seed) for run, _, _ in found])}",
        )
        for name, found in by_metric.items()
    ]


def _late_notices(results: Results) -> list[Notice]:
    late = [s for s in results.runs if s.late_collapse_step is not None]
    if not late:
        return []
    first = min(s.late_collapse_step for s in late if s.late_collapse_step is not None)
    runs = format_runs([(s.run.arm, s.run.seed) for s in late])
    message = (
        f"the solve rate collapses after step {results.judged_to}, the last that is judged, from "
        f"step {first} on: {runs}; their arms are not compared"
    )
    return [Notice("late_collapse", message, "error")]


def _onset_notices(results: Results) -> list[Notice]:
    """Say so where the KL's onset can be told in no run at all: a blind spot, not a calm sweep."""
    onsets = [s.events.onset for s in results.runs if s.events is not None and s.run.is_done]
    if not onsets or any(onset.state != "undecidable" for onset in onsets):
        return []
    reasons = sorted({onset.reason for onset in onsets})
    more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
    message = f"the onset of mismatch KL is not decidable in any run: {reasons[0]}{more}"
    return [Notice("onset_not_decidable", message)]


def _baseline_notices(results: Results) -> list[Notice]:
    """Name the runs whose baseline window holds an event, and so is no baseline."""
    first, last = results.sweep.plan.analysis.baseline_steps
    by_event: dict[str, list[tuple[str, int]]] = {}
    for summary in results.runs:
        for name in () if summary.events is None else summary.events.baseline_events:
            by_event.setdefault(name, []).append((summary.run.arm, summary.run.seed))
    return [
        Notice(
            "baseline_explosion" if name == "explosion" else "baseline_event",
            f"baseline steps {first}-{last} hold an event ({_BASELINE_EVENTS.get(name, name)}), so"
            f" what is measured against them is understated: {format_runs(runs)}",
            "error",
        )
        for name, runs in by_event.items()
    ]


_BASELINE_EVENTS = {
    "explosion": "mismatch KL explodes there already",
    "non-finite": "a metric that isn't finite",
    "dip": "the solve rate dips below the collapse threshold",
    "gradient spike": "a gradient spike",
}


def _window_notices(results: Results) -> list[Notice]:
    spec, window = results.sweep.plan.analysis, results.window
    found = _steps_beyond(results)
    if window is None:
        if any(run.is_done for run in results.sweep.runs):
            return [*found, Notice("no_window", "the finished runs have no step in common")]
        return [Notice("no_window", "no run has finished, so there are no final means")]
    if len(window.steps) < spec.last_steps:
        message = (
            f"the final window has {len(window.steps)} steps instead of {spec.last_steps}: the "
            "finished runs have no more in common"
        )
        found.append(Notice("short_window", message))
    if window.first <= spec.baseline_steps[1]:
        message = f"the final window (from step {window.first}) overlaps the baseline window"
        found.append(Notice("window_overlap", message))
    return found


def _steps_beyond(results: Results) -> list[Notice]:
    by_end: dict[int, list[tuple[str, int]]] = {}
    for run in results.runs_beyond:
        assert run.last_step is not None
        by_end.setdefault(run.last_step, []).append((run.arm, run.seed))
    if not by_end:
        return []
    listed = "; ".join(f"{format_runs(runs)} (to step {end})" for end, runs in by_end.items())
    message = (
        f"steps after {results.judged_to} are left out of events, peaks and final means, as not "
        f"every finished run has them: {listed}"
    )
    return [Notice("steps_left_out", message)]


def _left(results: Results) -> list[Notice]:
    left = results.sweep.plan.left
    if not left:
        return []
    message = f"on disk, but no longer in the plan, so left out: {', '.join(left)}"
    return [Notice("left", message)]


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
