from __future__ import annotations

from typing import Any

from analysis.report.method import describe_method
from analysis.report.tables import event_table, verdict_table
from harness.records.model import AnalysisSpec, to_record

SHARE = {"k": 2, "n": 12, "share": 0.2, "low": 0.0, "high": 0.5}


def make_arm(name: str, *, num_effective: int) -> dict[str, Any]:
    """An arm of a report.json, as far as the tables read it; the numbers are invented."""
    event = {
        "steps": [20, 20, 21],
        "censored_at": [400],
        "num_undecidable": 0,
        "share": SHARE,
        "num_done": 12,
    }
    mean = {"n": 12, "mean": 0.5, "low": 0.4, "high": 0.6}
    return {
        "name": name,
        "is_baseline": name == "none",
        "num_done": 12,
        "num_planned": 12,
        "logged": ["solve_rate", "solve_rate_effective"],
        "metrics": {
            "solve_rate": mean,
            "solve_rate_effective": {**mean, "n": num_effective, "mean": 0.866},
        },
        "median_peak_kl": None,
        "exploded": event,
        "collapsed": event,
    }


def make_report(*arms: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "baseline": "none",
        "arms": list(arms),
        "comparisons": [],
        "analysis": {"alpha": 0.05},
        "judged_to": 400,
        **more,
    }


def test_an_effective_solve_rate_of_few_runs_says_of_how_many() -> None:
    report = make_report(make_arm("none", num_effective=1), make_arm("ipo", num_effective=12))
    cells = [row[3].lines for row in verdict_table(report).rows]
    assert cells[0][-1] == "effective 0.866 (1 of 12)"
    assert cells[1][-1] == "effective 0.866"


def test_steps_of_separate_runs_are_listed_and_not_made_a_range() -> None:
    rows = event_table(make_report(make_arm("none", num_effective=12))).rows
    assert rows[0][3].lines == ("20, 20, 21",)


def test_holms_family_leaves_out_metrics_that_no_run_logged_and_exploratory_ones() -> None:
    items = [
        {"detail": detail, "is_exploratory": is_exploratory}
        for detail, is_exploratory in (
            ("", False),
            ("MDE 0.1", False),
            ("not logged", False),
            ("MDE 0.2", True),
        )
    ]
    report = make_report(
        analysis=to_record(AnalysisSpec()),
        window=None,
        pairing="seed",
        bootstrap={"seed": 1, "num_replicates": 10},
        cost_target=None,
    ) | {"comparisons": items}
    terms = dict(describe_method(report))
    assert "for all 2 comparisons" in terms["Several comparisons"]
