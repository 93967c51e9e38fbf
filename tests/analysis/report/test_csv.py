from __future__ import annotations

import csv
import io
from typing import Any

from analysis import load_sweep
from analysis.report.comparisons_csv import render_comparisons_csv
from analysis.report.model import build_report
from analysis.report.runs_csv import render_runs_csv
from analysis.results import analyze
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_comparison_has_a_line_with_every_field(sweep_maker: MakeSweep) -> None:
    report = build_report(analyze(load_sweep(sweep_maker({"ipo": COLLAPSING, "icepop": HEALTHY}))))
    rows = rows_of(render_comparisons_csv(report))
    assert len(rows) == len(report["comparisons"])
    for row, item in zip(rows, report["comparisons"], strict=True):
        assert row["baseline"] == "ipo"
        for name, value in item.items():
            if isinstance(value, (float, int)) and not isinstance(value, bool):
                assert float(row[name]) == value
            elif isinstance(value, str):
                assert row[name] == value


def test_fields_within_a_field_get_columns_of_their_own() -> None:
    items: list[dict[str, Any]] = [
        {"arm": "a", "iqm": None, "window": [1, 2]},
        {"arm": "b", "iqm": {"low": 0.5}, "window": None},
    ]
    report = {"baseline": "x", "comparisons": items}
    assert render_comparisons_csv(report).splitlines() == [
        "arm,baseline,iqm.low,window",
        'a,x,,"[1,2]"',
        "b,x,0.5,",
    ]


def test_a_report_without_comparisons_still_has_a_heading() -> None:
    [line] = render_comparisons_csv({"baseline": "x", "comparisons": []}).splitlines()
    assert line.startswith("arm,baseline,name,verdict")


def test_a_run_s_line_says_where_and_why_it_ended(sweep_maker: MakeSweep) -> None:
    failed = Behaviour(outcome="failed", ends_at=50)
    report = build_report(analyze(load_sweep(sweep_maker({"ipo": COLLAPSING, "new": failed}))))
    rows = {(row["arm"], row["seed"]): row for row in rows_of(render_runs_csv(report))}
    assert len(rows) == 6
    assert rows[("new", "0")]["error"] == "RuntimeError: <b>synthetic</b> failure"
    assert rows[("new", "0")]["solve_rate"] == ""
    assert rows[("ipo", "1")]["hosts"] == "synthetic-host"
    assert (rows[("ipo", "1")]["exploded"], rows[("ipo", "1")]["exploded_step"]) == ("yes", "40")
