"""How the answer of a power analysis is written: as JSON, as lines and cells, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.barriers import MIN_RUNS
from analysis.drafts import widest
from analysis.metrics import metric_spec
from analysis.power import (
    COLLAPSED,
    MAX_SEEDS,
    MAX_SEEDS_EXACT,
    Design,
    Needed,
    PowerTable,
    Row,
    other_share,
)
from analysis.power_source import Cost
from analysis.report.numbers import NONE, TIMES, format_level, format_number
from analysis.statistics import least_fisher_p
from harness.records.files import finite_or_text

TOO_FEW = "too few"
NOT_FOUND = "none"


@dataclass(frozen=True)
class Answer:
    """What seeds buy in a sweep.

    Attributes:
        own_seeds: how many the sweep declares.
        tables: of the metrics whose noise is known, then of the share of runs that collapse.
        cost: of one seed of all arms; None where nothing tells.
        remarks: what is missing, one sentence each.
    """

    sweep: str
    baseline: str
    own_seeds: int
    design: Design
    tables: tuple[PowerTable, ...]
    cost: Cost | None = None
    remarks: tuple[str, ...] = ()

    def cost_of(self, n: int | None) -> float | None:
        """Return what `n` seeds of all arms take."""
        return None if n is None or self.cost is None else n * self.cost.per_seed


def power_record(answer: Answer) -> dict[str, Any]:
    """Return the whole answer as plain data; a number that is not finite is its name."""
    design = answer.design
    return {
        "sweep": answer.sweep,
        "baseline": answer.baseline,
        "num_arms": design.num_arms,
        "num_seeds": answer.own_seeds,
        "pairing": design.pairing,
        "test": design.test,
        "alpha": design.alpha,
        "power": design.power,
        "family": design.family,
        "levels": list(design.levels),
        "cost": None
        if answer.cost is None
        else {
            "per_seed": answer.cost.per_seed,
            "unit": answer.cost.unit,
            "source": answer.cost.source,
        },
        "tables": [_table_record(answer, table) for table in answer.tables],
        "remarks": list(answer.remarks),
    }


def head_lines(answer: Answer) -> list[str]:
    """Return what is tested, at which levels, against which noise, at which cost."""
    design = answer.design
    strictest = format_level_of(design.levels[1])
    lines = [
        f"{answer.sweep}: {_arms(design.num_arms - 1)} against {answer.baseline}, {design.test},"
        f" alpha {design.alpha:g}, power {design.power:g}",
        f"Holm over {design.family} comparisons ({_arms(design.num_arms - 1)} x"
        f" {design.family // (design.num_arms - 1)}: {', '.join(map(label_of, design.primary))},"
        f" collapse, explosion): at the strictest {strictest}, where nothing else shows",
    ]
    for table in answer.tables:
        if table.spread is not None:
            low, high = table.spread.interval(1 - design.alpha)
            df = table.spread.df
            sure = "" if df is None else f" [{format_number(low)}, {format_number(high)}], df {df}"
            logs = " of logs" if metric_spec(table.name).scale == "ratio" else ""
            lines.append(
                f"noise of {label_of(table.name)}: sd{logs} {format_number(table.spread.sd)}{sure};"
                f" {table.spread.source}"
            )
        elif table.base is not None:
            base = table.base
            sure = "" if base.low == base.high else f" [{base.low:.2f}, {base.high:.2f}]"
            lines.append(f"share that collapses: {base.share:.2f}{sure}; {base.source}")
    if answer.cost is not None:
        cost = answer.cost
        lines.append(
            f"one seed of all {design.runs_per_seed} arms: {format_hours(cost.per_seed)}"
            f" {cost.unit}; {cost.source}"
        )
    return lines


def foot_lines(answer: Answer) -> list[str]:
    """Return the seeds that the asked differences need, and what `too few` means."""
    lines = []
    levels = answer.design.levels
    for table in answer.tables:
        if table.target is None:
            continue
        parts = [
            f"{_seeds_text(answer, table.name, needed)} at {format_level_of(level)}"
            for level, needed in zip(levels, table.needed, strict=True)
        ]
        lines.append(f"{_target_text(table)}: {', '.join(parts)}")
    shown = [ok for table in answer.tables for row in table.rows for ok in row.can_decide]
    if not all(shown):
        words = f"{TOO_FEW}: below {MIN_RUNS} seeds per arm the report decides nothing"
        if any(table.name == COLLAPSED for table in answer.tables):
            reach = " and ".join(
                f"{_fewest_to_reach(level)} at {format_level_of(level)}" for level in levels
            )
            words += f"; shares need {reach}, else not even all against none reaches the level"
        lines.append(words)
    if any(NOT_FOUND in row for _, row in cells(answer)):
        lines.append(
            f"{NOT_FOUND}: not even the largest difference is found with power"
            f" {answer.design.power:g}"
        )
    if any(_is_estimated(table) for table in answer.tables):
        level = format_level(answer.design.alpha)
        lines.append(
            f"[low, high]: the {level} interval of the noise or share, and what it makes of seeds"
        )
    if any(table.base is not None and table.base.share > 0 for table in answer.tables):
        lines.append(
            "where a run of either arm collapses, the report lets the shares decide in place of"
            " the t tests"
        )
    return [*lines, *answer.remarks]


def columns(answer: Answer) -> list[tuple[str, str]]:
    """Return the heads of the table's columns, each in two lines."""
    found = [("seeds", "per arm"), ("runs", "in all")]
    if answer.cost is not None:
        found.append((answer.cost.unit, "in all"))
    for table in answer.tables:
        for place, level in enumerate(answer.design.levels):
            found.append(
                (label_of(table.name), f"{'Holm' if place else 'at'} {format_level_of(level)}")
            )
    return found


def cells(answer: Answer) -> list[tuple[int, list[str]]]:
    """Return the rows of the table, each with its number of seeds."""
    found = []
    for rows in zip(*(table.rows for table in answer.tables), strict=True):
        n = rows[0].n
        row = [str(n), str(n * answer.design.runs_per_seed)]
        if answer.cost is not None:
            row.append(format_hours(n * answer.cost.per_seed))
        for table, item in zip(answer.tables, rows, strict=True):
            row += _difference_cells(table, item)
        found.append((n, row))
    return found


def label_of(name: str) -> str:
    """Return what the quantity of a table is called."""
    return "collapsed" if name == COLLAPSED else metric_spec(name).label


def format_hours(hours: float) -> str:
    """Return `0.040`, `2.40`, `12.3`, `1,234`."""
    return format_number(hours) if hours < 1000 else f"{hours:,.0f}"


def format_level_of(alpha: float) -> str:
    """Return a level as short as it goes."""
    return f"{alpha:.3g}"


def _difference_cells(table: PowerTable, row: Row) -> list[str]:
    return [
        format_difference(table.name, found.shift) if can_decide else TOO_FEW
        for found, can_decide in zip(row.found, row.can_decide, strict=True)
    ]


def format_difference(name: str, value: float) -> str:
    """Return a difference, a ratio with its sign, or that none is possible."""
    if name == COLLAPSED:
        return f"{value:.2f}" if value <= 1 else NOT_FOUND
    metric = metric_spec(name)
    if metric.scale == "ratio":
        return f"{TIMES}{format_number(value)}" if math.isfinite(value) else NONE
    most = widest(metric)
    return format_number(value) if most is None or value <= most else f"beyond {most:g}"


def _is_estimated(table: PowerTable) -> bool:
    if table.base is not None:
        return table.base.low < table.base.high
    return table.spread is not None and table.spread.df is not None


def _target_text(table: PowerTable) -> str:
    assert table.target is not None
    if table.base is not None:
        other = other_share(table.base.share, table.target) or 0.0
        return f"a share collapsed of {other:.2f} instead of {table.base.share:.2f} needs"
    shown = format_difference(table.name, table.target)
    return f"a difference of {shown} in {label_of(table.name)} needs"


def _seeds_text(answer: Answer, name: str, needed: Needed) -> str:
    most = MAX_SEEDS_EXACT if name == COLLAPSED else MAX_SEEDS
    text = _count(needed.n, most)
    if (needed.low, needed.high) != (needed.n, needed.n):
        text += f" [{_count(needed.low, most)}, {_count(needed.high, most)}]"
    cost = answer.cost_of(needed.n)
    spent = (
        "" if answer.cost is None or cost is None else f" ({format_hours(cost)} {answer.cost.unit})"
    )
    return f"{text} seeds per arm{spent}"


def _count(n: int | None, most: int) -> str:
    return f"more than {most:,}" if n is None else f"{n:,}"


def _fewest_to_reach(level: float) -> int:
    """Return the fewest runs per arm of which all against none reach `level`."""
    n = MIN_RUNS
    while least_fisher_p(n, n) >= level:
        n += 1
    return n


def _arms(number: int) -> str:
    return "1 arm" if number == 1 else f"{number} arms"


def _table_record(answer: Answer, table: PowerTable) -> dict[str, Any]:
    levels = answer.design.levels
    spread, base = table.spread, table.base
    ends = None if spread is None else spread.interval(1 - answer.design.alpha)
    return {
        "name": table.name,
        "label": label_of(table.name),
        "scale": "share" if base is not None else metric_spec(table.name).scale,
        "spread": None
        if spread is None or ends is None
        else {
            "sd": spread.sd,
            "low": finite_or_text(ends[0]),
            "high": finite_or_text(ends[1]),
            "df": spread.df,
            "source": spread.source,
        },
        "share": None
        if base is None
        else {"share": base.share, "low": base.low, "high": base.high, "source": base.source},
        "target": table.target,
        "needed": [
            {
                "level": level,
                "seeds": needed.n,
                "low": needed.low,
                "high": needed.high,
                "cost": answer.cost_of(needed.n),
            }
            for level, needed in zip(levels if table.needed else (), table.needed, strict=True)
        ],
        "rows": [
            {
                "seeds": row.n,
                "runs": row.n * answer.design.runs_per_seed,
                "cost": answer.cost_of(row.n),
                "found": _found_records(levels, row),
            }
            for row in table.rows
        ],
    }


def _found_records(levels: Sequence[float], row: Row) -> list[dict[str, Any]]:
    return [
        {
            "level": level,
            "difference": finite_or_text(found.shift),
            "low": finite_or_text(found.low),
            "high": finite_or_text(found.high),
            "can_decide": can_decide,
        }
        for level, found, can_decide in zip(levels, row.found, row.can_decide, strict=True)
    ]
