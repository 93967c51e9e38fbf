"""What report.json says of sweeps in every state; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import load_sweep, render_terminal
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown
from analysis.report.model import build_report
from analysis.report.runs_csv import render_runs_csv
from analysis.results import analyze
from harness.records.files import to_json
from tests.analysis.conftest import COLLAPSING, HEALTHY, MACHINE, SPEC, Behaviour, MakeSweep


def report_of(root: Path) -> dict[str, Any]:
    """Build the report and check that every rendering takes it."""
    report = build_report(analyze(load_sweep(root)))
    to_json(report)
    assert render_markdown(report, [], "figures").startswith("# ")
    assert render_html(report, []).startswith("<!DOCTYPE html>")
    assert render_runs_csv(report).count("\n") == len(report["runs"]) + 1
    assert render_terminal(report)
    return report


def messages(report: Mapping[str, Any], kind: str) -> list[str]:
    return [notice["message"] for notice in report["notices"] if notice["kind"] == kind]


def verdicts(report: Mapping[str, Any]) -> set[str]:
    return {f"{item['verdict']} ({item['detail']})" for item in report["comparisons"]}


def arm_of(report: Mapping[str, Any], name: str) -> dict[str, Any]:
    [arm] = [arm for arm in report["arms"] if arm["name"] == name]
    assert isinstance(arm, dict)
    return arm


def test_one_seed_gives_facts_and_no_verdict(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": COLLAPSING, "icepop": HEALTHY}, seeds=(0,)))
    assert verdicts(report) == {"not decidable (one seed)"}
    assert arm_of(report, "ipo")["collapsed"]["steps"] == [65]
    mean = arm_of(report, "icepop")["metrics"]["solve_rate"]
    assert mean["n"] == 1
    assert (mean["low"], mean["high"]) == (None, None)
    assert report["findings"][-1] == "Every comparison with ipo: not decidable (one seed)."
    assert messages(report, "one_seed")


def test_a_sweep_that_never_started(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": Behaviour(is_started=False), "icepop": HEALTHY}))
    assert arm_of(report, "ipo")["states"] == {"planned": 3}
    assert messages(report, "runs_planned") == [
        "not started, so kept out of means and verdicts: ipo seeds 0-2"
    ]
    assert "incomplete (ipo: 0 of 3 runs finished)" in verdicts(report)


def test_nothing_at_all_to_compare(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": Behaviour(is_started=False)}))
    assert report["findings"] == ["No run has finished: there is nothing to compare yet."]
    assert report["window"] is None
    assert report["comparisons"] == []
    assert report["newest_record"] is None


def test_all_runs_failed_before_they_logged_anything(sweep_maker: MakeSweep) -> None:
    failed = Behaviour(has_metrics=False, outcome="failed", ends_at=1)
    report = report_of(sweep_maker({"ipo": failed, "icepop": failed}, seeds=(0, 1)))
    assert messages(report, "runs_failed") == [
        "failed, so kept out of means and verdicts: ipo seeds 0-1, icepop seeds 0-1; last error: "
        "RuntimeError: <b>synthetic</b> failure"
    ]
    assert messages(report, "no_metrics") == [
        "metrics file missing: ipo seeds 0-1, icepop seeds 0-1"
    ]
    assert report["runs"][0]["error"] == "RuntimeError: <b>synthetic</b> failure"
    assert "&lt;b&gt;synthetic" in render_html(report, [])
    assert messages(report, "no_window") == ["no run has finished, so there are no final means"]


def test_an_unfinished_run_is_shown_and_kept_out(sweep_maker: MakeSweep) -> None:
    report = report_of(
        sweep_maker(
            {
                "ipo": HEALTHY,
                "icepop": lambda seed: Behaviour(
                    ends_at=50 if seed == 2 else None, outcome=None if seed == 2 else "done"
                ),
            },
            seeds=(0, 1, 2, 3),
        )
    )
    assert arm_of(report, "icepop")["num_done"] == 3
    assert arm_of(report, "icepop")["metrics"]["solve_rate"]["n"] == 3
    [run] = [r for r in report["runs"] if r["arm"] == "icepop" and r["seed"] == 2]
    assert (run["state"], run["last_step"], run["metrics"]) == ("unfinished", 50, {})
    assert verdicts(report) == {"incomplete (icepop: 3 of 4 runs finished)"}
    assert all(item["is_interim"] for item in report["comparisons"])
    assert report["window"]["last"] == 120


def test_a_primary_metric_that_is_missing_is_not_logged_never_zero(
    sweep_maker: MakeSweep,
) -> None:
    drops = Behaviour(drops=("mismatch_kl/all/mean",))
    report = report_of(sweep_maker({"ipo": drops, "icepop": drops}))
    [message] = messages(report, "not_logged")
    assert message.startswith("primary metric `mismatch_kl` is not logged; nearest: ")
    assert "mismatch_kl" not in arm_of(report, "ipo")["metrics"]
    assert arm_of(report, "ipo")["exploded"]["share"] is None
    assert "not decidable (not logged)" in verdicts(report)
    assert "not logged" in render_markdown(report, [], "figures")


def test_a_metric_that_one_arm_lacks_is_named(sweep_maker: MakeSweep) -> None:
    drops = Behaviour(drops=("mismatch_kl/all/mean",))
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": drops}))
    assert messages(report, "not_logged") == [
        "primary metric `mismatch_kl` is not logged in icepop seeds 0-2"
    ]
    assert "not decidable (not logged in 3 runs of icepop)" in verdicts(report)


def test_an_unknown_primary_metric_is_not_logged(sweep_maker: MakeSweep) -> None:
    spec = replace(SPEC, primary=("solve_rat",))
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, spec=spec))
    assert messages(report, "not_logged")[0].startswith("primary metric `solve_rat` is not logged")


def test_rules_that_changed_after_data_existed_are_flagged(sweep_maker: MakeSweep) -> None:
    earlier = replace(SPEC, explode_factor=5.0, margin=0.1)
    report = report_of(sweep_maker({"ipo": HEALTHY}, earlier_spec=[earlier]))
    assert messages(report, "analysis_changed") == [
        "the analysis was changed after data existed: `explode_factor`, `margin`; these verdicts "
        "are exploratory"
    ]


def test_whatever_differs_beyond_the_declared_keys_is_a_warning(sweep_maker: MakeSweep) -> None:
    other = Behaviour(machine={**MACHINE, "cpu_model": "Synthetic CPU 2"})
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": other}))
    assert messages(report, "undeclared_difference") == [
        "machine `cpu_model` differs between runs: Synthetic CPU 1 (ipo seeds 0-2); "
        "Synthetic CPU 2 (icepop seeds 0-2)"
    ]


def test_windows_that_are_short_or_overlap_the_baseline_are_named(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": HEALTHY}, max_steps=15))
    assert messages(report, "short_window") == [
        "the final window has 15 steps instead of 20: the finished runs have no more in common"
    ]
    assert messages(report, "window_overlap")
    [exploded, collapsed] = messages(report, "event_not_decidable")
    assert "ends at step 15, before the baseline window is over (ipo seeds 0-2)" in exploded
    assert collapsed.startswith("`collapsed` is not decidable: ")


def test_that_nothing_happened_is_said(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}))
    assert report["findings"][:2] == [
        "The solve rate collapsed in no finished run of any arm.",
        "Mismatch KL exploded in no finished run of any arm.",
    ]
    assert report["notices"] == []
    assert arm_of(report, "ipo")["collapsed"]["censored_at"] == [120, 120, 120]


def test_mixed_keys_are_named(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=30)
    path = root / "runs" / "icepop" / "seed_0" / "trainer" / "metrics.jsonl"
    path.write_text(path.read_text().replace("mismatch_kl/all/mean", "mismatch_kl/mean"))
    assert messages(report_of(root), "mixed_keys") == [
        "`mismatch_kl` comes from different keys in different runs: `mismatch_kl/all/mean`, "
        "`mismatch_kl/mean`"
    ]


def test_paths_in_the_report_do_not_depend_on_where_the_sweep_lies(
    sweep_maker: MakeSweep, tmp_path: Path
) -> None:
    report = report_of(sweep_maker({"ipo": HEALTHY}, seeds=(0,), max_steps=30))
    assert report["files"][0]["path"] == "runs/ipo/seed_0/trainer/metrics.jsonl"
    assert str(tmp_path) not in to_json(report)
