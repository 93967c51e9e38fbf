"""A/A arms. Golden values are computed by hand; whole sweeps are synthetic stand-ins."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.comparison import compare_arms
from analysis.curve import Curve
from analysis.events import Event, EventState
from analysis.gates import Truth, check_gate, evaluate_gate
from analysis.load import load_sweep
from analysis.noise import SeedNoise
from analysis.power import Design
from analysis.replicates import compare_replicates, hold_against_replicates
from analysis.report.comparisons_csv import render_comparisons_csv
from analysis.report.markdown import render_markdown
from analysis.report.model import build_report
from analysis.report.page_data import build_page_data
from analysis.report.style import arm_styles
from analysis.report.tables import change_table, comparison_table, verdict_table
from analysis.report.terminal import render_terminal
from analysis.results import analyze
from analysis.runs import Run, RunState
from analysis.summary import ArmSummary, RunSummary, summarize_arm
from analysis.verdicts import Comparison, Verdict
from harness.errors import UsageError
from harness.records.layout import SweepPaths
from harness.records.model import AnalysisSpec, PlannedRun
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep

SPEC = AnalysisSpec(last_steps=20, margin=0.02, alpha=0.05)
STEPS = np.arange(1, 41)
NO = Event(EventState.NO, None, 40)
YES = Event(EventState.YES, 30, 40)


def make_arm(
    name: str, rates: Sequence[float], kls: Sequence[float] = (), *, collapsed: Event = NO
) -> ArmSummary:
    runs = []
    for seed, rate in enumerate(rates):
        values = {"solve_rate": rate, "mismatch_kl": kls[seed] if kls else 1e-3}
        curves = {metric: Curve(STEPS, np.full(40, value)) for metric, value in values.items()}
        run = Run(PlannedRun(name, seed, "id", 40), RunState.DONE, curves=curves)
        runs.append(RunSummary(run, {}, NO, collapsed, None, None, None))
    return summarize_arm(name, runs, SPEC.alpha)


def compare(
    arms: Sequence[ArmSummary], of: dict[str, str], *, pairing: str = "seed", **options: Any
) -> dict[tuple[str, str], Comparison]:
    """Return the comparisons of arms whose first is the baseline, with those of replicates."""
    spec = options.pop("spec", SPEC)
    base = arms[0].arm
    judged = [arm for arm in arms if arm.arm not in of]
    plain = compare_arms(judged, base, pairing=pairing, spec=spec, noise=options.get("noise"))
    aa = compare_replicates(arms, of, pairing=pairing, spec=spec)
    held = hold_against_replicates(
        plain,
        aa,
        arms,
        base,
        pairing=pairing,
        spec=spec,
        with_noise=options.get("noise") is None,
    )
    return {(item.arm, item.name): item for item in (*held, *aa)}


ARMS = (
    make_arm("base", [0.80, 0.82, 0.84], [1e-3, 1e-3, 1e-3]),
    make_arm("arm", [0.81, 0.83, 0.86], [3e-3, 3e-3, 3e-3]),
    make_arm("again", [0.81, 0.80, 0.85], [2e-3, 1e-3, 1e-3]),
)


def test_a_replicate_is_compared_with_its_arm_by_the_declared_test_and_without_a_verdict() -> None:
    found = compare(ARMS, {"again": "base"})
    aa = found["again", "solve_rate"]
    # Differences .01 -.02 .01: mean 0, sd sqrt(.0006 / 2); t(0.975, 2) = 4.302653.
    half = 4.302653 * math.sqrt(0.0003 / 3)
    assert (aa.test, aa.num_arm, aa.replicate_of) == ("paired t", 3, "base")
    assert aa.effect == pytest.approx(0.0, abs=1e-12)
    assert (aa.low, aa.high) == pytest.approx((-half, half), rel=1e-6)
    assert aa.words == "no detectable difference (A/A)"
    assert aa.p_holm is None
    assert found["again", "collapsed"].words == "no detectable difference (A/A)"
    shifted = make_arm("again", [0.90, 0.92001, 0.94])
    far = compare((ARMS[0], shifted), {"again": "base"})["again", "solve_rate"]
    assert far.verdict is Verdict.NOT_DECIDABLE
    assert far.detail == "A/A apart at 5 %"


def test_replicates_change_neither_family_nor_verdicts() -> None:
    with_replicate = compare(ARMS, {"again": "base"})
    without = compare(ARMS[:2], {})
    for key, item in without.items():
        assert replace(with_replicate[key], replicates=(), noise=None) == item


def test_every_comparison_is_held_against_the_replicates_of_the_baseline() -> None:
    other = make_arm("other", [0.70, 0.71, 0.74])
    found = compare((*ARMS, other), {"again": "base"})
    half = 4.302653 * math.sqrt(0.0003 / 3)
    [beside] = found["arm", "solve_rate"].replicates
    assert (beside.arm, beside.replicate_of) == ("again", "base")
    assert (beside.low, beside.high) == pytest.approx((-half, half), rel=1e-6)
    # Effects .0133 and -.1033 against an interval that ends at .0430; a ratio of 3 against 3.40.
    assert beside.covers
    assert not found["other", "solve_rate"].replicates[0].covers
    assert found["arm", "mismatch_kl"].replicates[0].covers
    assert found["again", "solve_rate"].replicates == ()


def test_a_comparison_is_held_against_the_replicates_of_its_own_arm_alone() -> None:
    other = make_arm("other", [0.70, 0.71, 0.74])
    found = compare((*ARMS, other), {"again": "arm"})
    assert [aa.arm for aa in found["arm", "solve_rate"].replicates] == ["again"]
    assert found["other", "solve_rate"].replicates == ()


def test_without_an_interval_the_effects_themselves_are_compared() -> None:
    arms = [make_arm("base", [0.5]), make_arm("arm", [0.6]), make_arm("again", [0.39])]
    assert compare(arms, {"again": "base"})["arm", "solve_rate"].replicates[0].covers
    arms[2] = make_arm("again", [0.41])
    assert not compare(arms, {"again": "base"})["arm", "solve_rate"].replicates[0].covers


def test_at_one_run_each_the_a_a_difference_is_the_noise() -> None:
    arms = [make_arm("base", [0.5]), make_arm("arm", [0.6]), make_arm("again", [0.53])]
    noise = compare(arms, {"again": "base"})["arm", "solve_rate"].noise
    assert noise is not None
    # Two runs .03 apart: sd .03 / sqrt(2), one degree of freedom; t(0.975, 1) = 12.706205.
    half = 12.706205 * 0.03
    assert noise.sd == pytest.approx(0.03 / math.sqrt(2))
    assert noise.df == 1
    assert (noise.low, noise.high) == pytest.approx((0.1 - half, 0.1 + half), rel=1e-6)
    assert noise.label == "base and replicates (A/A)"


@pytest.mark.parametrize(
    ("pairing", "sd", "df"),
    [
        # Within seeds: .02^2 / 2 and .04^2 / 2 with one degree of freedom each.
        ("seed", math.sqrt((0.0002 + 0.0008) / 2), 2),
        # All four runs about their mean: .50 .60 .52 .56, squares .0059 over three.
        ("none", math.sqrt(0.0059 / 3), 3),
    ],
)
def test_at_two_runs_each_the_spread_of_replicates_is_pooled(
    pairing: str, sd: float, df: int
) -> None:
    arms = [
        make_arm("base", [0.50, 0.60]),
        make_arm("arm", [0.6, 0.72]),
        make_arm("again", [0.52, 0.56]),
    ]
    found = compare(arms, {"again": "base"}, pairing=pairing)
    noise = found["arm", "solve_rate"].noise
    assert noise is not None
    assert noise.sd == pytest.approx(sd)
    assert noise.df == df
    # The KL is the same to the last bit in all runs, which tells nothing of its noise.
    assert found["arm", "mismatch_kl"].noise is None


def test_noise_of_replicates_gives_way_to_more_runs_and_to_noise_of_other_sweeps() -> None:
    assert compare(ARMS, {"again": "base"})["arm", "solve_rate"].noise is None
    arms = [make_arm("base", [0.5]), make_arm("arm", [0.6]), make_arm("again", [0.53])]
    other = {"solve_rate": SeedNoise(0.1, 4, "old")}
    found = compare(arms, {"again": "base"}, noise=other)
    given = found["arm", "solve_rate"].noise
    assert given is not None
    assert given.label == "old"
    assert found["arm", "mismatch_kl"].noise is None


def test_several_replicates_pool_their_noise_once_per_run() -> None:
    arms = [
        make_arm("base", [0.50]),
        make_arm("arm", [0.6]),
        make_arm("again", [0.52]),
        make_arm("third", [0.57]),
    ]
    found = compare(arms, {"again": "base", "third": "base"})
    item = found["arm", "solve_rate"]
    assert [aa.arm for aa in item.replicates] == ["again", "third"]
    assert item.noise is not None
    # .50 .52 .57 about .53: squares .0026 over two degrees of freedom.
    assert item.noise.sd == pytest.approx(math.sqrt(0.0013))
    assert item.noise.df == 2


def test_a_collapse_among_replicates_leaves_their_test_without_a_word() -> None:
    arms = [
        make_arm("base", [0.8, 0.7, 0.8]),
        make_arm("again", [0.1, 0.2, 0.1], collapsed=YES),
    ]
    found = compare(arms, {"again": "base"})
    aa = found["again", "solve_rate"]
    assert aa.words == "not decidable (says little after the collapse of 3 runs)"
    assert found["again", "collapsed"].effect == 1.0


def test_intervals_of_replicates_and_of_their_noise_cover_what_they_promise() -> None:
    # Arms of a seed share half of the variance between seeds; nothing differs beyond chance.
    generator = np.random.default_rng(7)
    num_sweeps, missed_aa, missed_noise = 400, 0, 0
    for number in range(num_sweeps):
        num_seeds = 1 if number % 2 else 3
        shared = generator.normal(size=num_seeds)
        values = 0.5 + 0.02 * (shared + generator.normal(size=(3, num_seeds)))
        arms = [
            make_arm(name, list(row))
            for name, row in zip(("base", "arm", "again"), values, strict=True)
        ]
        found = compare(arms, {"again": "base"})
        aa, noise = found["again", "solve_rate"], found["arm", "solve_rate"].noise
        if num_seeds == 3:
            assert aa.low is not None
            assert aa.high is not None
            missed_aa += not aa.low <= 0 <= aa.high
        else:
            assert noise is not None
            missed_noise += not noise.low <= 0 <= noise.high
    # 5 % of 200 is 10, and a binomial count is above 21 or below 2 once in a thousand.
    assert 2 <= missed_aa <= 21
    assert 2 <= missed_noise <= 21


def kinds(report: dict[str, Any]) -> list[str]:
    return [notice["kind"] for notice in report["notices"]]


def at(level: float) -> Behaviour:
    return Behaviour(level=level)


@pytest.fixture
def report(sweep_maker: MakeSweep) -> dict[str, Any]:
    root = sweep_maker(
        {"base": HEALTHY, "arm": HEALTHY, "again": HEALTHY, "worse": at(0.4)},
        replicates={"again": "base"},
        seeds=(0, 1, 2),
    )
    return build_report(analyze(load_sweep(root)))


def test_the_report_shows_the_a_a_difference_beside_every_other(report: dict[str, Any]) -> None:
    by_arm = {arm["name"]: arm for arm in report["arms"]}
    assert {name: arm["replicate_of"] for name, arm in by_arm.items()} == {
        "base": None,
        "arm": None,
        "again": "base",
        "worse": None,
    }
    aa = next(i for i in report["comparisons"] if (i["arm"], i["name"]) == ("again", "solve_rate"))
    assert aa["replicate_of"] == "base"
    for item in report["comparisons"]:
        if item["arm"] != "again":
            [beside] = item["replicates"]
            assert (beside["arm"], item["replicate_of"]) == ("again", "")
            if item["name"] == "solve_rate":
                assert (beside["low"], beside["high"]) == (aa["low"], aa["high"])
    [sentence] = [text for text in report["findings"] if text.startswith("A/A difference of base")]
    assert "(again): solve rate " in sentence
    assert not any(text.startswith("again against") for text in report["findings"])
    table = comparison_table(report)
    assert table.columns[4].label == "A/A"
    assert table.rows[0][4].lines[0].startswith("again ")
    assert ("solve rate", "A/A of base") in [row[1].lines for row in table.rows]
    [row] = [row for row in verdict_table(report).rows if row[0].arm == "again"]
    assert row[2].lines[0] == "A/A of base"
    [change] = [row for row in change_table(report).rows if row[0].arm == "again"]
    assert (change[1].lines, change[2].lines) == (("replicate of base",), ("noise alone",))
    for text in (render_markdown(report, [], "figures"), render_terminal(report)):
        assert "A/A difference of base" in text


def test_a_warning_names_the_effects_that_replicates_show_too(report: dict[str, Any]) -> None:
    [notice] = [n for n in report["notices"] if n["kind"] == "within_replicate_noise"]
    assert "arm solve rate" in notice["message"]
    assert "(A/A of base: " in notice["message"]
    assert "worse solve rate" not in notice["message"]


def test_replicates_that_repeat_their_arm_to_the_last_bit_are_an_error(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"base": HEALTHY, "again": HEALTHY}, replicates={"again": "base"})
    assert "replicates_repeat" not in kinds(build_report(analyze(load_sweep(root))))
    paths = SweepPaths(root)
    for seed in (0, 2):
        log = paths.run("base", seed).metrics.read_text()
        paths.run("again", seed).metrics.write_text(log)
    found = build_report(analyze(load_sweep(root)))
    [notice] = [n for n in found["notices"] if n["kind"] == "replicates_repeat"]
    assert notice["severity"] == "error"
    assert notice["message"].startswith("again seeds 0, 2 repeat their arm to the last bit")


def test_a_replicate_is_no_undeclared_difference(report: dict[str, Any]) -> None:
    assert "replicate" not in [item["key"] for item in report["differences"]]
    assert "undeclared_difference" not in kinds(report)


def test_holms_family_and_partings_leave_replicates_out(report: dict[str, Any]) -> None:
    # Two arms against the baseline, in two metrics and two events.
    text = render_markdown(report, [], "figures")
    assert "adjusted after Holm for all 8 comparisons" in text
    assert {item["arm"] for item in report["partings"]} == {"arm", "worse"}
    assert "Replicates (A/A):" in text


def test_a_design_pays_for_replicates_and_compares_them_in_no_family() -> None:
    design = Design(2, ("solve_rate", "mismatch_kl"), "seed", 0.05, num_replicates=1)
    assert (design.family, design.runs_per_seed) == (4, 3)


def test_a_table_of_comparisons_names_the_arm_in_the_baselines_place(
    report: dict[str, Any],
) -> None:
    rows = list(csv.DictReader(io.StringIO(render_comparisons_csv(report))))
    assert {(row["arm"], row["baseline"]) for row in rows} == {
        ("arm", "base"),
        ("worse", "base"),
        ("again", "base"),
    }
    assert {row["replicate_of"] for row in rows} == {"", "base"}


def test_gates_judge_the_events_of_a_replicate_and_refuse_a_verdict(
    report: dict[str, Any],
) -> None:
    assert evaluate_gate('collapsed("again")', report).truth is Truth.NO
    assert evaluate_gate('worse("worse", "base")', report).truth is Truth.YES
    arms = ("base", "arm", "again", "worse")
    for text in ('worse("again", "base")', 'not better("base", "again")'):
        with pytest.raises(UsageError, match="compares `again`, a replicate of `base`"):
            check_gate(text, arms, "base", {"again": "base"})
        with pytest.raises(UsageError, match="a replicate of `base`"):
            evaluate_gate(text, report)


def test_a_replicate_of_another_arm_is_never_held_against_the_baseline(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker(
        {"base": HEALTHY, "arm": COLLAPSING, "again": COLLAPSING}, replicates={"again": "arm"}
    )
    report = build_report(analyze(load_sweep(root)))
    rows = list(csv.DictReader(io.StringIO(render_comparisons_csv(report))))
    assert {(row["arm"], row["baseline"]) for row in rows} == {("arm", "base"), ("again", "arm")}
    [aa] = [i for i in report["comparisons"] if (i["arm"], i["name"]) == ("again", "collapsed")]
    assert (aa["effect"], aa["verdict"]) == (0.0, "no detectable difference")
    # Two arms, of which one is the baseline: nothing is left untested among others.
    assert not any("nothing here tests" in text for text in report["findings"])


def test_replicates_are_drawn_in_the_colour_of_their_arm_with_another_dash(
    sweep_maker: MakeSweep,
) -> None:
    arms = ["base", "arm", "again", "other"]
    styles = arm_styles(arms, "base", {"again": "arm"})
    assert list(styles) == arms
    assert styles["again"].color == styles["arm"].color
    assert len({style.dash for style in styles.values()}) == 4
    assert styles["other"] == arm_styles(["base", "arm", "other"], "base")["other"]
    of_baseline = arm_styles(arms, "base", {"again": "base"})
    assert of_baseline["again"].color == of_baseline["base"].color
    assert of_baseline["again"].dash != of_baseline["base"].dash == ()
    root = sweep_maker({"base": HEALTHY, "again": HEALTHY}, replicates={"again": "base"})
    data = build_page_data(analyze(load_sweep(root)))
    assert data["arms"][1] == {"name": "again", "dash": list(of_baseline["again"].dash)}


def test_a_sweep_with_nothing_but_its_baseline_and_a_replicate_has_a_report(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"base": HEALTHY, "again": HEALTHY}, replicates={"again": "base"})
    report = build_report(analyze(load_sweep(root)))
    assert {item["replicate_of"] for item in report["comparisons"]} == {"base"}
    assert "adjusted after Holm for all 0 comparisons" in render_markdown(report, [], "figures")
    assert "within_replicate_noise" not in kinds(report)
