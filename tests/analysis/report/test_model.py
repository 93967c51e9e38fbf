"""What report.json says of sweeps in every state; nothing is drawn here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import load_sweep, render_terminal
from analysis.report.background import time_table
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown
from analysis.report.model import build_report
from analysis.report.runs_csv import render_runs_csv
from analysis.results import analyze
from harness.records.files import read_json, to_json, write_json
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
        "metrics file: missing (ipo seeds 0-1, icepop seeds 0-1)"
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
        "primary metric `mismatch_kl` is not logged in icepop seeds 0-2; nearest: "
        "`mismatch_kl/all/max`"
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
        "are post hoc"
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
    assert "is there up to step 15, not beyond the baseline window (ipo seeds 0-2)" in exploded
    assert collapsed.startswith("`collapsed` is not decidable: ")


def test_that_nothing_happened_is_said(sweep_maker: MakeSweep) -> None:
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}))
    assert report["findings"][:2] == [
        "The solve rate collapsed in no run of any arm.",
        "Mismatch KL exploded in no run of any arm.",
    ]
    # Of the 20 values that an onset is calibrated on, the baseline window holds 16.
    assert {notice["kind"] for notice in report["notices"]} == {"onset_not_decidable"}
    assert arm_of(report, "ipo")["collapsed"]["censored_at"] == [120, 120, 120]


def put(root: Path, arm: str, key: str, value: Callable[[int], float]) -> None:
    """Log `value` of the step as `key` in every run of `arm`."""
    for path in (root / "runs" / arm).rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [{**row, key: value(row["step"])} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def raise_max_steps(root: Path, arm: str, ends_at: int) -> None:
    """Plan the runs of `arm` to end where their metrics do, as an arm that was added later."""
    path = root / "plan.json"
    plan = read_json(path)
    for run in plan["runs"]:
        if run["arm"] == arm:
            run["max_steps"] = ends_at
    write_json(path, plan)


def test_arms_are_judged_over_the_steps_that_all_of_them_have(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": COLLAPSING, "kpop": Behaviour(ends_at=38)}, seeds=(0, 1, 2))
    raise_max_steps(root, "kpop", 38)
    report = report_of(root)
    assert (report["judged_to"], report["window"]["last"]) == (38, 38)
    assert messages(report, "steps_left_out") == [
        "steps after 38 are left out of events, peaks and final means, as not every finished run "
        "has them: ipo seeds 0-2 (to step 120)"
    ]
    assert report["findings"][1] == (
        "Mismatch KL exploded in no run of any arm (judged up to step 38, which every arm reached)."
    )
    for name in ("ipo", "kpop"):
        assert arm_of(report, name)["exploded"]["censored_at"] == [38, 38, 38]
        assert arm_of(report, name)["median_peak_kl"] < 2e-3
    assert ">38" in render_markdown(report, [], "figures")
    assert "of finished runs up to step 38." in render_markdown(report, [], "figures")


def test_the_folder_of_another_arm_gives_no_verdict(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": COLLAPSING, "icepop": HEALTHY}, seeds=(0, 1, 2, 3))
    shutil.rmtree(root / "runs" / "icepop")
    shutil.copytree(root / "runs" / "ipo", root / "runs" / "icepop")
    report = report_of(root)
    assert messages(report, "runs_foreign") == [
        "the folder holds another run (run.json says arm `ipo`), so it counts as not done: icepop "
        "seeds 0-3"
    ]
    assert verdicts(report) == {"incomplete (icepop: 4 of 4 runs belong to another plan)"}
    icepop = arm_of(report, "icepop")
    assert (icepop["states"], icepop["num_done"], icepop["metrics"]) == ({"foreign": 4}, 0, {})
    assert icepop["exploded"]["share"] is None
    assert {item["key"] for item in report["differences"]} == set()


def test_a_baseline_window_that_holds_the_explosion_is_named(sweep_maker: MakeSweep) -> None:
    early = Behaviour(explodes_at=12)
    report = report_of(sweep_maker({"ipo": HEALTHY, "icepop": early}))
    assert arm_of(report, "icepop")["exploded"]["steps"] == []
    assert messages(report, "baseline_explosion") == [
        "baseline steps 5-20 hold an event (mismatch KL explodes there already), so what is "
        "measured against them is understated: icepop seeds 0-2"
    ]


HUGE: Mapping[str, Callable[[int], float]] = {
    "constant": lambda step: 1e308,
    "alternating": lambda step: 1e308 if step % 2 else 1e-3,
    "exploding": lambda step: 1e308 if step > 60 else 1e-3,
    "beyond floats": lambda step: 10**400,
    "tiny": lambda step: 5e-324,
}


@pytest.mark.parametrize("pairing", ["seed", "none"])
@pytest.mark.parametrize("shape", HUGE)
def test_extreme_values_give_a_report(sweep_maker: MakeSweep, shape: str, pairing: str) -> None:
    spec = replace(SPEC, primary=("solve_rate", "mismatch_kl", "entropy", "loss"))
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, spec=spec, pairing=pairing)
    put(root, "icepop", "mismatch_kl/all/mean", HUGE[shape])
    put(root, "icepop", "entropy/all/mean", HUGE[shape])
    put(root, "icepop", "loss/mean", HUGE[shape])
    put(root, "ipo", "loss/mean", lambda step: -HUGE[shape](step))
    report = report_of(root)
    assert json.loads(to_json(report)) == report


def test_numbers_beyond_floats_are_called_not_finite(sweep_maker: MakeSweep) -> None:
    spec = replace(SPEC, primary=("loss",))
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, spec=spec)
    put(root, "icepop", "loss/mean", lambda step: 1.7e308)
    put(root, "ipo", "loss/mean", lambda step: -1.7e308)
    report = report_of(root)
    [item] = [item for item in report["comparisons"] if item["name"] == "loss"]
    assert (item["effect"], item["low"], item["p"]) == ("inf", "nan", None)
    assert "not decidable (the differences are beyond the range of floats)" in verdicts(report)
    assert "| not finite [not finite, not finite] |" in render_markdown(report, [], "figures")
    assert arm_of(report, "ipo")["metrics"]["loss"]["mean"] == pytest.approx(-1.7e308)


def test_the_smallest_alpha_gives_a_report_that_finds_nothing(sweep_maker: MakeSweep) -> None:
    spec = replace(SPEC, alpha=1e-300)
    report = report_of(sweep_maker({"ipo": COLLAPSING, "icepop": HEALTHY}, spec=spec))
    [solve_rate] = [i for i in report["comparisons"] if i["name"] == "solve_rate"]
    assert (solve_rate["low"], solve_rate["high"]) == (-1.0, 1.0)
    assert solve_rate["verdict"] == "not decidable"
    assert arm_of(report, "icepop")["metrics"]["solve_rate"]["high"] == 1.0


def test_a_finding_says_that_its_interval_is_before_holm_where_they_disagree(
    sweep_maker: MakeSweep,
) -> None:
    key = "train/reverse/all/agent/reward/mean"
    root = sweep_maker({"ipo": HEALTHY, "weak": HEALTHY, "same": HEALTHY}, seeds=(0, 1, 2, 3))
    for seed, below in enumerate((0.10, 0.06, 0.12, 0.04)):
        for arm, level in (("ipo", 0.9), ("weak", 0.9 - below), ("same", 0.9 - 0.1 * below)):
            path = root / "runs" / arm / f"seed_{seed}" / "trainer" / "metrics.jsonl"
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps({**row, key: level}) + "\n" for row in rows))
    report = report_of(root)
    # Mean -.08, sd .0365, t = -4.38 on 3 degrees of freedom: p = .022, times 8 comparisons.
    # t(0.975, 3) = 3.1824 gives +-.0581.
    [weak] = [text for text in report["findings"] if text.startswith("weak")]
    assert "-0.080 [-0.138, -0.022] (95% interval before Holm), p = 0." in weak
    assert weak.count("before Holm") == 1
    [same] = [text for text in report["findings"] if text.startswith("same")]
    assert "solve rate equivalent within 0.02" in same
    assert "before Holm" not in same
    assert "Intervals (95%) are before Holm" in render_markdown(report, [], "figures")


def test_mixed_keys_are_named(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=30)
    path = root / "runs" / "icepop" / "seed_0" / "trainer" / "metrics.jsonl"
    path.write_text(path.read_text().replace("/all/agent/reward/mean", "/all/reward/mean"))
    assert messages(report_of(root), "mixed_keys") == [
        "`solve_rate` comes from different keys in different runs: "
        "`train/reverse/all/agent/reward/mean`, `train/reverse/all/reward/mean`"
    ]


def test_mixed_definitions_are_an_error_and_are_never_compared(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0, 1, 2), max_steps=60)
    for path in (root / "runs" / "icepop").glob("*/trainer/metrics.jsonl"):
        path.write_text(path.read_text().replace("mismatch_kl/all/mean", "mismatch_kl/mean"))
    report = report_of(root)
    [notice] = [n for n in report["notices"] if n["kind"] == "mixed_definitions"]
    assert notice["severity"] == "error"
    assert "`mismatch_kl` means different things in different runs" in notice["message"]
    assert "then over sequences: icepop seeds 0-2" in notice["message"]
    [found] = [item for item in report["comparisons"] if item["name"] == "mismatch_kl"]
    assert (found["verdict"], found["effect"]) == ("not decidable", None)
    assert found["detail"] == "two definitions"


def test_paths_in_the_report_do_not_depend_on_where_the_sweep_lies(
    sweep_maker: MakeSweep, tmp_path: Path
) -> None:
    report = report_of(sweep_maker({"ipo": HEALTHY}, seeds=(0,), max_steps=30))
    assert report["files"][0]["path"] == "runs/ipo/seed_0/trainer/metrics.jsonl"
    assert str(tmp_path) not in to_json(report)


def test_gpu_hours_count_all_attempts_and_what_was_made_again(sweep_maker: MakeSweep) -> None:
    # Two attempts of 60 s with 2 GPUs each; the first came to step 36, the second began at 31.
    resumed = Behaviour(resumes_at=31, gpus=("0", "1"))
    root = sweep_maker({"none": HEALTHY, "ipo": resumed}, seeds=(0,))
    report = report_of(root)
    none, ipo = sorted(report["runs"], key=lambda run: str(run["arm"]), reverse=True)
    assert (none["gpu_hours"], none["lost_gpu_hours"]) == (0.0, 0.0)
    assert ipo["gpu_hours"] == pytest.approx(2 * 60 * 2 / 3600)
    assert ipo["lost_gpu_hours"] == pytest.approx(60 * 2 / 3600 * 6 / 36)
    shown = time_table(report)
    names = [column.label for column in shown.columns]
    assert names[names.index("attempts") + 1 :][:2] == ["GPU-hours", "lost"]
    assert "0.0667 GPU-hours over all attempts, 0.00556 of them on steps" in shown.note


def test_a_sweep_without_gpus_shows_no_gpu_hours(sweep_maker: MakeSweep) -> None:
    shown = time_table(report_of(sweep_maker({"none": HEALTHY, "ipo": HEALTHY})))
    assert "GPU-hours" not in [column.label for column in shown.columns]
    assert "GPU-hours" not in shown.note


def test_a_collapse_after_the_last_common_step_is_an_error_and_forbids_a_verdict(
    sweep_maker: MakeSweep,
) -> None:
    def short_or_healthy(seed: int) -> Behaviour:
        return Behaviour(ends_at=70) if seed == 0 else HEALTHY

    arms = {"ipo": short_or_healthy, "icepop": Behaviour(collapses_at=90)}
    root = sweep_maker(arms, seeds=(0, 1, 2, 3))
    plan = json.loads((root / "plan.json").read_text())
    for run in plan["runs"]:
        run["max_steps"] = 70
    (root / "plan.json").write_text(json.dumps(plan))
    report = report_of(root)
    assert report["judged_to"] == 70
    [notice] = [n for n in report["notices"] if n["kind"] == "late_collapse"]
    assert notice["severity"] == "error"
    assert (
        "after step 70, the last that is judged, from step 95 on: icepop seeds 0-3"
        in (notice["message"])
    )
    [found] = [i for i in report["comparisons"] if i["name"] == "solve_rate"]
    assert found["verdict"] == "not decidable"
    assert found["detail"] == "4 runs of icepop collapse after the last common step"


def test_values_that_are_not_finite_are_named_wherever_they_stand(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0, 1, 2))
    path = root / "runs" / "icepop" / "seed_1" / "trainer" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[40:42]:
        row["mismatch_kl/all/mean"] = "NaN"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert messages(report_of(root), "nonfinite") == [
        "mismatch KL is not finite at 2 steps (first: 41): icepop seed 1"
    ]
