"""The tables of how the numbers came about, made from report.json."""

from __future__ import annotations

from typing import Any

from analysis.report.cells import Cell, Column, Report, Table, make_arm_cell, make_cell
from analysis.report.numbers import (
    NONE,
    format_duration,
    format_holders,
    format_number,
    format_time,
)
from analysis.report.stops import judged_runs
from analysis.report.tables import SHOWN_METRICS


def time_table(report: Report) -> Table:
    """When and on what each run worked, and the GPU-hours of runs that held GPUs."""
    has_gpus = any(run["gpu_hours"] for run in report["runs"])
    gpu_columns = (Column("GPU-hours", True), Column("lost", True)) if has_gpus else ()
    columns = (
        Column("arm"),
        Column("seed", True),
        Column("start (UTC)"),
        Column("end (UTC)"),
        Column("wall", True),
        Column("steps/s", True),
        Column("attempts", True),
        *gpu_columns,
        Column("host"),
        Column("processor"),
        Column("error"),
    )
    rows = tuple(
        (
            make_arm_cell(run["arm"]),
            make_cell(str(run["seed"])),
            make_cell(format_time(run["start"])),
            make_cell(format_time(run["end"])),
            make_cell(format_duration(run["wall_s"])),
            make_cell(format_number(run["steps_per_s"])),
            make_cell(str(run["num_attempts"])),
            *(_gpu_cells(run) if has_gpus else ()),
            make_cell(", ".join(run["hosts"]) or NONE),
            make_cell("; ".join(filter(None, run["processors"])) or NONE),
            make_cell(run["error"] or NONE, tone="bad" if run["error"] else ""),
        )
        for run in report["runs"]
    )
    walls = [run["wall_s"] for run in report["runs"]]
    total = sum(wall for wall in walls if isinstance(wall, float))
    note = f"All runs together: {format_duration(total)} of wall time"
    if has_gpus:
        used = sum(run["gpu_hours"] or 0.0 for run in report["runs"])
        lost = sum(run["lost_gpu_hours"] or 0.0 for run in report["runs"])
        note += (
            f", {format_number(used)} GPU-hours over all attempts, {format_number(lost)} of them"
            " on steps that a later attempt made again from an earlier checkpoint"
        )
        unspent = sum(run["unspent_gpu_hours"] or 0.0 for run in report["runs"])
        if unspent:
            note += f"; stop rules kept about {format_number(unspent)} from being spent"
    return Table("time", "Time", columns, rows, f"{note}.", is_folded=True)


def _gpu_cells(run: dict[str, Any]) -> tuple[Cell, Cell]:
    used, lost = run["gpu_hours"], run["lost_gpu_hours"]
    return make_cell(format_number(used)), make_cell(format_number(lost) if lost else NONE)


def cost_table(report: Report) -> Table:
    """What each arm took, and took to come to the target solve rate."""
    has_gpus = any(cost["gpu_hours"] for cost in report["costs"])
    target, runs = report["cost_target"], judged_runs(report)
    columns = (
        Column("arm"),
        *((Column("GPU-hours", True), Column("lost", True)) if has_gpus else ()),
        Column("hours of work", True, "wall-clock time of all attempts of all runs"),
        Column("reached", True, f"{runs} that came to the target"),
        Column("kept", True, "those of them that did not collapse"),
        Column("step", True, f"median over {runs}"),
        Column("tokens", True, f"median over {runs}"),
        Column("hours", True, f"median over {runs}"),
        *((Column("GPU-hours to it", True, f"median over {runs}"),) if has_gpus else ()),
    )
    rows = []
    for cost in report["costs"]:
        rows.append(
            (
                make_arm_cell(cost["arm"]),
                *(_gpu_cells(cost) if has_gpus else ()),
                make_cell(format_number(cost["hours"])),
                make_cell(f"{cost['num_reached']} of {cost['num_runs']}"),
                make_cell(str(cost["num_kept"])),
                make_cell(_whole(cost["median_step"])),
                make_cell(_whole(cost["median_tokens"])),
                make_cell(format_number(cost["median_hours"])),
                *((make_cell(format_number(cost["median_gpu_hours"])),) if has_gpus else ()),
            )
        )
    note = "No arm has a final solve rate yet, so there is no target."
    if target is not None:
        note = (
            f"Target: a windowed mean solve rate of {format_number(target)}, nine tenths of the"
            " highest that an arm ends at. Medians count a run that never came there as beyond all"
            f" others; {NONE} where that is the median, or nothing was recorded. Hours depend on"
            " what else ran on the machine."
        )
    return Table("cost", "What it cost", columns, tuple(rows), note)


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}".removesuffix(".0")


def difference_table(report: Report) -> Table:
    """What differs between runs, undeclared differences first, then what is the same."""
    rows: list[tuple[Cell, ...]] = []
    for item in report["differences"]:
        lines = [f"{text}  ({format_holders(who)})" for text, who in item["values"].items()]
        declared = "declared" if item["is_declared"] else "NOT declared"
        tone = "" if item["is_declared"] else "bad"
        rows.append(
            (
                make_cell(item["area"]),
                make_cell(item["key"]),
                make_cell(*lines),
                make_cell(declared, tone=tone),
            )
        )
    for key, text in report["same"].items():
        rows.append(
            (make_cell("same"), make_cell(key), make_cell(text), make_cell("the same in every run"))
        )
    columns = (Column("area"), Column("key"), Column("values"), Column(""))
    declared_keys = ", ".join(report["may_differ"]) or "nothing"
    note = f"The sweep declares that arms may differ in: {declared_keys}."
    return Table("differences", "What differs between runs", columns, tuple(rows), note)


def metric_table(report: Report) -> Table:
    """What each metric means and which key it was read from."""
    primary = report["analysis"]["primary"]
    rows = []
    for item in report["metrics"]:
        if not item["num_runs"] and item["name"] not in (*primary, *SHOWN_METRICS):
            continue
        better = {"higher": "higher", "lower": "lower", "none": NONE}[item["direction"]]
        keys = item["keys"] or item["problems"] or ["not logged"]
        rows.append(
            (
                make_cell(item["name"]),
                make_cell(*keys, tone="" if item["keys"] else "warn"),
                make_cell(str(item["num_runs"])),
                make_cell(item["unit"] or NONE),
                make_cell(better),
                make_cell(*item["definitions"].values() or [item["definition"]]),
            )
        )
    columns = (
        Column("metric"),
        Column("key"),
        Column("runs", True),
        Column("unit"),
        Column("better"),
        Column("definition"),
    )
    return Table("metrics", "Metrics and keys", columns, tuple(rows), is_folded=True)


def file_table(report: Report) -> Table:
    """The files that the numbers come from."""
    rows = tuple(
        (
            make_cell(file["path"]),
            make_cell(file["format"]),
            make_cell(f"{file['size_bytes']:,}"),
            make_cell(str(file["num_rows"])),
            make_cell(str(file["num_bad_lines"]), tone="warn" if file["num_bad_lines"] else ""),
            make_cell(str(file["num_rows_without_step"])),
            make_cell(str(file["num_duplicates"])),
            make_cell(str(file["num_gaps"]), tone="warn" if file["num_gaps"] else ""),
            make_cell(file["problem"] or file["sha256"], tone="warn" if file["problem"] else ""),
        )
        for file in report["files"]
    )
    columns = (
        Column("file"),
        Column("format"),
        Column("bytes", True),
        Column("rows", True),
        Column("bad lines", True),
        Column("without step", True),
        Column("duplicates", True, "values that repeat a key, step and attempt"),
        Column("gaps", True, "steps missing between the first and the last row"),
        Column("sha256"),
    )
    return Table("files", "Files", columns, rows, is_folded=True)
