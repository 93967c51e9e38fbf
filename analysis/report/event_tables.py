"""The tables of what happened in runs and between arms, made from report.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.metrics import metric_spec
from analysis.report.cells import Cell, Column, Report, Table, make_arm_cell, make_cell
from analysis.report.numbers import NONE, TIMES, format_metric, format_number
from analysis.report.stops import judged_runs

UNKNOWN = "?"
"""Stands where an event can't be judged."""

_BASELINE_PROBLEM = "in the baseline window"


def happening_table(report: Report) -> Table:
    """One row per run: everything else that happened in it, beside explosion and collapse."""
    columns = (
        Column("arm"),
        Column("seed", True),
        Column("KL onset", True, "estimated step, with its bounds"),
        Column("KL above", True, "share of steps after the baseline window above the threshold"),
        Column("solve rate below", True, "share of windows below the collapse threshold"),
        Column("dips", True, "of the solve rate that recovered: how many, lowest mean"),
        Column("entropy fell", True, "below the declared share of its baseline, to the end"),
        Column("lost metrics", False, "not finite, vanished, or with gaps"),
        Column("gradient spikes", True, "how many, and the largest over the baseline median"),
        Column("mask", False, "silent: the KL rises and nothing is masked; heavy: masks much"),
        Column(_BASELINE_PROBLEM),
    )
    losses = {arm["name"]: arm["loss"].get("type") for arm in report["arms"]}
    rows = tuple(
        (
            make_arm_cell(run["arm"]),
            make_cell(str(run["seed"])),
            *_run_cells(run["events"], has_mask=losses.get(run["arm"]) != "none"),
        )
        for run in report["runs"]
        if run["events"] is not None and run["last_step"] is not None
    )
    note = (
        "Of runs with data, up to the last step that is judged. Every column is an event by its own"
        f" rule; {UNKNOWN}: it can't be judged (report.json says why)."
    )
    return Table("happenings", "What happened in each run", columns, rows, note, is_folded=True)


def parting_table(report: Report) -> Table:
    """Where each arm parts from the baseline, as an interval."""
    columns = (
        Column("arm"),
        Column("in"),
        Column("equal up to step", True, "last step up to which the data show no difference"),
        Column("differs from step", True, "where the alarm rises"),
        Column("the arm is"),
        Column("runs", True, "arm / baseline"),
        Column(""),
    )
    rows = []
    for item in report["partings"]:
        found = item["found"]
        side = {True: "higher", False: "lower", None: NONE}[found["is_higher"]]
        # With shared seeds arms are equal to the last bit for a while, and then anything differs.
        is_bitwise = found["identical_to"] is not None and (
            found["identical_to"] == found["last_equal"]
        )
        if is_bitwise:
            side = NONE
        if found["state"] == "no":
            ends = (f"{found['last_step']} (all)", "never")
        elif found["state"] == "yes":
            ends = (str(found["last_equal"]), str(found["first_different"]))
        else:
            ends = (NONE, NONE)
        rows.append(
            (
                make_arm_cell(item["arm"]),
                make_cell(metric_spec(item["metric"]).label),
                make_cell(ends[0]),
                make_cell(ends[1]),
                make_cell(side),
                make_cell(" / ".join(map(str, found["num_runs"]))),
                make_cell(
                    found["reason"] or ("equal to the last bit up to there" if is_bitwise else ""),
                    tone="muted",
                ),
            )
        )
    level = f"{100 * report['analysis']['onset_false_alarm']:g} %"
    note = (
        f"The means of the {judged_runs(report)} of both, step by step. Where the two differ by"
        f" noise alone, {level} of pairs are said to part; a lasting difference below one standard"
        " deviation of"
        " the step-to-step noise goes unseen. Where arms share their random numbers and are equal"
        " to the last bit beyond the baseline window, the first step of any difference is named"
        " instead, and its sign says nothing."
    )
    title = f"Where arms part from {report['baseline']}"
    return Table("partings", title, columns, tuple(rows), note)


def _run_cells(events: Mapping[str, Any], *, has_mask: bool) -> tuple[Cell, ...]:
    dips = events["dips"]
    dip = NONE
    if dips:
        lowest = min(dips, key=lambda item: item["lowest"])
        dip = (
            f"{len(dips)}, {format_metric('solve_rate', lowest['lowest'])} @{lowest['lowest_step']}"
        )
    return (
        _onset_cell(events["onset"]),
        make_cell(_share(events["kl_above_share"])),
        make_cell(_share(events["solve_rate_below_share"])),
        make_cell(dip, tone="warn" if dips else ""),
        _event_cell(events["entropy_collapsed"]),
        _lost_cell(events["logs"]),
        _spike_cell(events["spikes"]),
        _mask_cell(events) if has_mask else make_cell(NONE),
        make_cell(
            ", ".join(events["baseline_events"]) or NONE,
            tone="bad" if events["baseline_events"] else "",
        ),
    )


def _onset_cell(onset: Mapping[str, Any]) -> Cell:
    if onset["state"] != "yes":
        return _event_cell(onset)
    bounds = f" [{onset['first']}, {onset['last']}]" if onset["first"] is not None else ""
    return make_cell(f"{onset['step']}{bounds}", tone="bad")


def _event_cell(event: Mapping[str, Any]) -> Cell:
    if event["state"] == "yes":
        return make_cell(f"step {event['step']}", tone="bad")
    return make_cell("no") if event["state"] == "no" else make_cell(UNKNOWN, tone="muted")


def _lost_cell(logs: Mapping[str, Mapping[str, Any]]) -> Cell:
    lines = []
    for name, log in logs.items():
        label = metric_spec(name).label
        if log["nonfinite"] is not None:
            found = log["nonfinite"]
            lines.append(f"{label}: not finite from {found['first']} ({found['count']} steps)")
        if log["vanished_after"] is not None:
            lines.append(f"{label}: vanished after {log['vanished_after']}")
        if log["gaps"]:
            lines.append(f"{label}: {len(log['gaps'])} gaps, first at {log['gaps'][0]['first']}")
    return make_cell(*lines, tone="bad") if lines else make_cell(NONE)


def _spike_cell(spikes: Mapping[str, Any]) -> Cell:
    if spikes["reason"]:
        return make_cell(UNKNOWN, tone="muted")
    if not spikes["count"]:
        return make_cell("0")
    return make_cell(
        f"{spikes['count']}, {TIMES}{format_number(spikes['largest'])} @{spikes['largest_step']}",
        tone="warn",
    )


def _mask_cell(events: Mapping[str, Any]) -> Cell:
    lines = [
        f"{word} from {events[name]['step']}"
        for name, word in (("mask_silent", "silent"), ("mask_heavy", "heavy"))
        if events[name]["state"] == "yes"
    ]
    return make_cell(*lines, tone="warn") if lines else make_cell(NONE)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f} %"
