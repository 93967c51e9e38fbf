"""What a report says of stop rules and of the runs that they stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.report.cells import Report
from analysis.report.numbers import format_number, format_runs
from analysis.results import Results
from analysis.runs import Notice, Run, RunState

_UNNAMED = "a rule that its record doesn't name"


def stop_fields(run: Run) -> dict[str, Any]:
    """Return what stands of a stop in report.json, for one run."""
    stop = run.stop
    return {
        "rule": "" if stop is None else stop.rule,
        "rule_step": None if stop is None else stop.rule_step,
        "unspent_gpu_hours": None if stop is None else stop.unspent_gpu_hours,
    }


def stop_notices(results: Results) -> list[Notice]:
    """Name the stopped runs by their rule, and rules that weren't the same for all runs."""
    found = []
    for rule, runs in _by_rule(results).items():
        who = format_runs([(run.arm, run.seed) for run in runs])
        message = (
            f"stopped by {rule}{_steps(runs)}, so what they would have done later isn't known: they"
            " count in events, and in verdicts that events decide, not in means: "
            f"{who}"
        )
        found.append(Notice("runs_stopped", message))
    return [*found, *_unequal_rules(results)]


def stop_finding(results: Results) -> str:
    """Say how many runs of each arm were stopped; empty where none was."""
    stopped = [run for runs in _by_rule(results).values() for run in runs]
    if not stopped:
        return ""
    arms = [arm.arm for arm in results.arms]
    counts = [(arm, sum(run.arm == arm for run in stopped)) for arm in arms]
    shown = ", ".join(
        f"{arm} {number} of {len(results.sweep.of_arm(arm))}" for arm, number in counts if number
    )
    rules = " or ".join(_by_rule(results))
    text = f"Stopped by {rules}: {shown}{_steps(stopped)}"
    unspent = sum(run.stop.unspent_gpu_hours or 0.0 for run in stopped if run.stop is not None)
    return f"{text}, about {format_number(unspent)} GPU-hours unspent." if unspent else f"{text}."


def stop_text(report: Report) -> str:
    """Return how stopped runs are judged; empty where no rule may stop any."""
    rules = report.get("stop_when", [])
    if not rules and not _has_stopped(report):
        return ""
    shown = " or ".join(f"`{rule}`" for rule in rules) or "none any more"
    return (
        f"{shown}: a run is stopped at the first step at which a rule holds, by what it had logged "
        "up to there. What has happened by then (a collapse, an explosion) counts, at its step; "
        "anything else is censored: in the share of healthy runs it is at risk up to its stop, and "
        "between arms it is undecidable. It has no final mean, so that an arm with stopped runs is "
        "judged by events or not at all. Kaplan and Meier's estimate takes stops for unrelated to "
        "what would have come; where a rule stops ailing runs before they collapse, it flatters "
        "the arm. Peaks and costs are of the steps that were made."
    )


def judged_runs(report: Report) -> str:
    """Return what the runs are called that enter events."""
    return "finished and stopped runs" if _has_stopped(report) else "finished runs"


def _has_stopped(report: Report) -> bool:
    return any(run["state"] == RunState.STOPPED for run in report.get("runs", []))


def _by_rule(results: Results) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in results.sweep.runs:
        if run.state is RunState.STOPPED:
            rule = "" if run.stop is None else run.stop.rule
            found.setdefault(f"`{rule}`" if rule else _UNNAMED, []).append(run)
    return found


def _steps(runs: list[Run]) -> str:
    steps = [run.stop.rule_step for run in runs if run.stop is not None]
    known = sorted(step for step in steps if step is not None)
    if not known:
        return ""
    first, last = known[0], known[-1]
    return f" at step {first}" if first == last else f" at steps {first} to {last}"


def _unequal_rules(results: Results) -> list[Notice]:
    """Say so where some judged runs could be stopped by what others couldn't."""
    holders: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for run in results.sweep.runs:
        if run.attempts and (run.is_done or run.state is RunState.STOPPED):
            rules = run.attempts[-1].claim.stop_when
            holders.setdefault(rules, []).append((run.arm, run.seed))
    if len(holders) < 2:
        return []
    shown = "; ".join(f"{_rules(rules)} ({format_runs(who)})" for rules, who in holders.items())
    message = f"runs could be stopped by different rules, so some had longer to recover: {shown}"
    return [Notice("stop_rules_differ", message)]


def _rules(rules: tuple[str, ...]) -> str:
    return ", ".join(f"`{rule}`" for rule in rules) or "no rule"


def seeds_cell_lines(arm: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how many runs of an arm finished, and how many were stopped."""
    stopped = arm.get("states", {}).get(RunState.STOPPED, 0)
    lines = (f"{arm['num_done']} of {arm['num_planned']}",)
    return (*lines, f"{stopped} stopped") if stopped else lines


def num_ended(arm: Mapping[str, Any]) -> int:
    """Return how many runs of an arm won't go on, as they finished or were stopped."""
    number: int = arm["num_done"] + arm.get("states", {}).get(RunState.STOPPED, 0)
    return number
