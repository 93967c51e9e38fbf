"""harness stop-check: what stop rules would have done to finished runs. It changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.cli.display import open_console
from harness.cli.table import format_gpu_hours, format_span
from harness.errors import UsageError
from harness.printable import one_line
from harness.records.files import to_json
from harness.records.model import PlanRecord, StopRule, read_record
from harness.sweep.locate import find_planned
from harness.sweep.stop_rules import default_rules, parse_rules

if TYPE_CHECKING:
    from analysis.stop_check import CheckedRun, StopCheck


def stop_check_command(*, sweep: str, rules: Sequence[str], as_json: bool) -> int:
    """Print where the rules would have fired, what that saves, costs and changes; return 0."""
    from analysis.load import load_sweep  # noqa: PLC0415 (pandas loads only here)
    from analysis.stop_check import check_stops  # noqa: PLC0415

    paths = find_planned(sweep)
    plan = read_record(PlanRecord, paths.plan)
    wanted = choose_rules(plan, rules)
    found = check_stops(load_sweep(paths.root), wanted)
    if not found.runs:
        raise UsageError(
            f"no run of `{paths.name}` has finished, so nobody knows what a stop would have cost",
            f"`harness run {paths.name}` runs what is missing",
        )
    if as_json:
        sys.stdout.write(to_json(check_to_json(found)))
        return 0
    _print_check(paths.name, found)
    return 0


def choose_rules(plan: PlanRecord, texts: Sequence[str]) -> tuple[StopRule, ...]:
    """Return the rules that `texts` say; without any the plan's own, else the default.

    Raises:
        UsageError: a text is no rule.
    """
    if texts:
        return parse_rules(texts, plan.analysis)
    return plan.stop_when or default_rules(plan.analysis)


def check_to_json(found: StopCheck) -> dict[str, Any]:
    """Return all that is known of a check as plain data."""
    return {
        "rules": [rule.text for rule in found.rules],
        "num_fired": sum(run.stop is not None for run in found.runs),
        "num_left_out": found.num_left_out,
        "hours": found.hours,
        "saved_hours": found.saved_hours,
        "gpu_hours": found.gpu_hours,
        "saved_gpu_hours": found.saved_gpu_hours,
        "num_compared": found.num_compared,
        "changed": [asdict(item) for item in found.changed],
        "runs": [_run_to_json(run) for run in found.runs],
    }


def _run_to_json(run: CheckedRun) -> dict[str, Any]:
    stop = run.stop
    return {
        **asdict(run),
        "stop": None if stop is None else {"rule": stop.rule.text, "step": stop.step},
    }


def _print_check(name: str, found: StopCheck) -> None:
    from rich.table import Table  # noqa: PLC0415 (only where a table is shown)

    console = open_console()
    left = f", {found.num_left_out} others left out" if found.num_left_out else ""
    lines = [f"{name}: {len(found.runs)} finished runs{left}"]
    names = [f"rule {number}" for number in range(1, len(found.rules) + 1)]
    lines += [f"{key}: {rule.text}" for key, rule in zip(names, found.rules, strict=True)]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for key in (*names, "of", "saved"):
        table.add_column(key, justify="right", no_wrap=True)
    table.add_column("")
    for run in found.runs:
        if run.stop is not None:
            table.add_row(
                f"{run.arm}/{run.seed}",
                *(_or_dash(run.firings[rule.text]) for rule in found.rules),
                str(run.last_step),
                _saved(run.saved_hours, run.saved_gpu_hours),
                _cost(run),
            )
    if table.row_count:
        console.print(table)
    for line in _summary(found):
        console.print(one_line(line), markup=False, soft_wrap=True)


def _summary(found: StopCheck) -> list[str]:
    fired = [run for run in found.runs if run.stop is not None]
    lines = [f"stopped: {len(fired)} of {len(found.runs)} runs"]
    if fired:
        lines[0] += f", which saves {_saved(found.saved_hours, found.saved_gpu_hours or None)}"
        whole, saved = (
            (found.gpu_hours, found.saved_gpu_hours)
            if found.gpu_hours
            else (found.hours, found.saved_hours)
        )
        lines[0] += f" ({100 * saved / whole:.0f} %)" if whole else ""
    recovered = [f"{run.arm}/{run.seed}" for run in fired if run.recovered]
    lines.append(f"came back after their stop: {', '.join(recovered) or 'none'}")
    for rule in found.rules:
        blind = {run.blind[rule.text] for run in found.runs if rule.text in run.blind}
        number = sum(rule.text in run.blind for run in found.runs)
        if number:
            lines.append(f"{rule.text} can't fire in {number} runs: {' / '.join(sorted(blind))}")
    if not found.changed:
        lines.append(f"verdicts: none of {found.num_compared} would change")
        return lines
    lines.append(f"verdicts: {len(found.changed)} of {found.num_compared} would change")
    lines += [
        f"  {item.arm}, {item.name}: {item.whole} -> {item.stopped}" for item in found.changed
    ]
    return lines


def _cost(run: CheckedRun) -> str:
    if run.recovered:
        return "came back later"
    return f"before it {' and '.join(run.unseen)}" if run.unseen else ""


def _saved(hours: float | None, gpu_hours: float | None) -> str:
    """Return GPU-hours where there are some, else the time of work."""
    if gpu_hours is not None:
        return f"{format_gpu_hours(gpu_hours) or '0'} GPU-hours"
    return "?" if hours is None else f"{format_span(3600 * hours)} of work"


def _or_dash(step: int | None) -> str:
    return "-" if step is None else str(step)
