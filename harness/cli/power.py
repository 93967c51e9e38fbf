"""harness power: seeds per arm against what they detect and what they cost, before a sweep runs."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import tell
from harness.cli.argument_values import MAX_SEED_COUNT
from harness.cli.display import open_console
from harness.cli.report import shown
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.printable import one_line
from harness.profile import load_profile
from harness.records.files import to_json, write_atomic
from harness.sweep.gpu_hours import gpu_hours_of
from harness.sweep.locate import find_planned, find_sweep_file
from harness.sweep.spec import SweepSpec, load_sweep

if TYPE_CHECKING:
    from analysis.power import BaseShare, Design, PowerTable, Spread
    from analysis.power_report import Answer
    from analysis.power_source import Cost, Earlier

_DEFAULT_SEEDS = (*range(2, 13), 16, 24, 32)
_PICTURES = (".png", ".svg")
_COLLAPSED = "collapsed"


def power_command(
    *,
    sweep: str,
    sources: Sequence[str],
    sds: Sequence[str],
    share: float | None,
    targets: Sequence[str],
    power: float,
    seeds: Sequence[int] | None,
    profile_name: str | None,
    gpu_hours_per_run: float | None,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Print what the sweep would detect by its number of seeds; nothing runs."""
    found = find_sweep_file(sweep)
    spec = load_sweep(found.path, found.name)
    num_arms = sum(arm.replicate_of is None for arm in spec.arms)
    if num_arms < 2:
        raise UsageError(f"`{spec.name}` has one arm, so nothing is compared", "add arms to it")
    if plot is not None and (plot.suffix not in _PICTURES or plot.is_dir()):
        raise UsageError(f"--plot {plot}: no file for a picture", "such as power.png or power.svg")
    if plot is not None and not (plot.parent.is_dir() and os.access(plot.parent, os.W_OK)):
        raise UsageError(
            f"--plot {plot}: `{plot.parent}` is no folder that can be written to",
            "name a file in a folder that is there",
        )
    stated = _stated(sds, spec)
    wanted = _targets(targets, spec)
    if not (sources or stated or share is not None):
        raise UsageError(
            "nothing tells the noise",
            "--from RUNS takes it from runs, --sd METRIC=X and --share X state it",
        )
    if profile_name is not None and gpu_hours_per_run is not None:
        raise UsageError("--on and --gpu-hours-per-run both tell the cost", "leave one of them out")
    cost = _stated_cost(spec, profile_name, gpu_hours_per_run)

    from analysis.power import Design  # noqa: PLC0415 (scipy loads only for the answer)
    from analysis.power_report import power_record  # noqa: PLC0415
    from analysis.power_source import read_cost  # noqa: PLC0415
    from analysis.report import quiet_libraries  # noqa: PLC0415

    design = Design(
        num_arms=num_arms,
        num_replicates=len(spec.arms) - num_arms,
        primary=spec.analysis.primary,
        pairing=spec.pairing,
        alpha=spec.analysis.alpha,
        power=power,
    )
    with quiet_libraries():
        earlier = _read(sources, spec)
        answer = _answer(spec, design, earlier, stated, share, wanted, seeds)
        answer = replace(answer, cost=cost or read_cost(earlier, design.runs_per_seed))
        if plot is not None:
            _write_picture(answer, plot)
    if as_json:
        sys.stdout.write(to_json(power_record(answer)))
    else:
        _print(answer)
    if plot is not None:
        tell(f"plot: {shown(plot)}")
    return 0


def _answer(
    spec: SweepSpec,
    design: Design,
    earlier: Sequence[Earlier],
    stated: Mapping[str, float],
    share: float | None,
    targets: Mapping[str, float],
    seeds: Sequence[int] | None,
) -> Answer:
    from analysis.metrics import metric_spec  # noqa: PLC0415
    from analysis.power import collapse_power, metric_power  # noqa: PLC0415
    from analysis.power_report import Answer  # noqa: PLC0415

    own = len(spec.seeds)
    default = {*_DEFAULT_SEEDS, own} if 2 <= own <= MAX_SEED_COUNT else _DEFAULT_SEEDS
    rows = sorted(set(seeds or default))
    tables: list[PowerTable] = []
    remarks = []
    for name in design.primary:
        spread = _spread(name, design, earlier, stated, spec)
        if spread is not None:
            tables.append(metric_power(design, name, spread, rows, targets.get(name)))
        else:
            label = metric_spec(name).label
            remarks.append(f"nothing tells the noise of {label}: --sd {name}=X states it")
    base = _base_share(share, earlier, spec)
    if base is not None:
        difference = targets[_COLLAPSED]
        _check_difference(base.share, difference)
        tables.append(collapse_power(design, base, rows, difference))
    else:
        remarks.append("nothing tells the share of runs that collapse: --share X states it")
    return Answer(
        sweep=spec.name,
        baseline=spec.baseline,
        own_seeds=own,
        design=design,
        tables=tuple(tables),
        remarks=tuple(remarks),
    )


def _spread(
    name: str,
    design: Design,
    earlier: Sequence[Earlier],
    stated: Mapping[str, float],
    spec: SweepSpec,
) -> Spread | None:
    from analysis.power import Spread  # noqa: PLC0415
    from analysis.power_source import read_spread  # noqa: PLC0415

    if name in stated:
        sd = stated[name]
        if design.pairing != "seed":
            return Spread(sd, None, "stated, of the seeds of an arm")
        words = f"the stated {sd:g} of the seeds of an arm, times the root of 2 for differences"
        return Spread(sd * math.sqrt(2), None, words)
    return read_spread(earlier, name, design, spec.analysis) if earlier else None


def _base_share(
    share: float | None, earlier: Sequence[Earlier], spec: SweepSpec
) -> BaseShare | None:
    from analysis.power import BaseShare  # noqa: PLC0415
    from analysis.power_source import read_share  # noqa: PLC0415

    if share is not None:
        return BaseShare(share, share, share, "stated")
    return read_share(earlier, spec.baseline, spec.analysis.alpha) if earlier else None


def _check_difference(share: float, difference: float) -> None:
    from analysis.power import other_share  # noqa: PLC0415

    if other_share(share, difference) is None:
        most = max(share, 1 - share)
        raise UsageError(
            f"--to {_COLLAPSED}={difference:g}: no share lies that far from {share:.3g}",
            f"at most {most:.3g}",
        )


def _read(sources: Sequence[str], spec: SweepSpec) -> list[Earlier]:
    """Return the runs that `--from` names: sweeps of this project, and foreign runs as one more."""
    from analysis.foreign import ArmSource, ComparisonSpec, load_runs  # noqa: PLC0415 (pandas)
    from analysis.load import load_sweep as load_runs_of  # noqa: PLC0415
    from analysis.power_source import summarize_earlier  # noqa: PLC0415

    foreign = [text for text in sources if "=" in text and not Path(text).is_dir()]
    named = [find_planned(text).root for text in sources if text not in foreign]
    folders = {folder.resolve(): folder for folder in named}.values()
    for text in foreign:
        arm, _, source = text.partition("=")
        if not arm or not source:
            raise UsageError(f"--from {text}: want a sweep, or ARM=SOURCE", "as `harness compare`")
    found = [load_runs_of(folder) for folder in folders]
    if foreign:
        arms = [ArmSource(*text.split("=", 1)) for text in foreign]
        comparison = ComparisonSpec(
            baseline=spec.baseline if spec.baseline in {a.arm for a in arms} else arms[0].arm,
            name="foreign runs",
            analysis=spec.analysis,
            min_arms=1,
        )
        found.append(load_runs(arms, comparison))
    return [summarize_earlier(sweep) for sweep in found]


def _stated_cost(
    spec: SweepSpec, profile_name: str | None, gpu_hours_per_run: float | None
) -> Cost | None:
    if profile_name is None and gpu_hours_per_run is None:
        return None
    from analysis.power_source import Cost  # noqa: PLC0415

    num_arms = len(spec.arms)
    if profile_name is None:
        assert gpu_hours_per_run is not None
        source = f"{gpu_hours_per_run:g} GPU-hours per run, as stated"
        return Cost(gpu_hours_per_run * num_arms, "GPU-hours", source)
    profile = load_profile(profile_name)
    planned = gpu_hours_of({a.name: 1 for a in spec.arms}, spec.resources, spec.name, profile)
    state_it = "state it with --gpu-hours-per-run X"
    if planned is None:
        raise UsageError(f"`{profile.name}` is a queue on this machine without limits", state_it)
    if planned.total is None:
        raise UsageError(f"`{profile.name}` doesn't tell GPU-hours: {planned.unknown}", state_it)
    if not planned.total:
        raise UsageError(f"runs hold no GPUs on `{profile.name}`", state_it)
    source = f"the most that one start takes on {profile.name}, to its time limit"
    return Cost(planned.total, "GPU-hours", source)


def _stated(pairs: Sequence[str], spec: SweepSpec) -> dict[str, float]:
    found = {}
    for metric, value, text in _pairs("--sd", pairs, spec.analysis.primary):
        if not value > 0:
            raise UsageError(f"--sd {text}: a standard deviation is above 0", f"--sd {metric}=0.05")
        found[metric] = value
    return found


def _targets(pairs: Sequence[str], spec: SweepSpec) -> dict[str, float]:
    """Return the difference (ratio) to tell the needed seeds of, by metric and for collapses."""
    from analysis.metrics import metric_spec  # noqa: PLC0415
    from analysis.power import DEFAULT_RATIO, DEFAULT_SHARE_DIFFERENCE  # noqa: PLC0415

    primary = spec.analysis.primary
    found = {name: DEFAULT_RATIO for name in primary if metric_spec(name).scale == "ratio"}
    if "solve_rate" in primary and spec.analysis.margin > 0:
        found["solve_rate"] = spec.analysis.margin
    found[_COLLAPSED] = DEFAULT_SHARE_DIFFERENCE
    for metric, value, text in _pairs("--to", pairs, (*primary, _COLLAPSED)):
        is_ratio = metric != _COLLAPSED and metric_spec(metric).scale == "ratio"
        bounds = (0.0, 1.0) if metric == _COLLAPSED else metric_spec(metric).bounds
        is_possible = value > 0 and value != (1 if is_ratio else 0)
        if not is_ratio and None not in bounds:
            is_possible = is_possible and value <= (bounds[1] or 0.0) - (bounds[0] or 0.0)
        if not is_possible:
            kind = "ratio other than 1" if is_ratio else "difference that it can have"
            raise UsageError(
                f"--to {text}: no {kind}", f"--to {metric}={'1.5' if is_ratio else '0.05'}"
            )
        found[metric] = max(value, 1 / value) if is_ratio else value
    return found


def _pairs(option: str, pairs: Sequence[str], known: Sequence[str]) -> list[tuple[str, float, str]]:
    """Return metric, number and text of each `METRIC=NUMBER`."""
    found: list[tuple[str, float, str]] = []
    for text in pairs:
        metric, is_given, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if metric not in known and is_given:
            raise UsageError(
                f"{option} {text}: the sweep judges no `{metric}`",
                did_you_mean(metric, known, what="metrics"),
            )
        if not is_given or not math.isfinite(value):
            raise UsageError(
                f"{option} {text}: want METRIC=NUMBER", f"such as {option} {known[0]}=0.05"
            )
        if metric in [name for name, _, _ in found]:
            raise UsageError(f"{option} {text}: `{metric}` is named twice", "name it once")
        found.append((metric, value, text))
    return found


def _write_picture(answer: Answer, plot: Path) -> None:
    from analysis.power_picture import plot_power  # noqa: PLC0415 (matplotlib)

    png, svg = plot_power(answer)
    write_atomic(plot, png if plot.suffix == ".png" else svg)


def _print(answer: Answer) -> None:
    from rich.table import Table  # noqa: PLC0415 (only where a table is shown)
    from rich.text import Text  # noqa: PLC0415

    from analysis.power_report import cells, columns, foot_lines, head_lines  # noqa: PLC0415

    console = open_console()
    for line in head_lines(answer):
        console.print(Text(one_line(line)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for lines in columns(answer):
        table.add_column("\n".join(lines), justify="right", overflow="fold")
    for n, row in cells(answer):
        is_own = n == answer.own_seeds
        row[0] = f"* {row[0]}" if is_own else row[0]
        table.add_row(*row, style="bold" if is_own else None)
    console.print()
    console.print(table)
    console.print()
    if any(n == answer.own_seeds for n, _ in cells(answer)):
        console.print(Text("*: as the sweep declares"))
    for line in foot_lines(answer):
        console.print(Text(one_line(line)))
