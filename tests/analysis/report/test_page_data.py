from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from analysis import load_sweep
from analysis.curve import Curve
from analysis.report.html import render_html
from analysis.report.model import build_report
from analysis.report.page_data import build_page_data, expand, survival_panel
from analysis.results import Results, analyze
from analysis.statistics import mean_interval
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep

HOSTILE = '</script><script>alert(1)</script><!-- "&amp;" \x1b[31m'


def with_curves(results: Results, curves: Mapping[tuple[str, int], dict[str, Curve]]) -> Results:
    """The same sweep with other values in the runs that `curves` names."""
    runs = tuple(
        replace(run, curves={**run.curves, **curves.get((run.arm, run.seed), {})})
        for run in results.sweep.runs
    )
    return analyze(replace(results.sweep, runs=runs))


def curve(values: list[float]) -> Curve:
    return Curve(np.arange(1, len(values) + 1), np.array(values))


def panel_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    [panel] = [panel for panel in data["panels"] if panel["name"] == name]
    assert isinstance(panel, dict)
    return panel


def counts(means: Mapping[str, Any]) -> list[int]:
    return [n for length, n in means["n"] for _ in range(length)]


@pytest.fixture
def results(sweep_maker: MakeSweep) -> Results:
    arms = {"ipo": COLLAPSING, "icepop": HEALTHY}
    return analyze(load_sweep(sweep_maker(arms, seeds=(0, 1, 2, 3), max_steps=80)))


def test_panels_are_what_was_logged_in_the_order_of_the_page(results: Results) -> None:
    names = [panel["name"] for panel in build_page_data(results)["panels"]]
    assert names == ["solve_rate", "mismatch_kl", "entropy", "is_masked", "grad_norm", "staleness"]


def test_a_mean_at_a_step_is_that_of_the_statistics_on_the_metric_s_scale(results: Results) -> None:
    data = build_page_data(results)
    for name, scale in (("solve_rate", lambda v: v), ("mismatch_kl", math.log)):
        panel = panel_of(data, name)
        assert expand(panel["columns"]["first"]) == list(range(1, 81))
        values = [run.curves[name].values[29] for run in results.sweep.of_arm("icepop")]
        expected = mean_interval([scale(value) for value in values], 0.05)
        back = math.exp if name == "mismatch_kl" else float
        assert expected.low is not None
        means = panel["means"][1]
        assert means["mean"][29] == pytest.approx(back(expected.mean), rel=1e-5)
        assert means["low"][29] == pytest.approx(back(expected.low), rel=1e-3)
        assert counts(means) == [4] * 80


def test_a_mean_is_drawn_where_half_of_the_runs_have_a_value_and_says_how_many(
    results: Results,
) -> None:
    ends = {0: 80, 1: 60, 2: 60, 3: 30}
    curves = {("icepop", s): {"entropy": curve([1.0 + s] * end)} for s, end in ends.items()}
    means = panel_of(build_page_data(with_curves(results, curves)), "entropy")["means"][1]
    assert counts(means) == [4] * 30 + [3] * 30 + [0] * 20
    assert means["mean"][29] == 2.5
    assert means["mean"][59] == 2.0
    assert means["mean"][60] is None


def test_a_zero_makes_a_geometric_mean_zero_without_an_interval(results: Results) -> None:
    curves = {("icepop", s): {"grad_norm": curve([2.0, 0.0 if s else 2.0])} for s in range(4)}
    means = panel_of(build_page_data(with_curves(results, curves)), "grad_norm")["means"][1]
    assert means["mean"][:2] == [2, 0]
    assert means["low"][:2] == [2, None]


def test_values_that_no_axis_can_hold_are_null(results: Results) -> None:
    curves = {("icepop", 0): {"entropy": curve([1.0, math.nan, math.inf, 1e300, 2.0])}}
    line = panel_of(build_page_data(with_curves(results, curves)), "entropy")["lines"][4]
    assert line["mean"][:5] == [1, None, None, None, 2]


@pytest.mark.parametrize(
    "values",
    [[0.0, 0.0], [1e99, -1e99], [1e-99, 1e99], [math.nan, math.nan], [1e-308, 1e308], [5.0]],
)
def test_extreme_values_give_plain_json(results: Results, values: list[float]) -> None:
    names = ("solve_rate", "mismatch_kl", "entropy", "is_masked", "grad_norm", "staleness")
    curves = {
        ("icepop", seed): {name: curve([(1 + seed) * v for v in values]) for name in names}
        for seed in range(4)
    }
    changed = with_curves(results, curves)
    spec = replace(changed.sweep.plan.analysis, alpha=5e-324)
    plan = replace(changed.sweep.plan, analysis=spec)
    for each in (changed, replace(changed, sweep=replace(changed.sweep, plan=plan))):
        json.dumps(build_page_data(each), allow_nan=False)


def test_long_runs_are_drawn_in_columns_that_keep_every_spike(results: Results) -> None:
    values = np.ones(10_000)
    values[[123, 7_654]] = 50.0, -3.0
    curves = {("icepop", 0): {"entropy": Curve(np.arange(1, 10_001), values)}}
    panel = panel_of(build_page_data(with_curves(results, curves)), "entropy")
    firsts, width = expand(panel["columns"]["first"]), panel["columns"]["width"]
    assert len(firsts) <= 600
    assert width > 1
    line = panel["lines"][4]
    assert max(line["high"]) == 50
    assert min(line["low"]) == -3
    column = line["high"].index(50)
    assert firsts[column] <= 124 < firsts[column] + width
    assert line["mean"][column] == pytest.approx(1 + 49 / width, rel=0.1)


def test_events_stand_with_the_run_and_in_the_panel_that_they_are_of(results: Results) -> None:
    data = build_page_data(results)
    exploded = [e for e in panel_of(data, "mismatch_kl")["events"] if e["kind"] == "exploded"]
    assert exploded == [{"run": run, "kind": "exploded", "step": 40} for run in range(4)]
    collapsed = panel_of(data, "solve_rate")["events"]
    assert [event["kind"] for event in collapsed] == ["collapsed"] * 4
    assert [data["runs"][event["run"]]["seed"] for event in collapsed] == [0, 1, 2, 3]


def test_other_axes_are_there_where_they_were_logged(sweep_maker: MakeSweep) -> None:
    arms = {"ipo": HEALTHY, "icepop": Behaviour(drops=("progress/tokens",))}
    data = build_page_data(analyze(load_sweep(sweep_maker(arms, seeds=(0,), max_steps=400))))
    tokens, missing = data["clocks"]["tokens"]
    assert missing is None
    assert len(tokens["steps"]) <= 150
    assert (tokens["steps"][0], tokens["steps"][-1]) == (1, 400)
    assert tokens["at"] == [576 * step for step in tokens["steps"]]


def test_the_same_results_give_the_same_data_which_is_plain_json(results: Results) -> None:
    data = build_page_data(results)
    assert build_page_data(results) == data
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_nothing_logged_gives_no_panel_and_a_page_without_a_script(sweep_maker: MakeSweep) -> None:
    results = analyze(load_sweep(sweep_maker({"ipo": Behaviour(is_started=False)})))
    data = build_page_data(results)
    assert data["panels"] == []
    page = render_html(build_report(results), [], data)
    assert "<script" not in page
    assert "No run has logged a metric yet." in page


def test_a_survival_curve_holds_from_step_to_step_and_ends_with_its_runs() -> None:
    curve = {
        "steps": [10, 20],
        "share": [0.75, 0.5],
        "at_risk": [4, 3],
        "censored_at": [30, 40],
        "num_runs": 4,
    }
    other = {"steps": [], "share": [], "at_risk": [], "censored_at": [25], "num_runs": 1}
    arms = [{"survival": curve}, {"survival": other}, {"survival": None}, {}]
    panel = survival_panel({"arms": arms, "runs": [{"first_step": 1}, {"first_step": None}]})
    assert panel is not None
    assert expand(panel["columns"]["first"]) == [1, 10, 20, 25, 40]
    first, second, *without = panel["means"]
    assert first["mean"] == [1, 0.75, 0.5, 0.5, 0.5]
    assert counts(first) == [4, 4, 3, 3, 3]
    assert second["mean"] == [1, 1, 1, 1, None]
    assert without == [None, None]
    assert survival_panel({"arms": [{}, {"survival": None}], "runs": []}) is None


class Page(HTMLParser):
    """Collects tags with their attributes, and the text of each script."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.lasttag == "script" and data.strip():
            self.scripts.append(data)


def test_the_page_s_policy_allows_its_own_script_and_style_and_nothing_else(
    results: Results,
) -> None:
    text = render_html(build_report(results), [], build_page_data(results))
    page = Page(text)
    [policy] = [str(a["content"]) for _, a in page.tags if a.get("http-equiv")]
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["default-src"] == "'none'"
    assert parts["script-src"].startswith("'sha256-")
    assert parts["style-src"].startswith("'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in page.tags:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:image/png")), (tag, address)


def test_names_in_the_data_cannot_end_the_script(results: Results) -> None:
    report, data = (
        json.loads(json.dumps(each).replace('"ipo"', json.dumps(HOSTILE)))
        for each in (build_report(results), build_page_data(results))
    )
    text = render_html(report, [], data)
    assert text.count("<script") == 2
    assert text.count("</script") == 2
    embedded = json.loads(Page(text).scripts[0])
    assert embedded["arms"][0]["name"] == HOSTILE.replace("\x1b", r"\x1b")


def test_errors_stand_first_and_links_lead_to_sections(results: Results) -> None:
    report = build_report(results)
    report["notices"] = [
        {"kind": "a", "message": "a mere warning", "severity": "warning"},
        {"kind": "b", "message": "a grave error", "severity": "error"},
        {"kind": "c", "message": "without severity"},
    ]
    text = render_html(report, [], build_page_data(results))
    assert text.index("a grave error") < text.index("a mere warning")
    assert 'class="box alarm"' in text
    page = Page(text)
    anchors = {attributes.get("id") for _, attributes in page.tags}
    links = [str(a["href"])[1:] for tag, a in page.tags if tag == "a"]
    assert len(links) > 8
    assert set(links) <= anchors


def test_an_undeclared_difference_is_marked_and_what_is_the_same_is_folded(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker(
        {"ipo": HEALTHY, "icepop": HEALTHY},
        seeds=(0,),
        extra_config=lambda arm, seed: {"lr": 0.1 if arm == "ipo" else 0.2},
    )
    text = render_html(build_report(analyze(load_sweep(root))), [])
    assert text.count('<tr class="bad">') == 1
    assert text.index("NOT declared") < text.index("The same in every run")
    assert '<section id="differences" class="box alarm">' in text
