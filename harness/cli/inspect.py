"""harness status, logs, why: what goes on, from any shell. They read and change nothing."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from harness.cli.display import open_console
from harness.dispatch.progress import format_duration, format_step
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.printable import one_line, printable
from harness.records.files import finite_or_text, to_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import PlanRecord, read_record
from harness.state.explain import describe_exit, explain, log_path, tail_log
from harness.state.status import LIVE_STATES, RunState, RunStatus, read_states
from harness.sweep.locate import find_planned, split_target

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FOLLOW_INTERVAL_S = 0.5
_LAYOUT = "\n\t"
_COLUMNS = ("run", "state", "age", "step", "steps/s", "ETA", "KL", "solve rate")
_LEAST_NEEDED = ("steps/s", "ETA", "solve rate", "KL", "age", "step")
"""Columns that a narrow terminal does without, in the order in which they go."""
_LEFT_COLUMNS = ("run", "state", "note")
_MIN_NOTE_WIDTH = 40
_STYLES = {
    RunState.DONE: "green",
    RunState.RUNNING: "cyan",
    RunState.FAILED: "bold red",
    RunState.LOST: "red",
    RunState.STALLED: "yellow",
    RunState.CANCELLED: "yellow",
    RunState.UNKNOWN: "yellow",
}


def status_command(*, sweep: str, target: str | None, as_json: bool) -> int:
    """Print one row per run: state and its age, step, speed, KL, solve rate."""
    paths = find_planned(sweep)
    states = select_runs(paths, read_states(paths), target)
    if as_json:
        sys.stdout.write(to_json([_to_json(status) for status in states]))
        return 0
    console = open_console()
    print_states(states, console)
    counts: dict[str, int] = {}
    for status in states:
        counts[status.state] = counts.get(status.state, 0) + 1
    summary = ", ".join(f"{number} {state}" for state, number in counts.items())
    console.print(f"{paths.name}: {len(states)} runs: {summary}", markup=False)
    return 0


def logs_command(*, sweep: str, target: str, tail: int, follow: bool) -> int:
    """Print the last lines of a run's log to stdout, and go on with --follow."""
    run = find_run(find_planned(sweep), target)
    path = log_path(run)
    position = path.stat().st_size if path.exists() else 0
    for line in tail_log(run, tail):
        print(line)
    if follow:
        _follow(run, position)
    return 0


def why_command(*, sweep: str, target: str, as_json: bool) -> int:
    """Print what is known of one run's state on one screen."""
    paths = find_planned(sweep)
    run = find_run(paths, target)
    found = explain(run)
    if as_json:
        sys.stdout.write(
            to_json(
                {
                    "status": _to_json(found.status),
                    "ending": found.ending,
                    "traceback": found.traceback,
                    "tail": list(found.tail),
                    "log": None if found.log is None else str(found.log),
                }
            )
        )
        return 0
    status = found.status
    print(f"{paths.name} {status.run_id}: {status.state}{_age(status)}")
    if status.reason:
        print(f"reason: {one_line(status.reason)}")
    if status.hint:
        print(f"hint: {one_line(status.hint)}")
    if found.exit is not None:
        spent = format_duration(found.exit.end - found.exit.start)
        print(
            f"attempt {found.exit.attempt}: {describe_exit(found.exit)} after {spent} at step"
            f" {found.exit.last_step or 0} of {found.exit.max_steps}"
            f" on {', '.join(found.exit.nodes)}"
        )
    if found.traceback:
        print(f"\n{printable(found.traceback, keep=_LAYOUT)}")
    elif found.tail and status.state is not RunState.DONE:
        print("\nlast lines of the log:")
        for line in found.tail:
            print(f"  {printable(line, keep=_LAYOUT)}")
    if found.log is not None:
        print(f"\nlog: {printable(str(found.log))}")
    return 0


def select_runs(paths: SweepPaths, states: list[RunStatus], target: str | None) -> list[RunStatus]:
    """Return the runs that `target` names (all without one). Raises UsageError for none."""
    arm, seed = split_target(target)
    chosen = [
        s for s in states if (arm is None or s.arm == arm) and (seed is None or s.seed == seed)
    ]
    if not chosen:
        arms = sorted({s.arm for s in states})
        if arm not in arms:
            raise UsageError(
                f"sweep `{paths.name}` has no arm `{arm}`",
                did_you_mean(str(arm), arms, what="arms"),
            )
        seeds = ", ".join(str(s.seed) for s in states if s.arm == arm)
        raise UsageError(f"arm `{arm}` of `{paths.name}` has no seed {seed}", f"seeds: {seeds}")
    return chosen


def find_run(paths: SweepPaths, target: str) -> RunPaths:
    """Return the folder of the one run that `target` names. Raises UsageError."""
    arm, seed = split_target(target)
    if seed is None:
        plan = read_record(PlanRecord, paths.plan)
        raise UsageError(
            f"`{target}` names an arm, want one run", f"write `{target}/{plan.seeds[0]}`"
        )
    [status] = select_runs(paths, read_states(paths), target)
    assert arm is not None
    return paths.run(arm, status.seed)


def print_states(states: Sequence[RunStatus], console: Console) -> None:
    """Print one row per run. Where a note has no room beside its row, it stands below it."""
    from rich.measure import Measurement  # noqa: PLC0415 (only where a table is shown)
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def width(names: Sequence[str]) -> int:
        unbounded = console.options.update(max_width=1_000_000)
        return Measurement.get(console, unbounded, _status_table(states, names)).maximum

    notes = [_note(status) for status in states]
    longest = max((min(len(note), _MIN_NOTE_WIDTH) for note in notes), default=0)
    names = list(_COLUMNS)
    if width(names) + len("  ") + longest <= console.width:
        console.print(_status_table(states, [*names, "note"]))
        return
    for name in _LEAST_NEEDED:
        if width(names) <= console.width:
            break
        names.remove(name)
    with console.capture() as capture:
        console.print(_status_table(states, names))
    for line, note in zip(capture.get().splitlines(), ["", *notes], strict=True):
        console.file.write(f"{line.rstrip()}\n")
        if note:
            console.print(Padding(Text(note), (0, 0, 0, 2), expand=False))


def _status_table(states: Sequence[RunStatus], names: Sequence[str]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        side: Literal["left", "right"] = "left" if name in _LEFT_COLUMNS else "right"
        table.add_column(name, justify=side, no_wrap=name != "note")
    for status in states:
        cells = _cells(status)
        style = {"state": _STYLES.get(status.state, "")}
        table.add_row(*(Text(cells[name], style.get(name, "")) for name in names))
    return table


def _cells(s: RunStatus) -> dict[str, str]:
    has_steps = s.step is not None or s.max_steps is not None
    return {
        "run": printable(f"{s.arm}/{s.seed}"),
        "state": str(s.state),
        "age": "" if s.since is None else format_duration(max(0.0, time.time() - s.since)),
        "step": format_step(s.step or 0, s.max_steps) if has_steps else "",
        "steps/s": _number(s.steps_per_s if s.state in LIVE_STATES else None, ".1f"),
        "ETA": "" if s.eta_s is None else format_duration(s.eta_s),
        "KL": _number(s.mismatch_kl, ".3g"),
        "solve rate": _number(s.solve_rate, ".3f"),
        "note": _note(s),
    }


def _note(status: RunStatus) -> str:
    reason = one_line(status.reason)
    return reason if status.is_planned else f"left the plan; {reason}".rstrip("; ")


def _follow(run: RunPaths, position: int) -> None:
    """Print what is added to the log until the run is no longer live."""
    while True:
        [status] = [s for s in read_states(run.sweep) if (s.arm, s.seed) == (run.arm, run.seed)]
        path = log_path(run)
        if path.exists() and path.stat().st_size > position:
            with path.open("rb") as file:
                file.seek(position)
                added = file.read()
            position += len(added)
            sys.stdout.write(added.decode(errors="replace"))
            sys.stdout.flush()
        elif status.state not in LIVE_STATES:
            return
        time.sleep(_FOLLOW_INTERVAL_S)


def _to_json(status: RunStatus) -> dict[str, Any]:
    plain = dataclasses.asdict(status)
    return {
        key: finite_or_text(value) if isinstance(value, float) else value
        for key, value in {**plain, "eta_s": status.eta_s}.items()
    }


def _age(status: RunStatus) -> str:
    if status.since is None:
        return ""
    return f" for {format_duration(max(0.0, time.time() - status.since))}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
