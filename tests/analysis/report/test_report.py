"""Whole reports of synthetic sweeps; figures are drawn, so there are few of these."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis import render_terminal, write_report
from analysis.report import WrittenReport
from analysis.report.numbers import format_metric
from harness.errors import HarnessError, UsageError
from harness.records.layout import SweepPaths
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep, make_sweep

HOSTILE = '<script>alert("x")</script> | `a` [b](c) *d* {{ 7 * 7 }} \N{SNOWMAN} $x_1$'


class Page(HTMLParser):
    """Collects tags with their attributes, and the text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    root = make_sweep(
        tmp_path_factory.mktemp("sweep"),
        {
            "ipo": COLLAPSING,
            "icepop": HEALTHY,
            "kpop": lambda seed: Behaviour(vanishes_at=70, resumes_at=50 if seed == 1 else None),
        },
        seeds=(0, 1, 2, 3),
        question=HOSTILE,
        left=("ppo/seed_0",),
    )
    return write_report(root)


def kinds(report: Mapping[str, Any]) -> set[str]:
    return {notice["kind"] for notice in report["notices"]}


def test_everything_is_written_under_the_names_of_the_contract(written: WrittenReport) -> None:
    paths = SweepPaths(written.json.parent.parent)
    assert written.json == paths.report.json
    assert (written.paths.markdown, written.html) == (paths.report.markdown, paths.report_html)
    found = sorted(str(p.relative_to(paths.report.root)) for p in paths.report.root.rglob("*.*"))
    pictures = ("by_arm", "causes", "curves", "diagnostics")
    assert found == [
        "comparisons.csv",
        "curves.parquet",
        *(f"figures/{name}.{kind}" for name in pictures for kind in ("png", "svg")),
        "report.html",
        "report.json",
        "report.md",
        "runs.csv",
    ]


def test_the_same_records_give_the_same_bytes(written: WrittenReport) -> None:
    before = {path: path.read_bytes() for path in written.json.parent.rglob("*.*")}
    again = write_report(written.json.parent.parent)
    assert {path: path.read_bytes() for path in again.json.parent.rglob("*.*")} == before


def test_the_report_is_the_json_file(written: WrittenReport) -> None:
    assert json.loads(written.json.read_text()) == written.report
    assert written.report["schema_version"] == 2


def test_the_page_needs_nothing_from_outside(written: WrittenReport) -> None:
    page = Page(written.html.read_text())
    [policy] = [str(a["content"]) for _, a in page.tags if a.get("http-equiv")]
    hashed = re.sub(r"'sha256-[A-Za-z0-9+/=]+'", "HASH", policy)
    assert hashed == (
        "default-src 'none'; img-src data:; style-src HASH; script-src HASH; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        if attributes.get("src"):
            assert (tag, str(attributes["src"])[:22]) == ("img", "data:image/png;base64,")
        if attributes.get("href"):
            assert (tag, str(attributes["href"])[:1]) == ("a", "#")
    styles = re.findall(r"<style>(.*?)</style>", written.html.read_text(), flags=re.DOTALL)
    assert not re.search(r"url\(|@import|http", styles[0])


def test_every_image_says_in_words_what_it_shows(written: WrittenReport) -> None:
    images = [attributes for tag, attributes in Page(written.html.read_text()).tags if tag == "img"]
    assert len(images) == 4
    assert all(len(str(image["alt"])) > 40 for image in images)
    assert all(image["alt"] for image in written.report["figures"])


def test_hostile_strings_are_shown_as_they_are(written: WrittenReport) -> None:
    page = written.html.read_text()
    assert page.count("<script") == 2, "the charts and their data"
    assert HOSTILE in Page(page).text
    markdown = written.paths.markdown.read_text()
    assert "<script" not in markdown
    assert r"[b\](c) \*d\*" in markdown


def test_numbers_agree_in_all_renderings(written: WrittenReport) -> None:
    page, markdown = Page(written.html.read_text()).text, written.paths.markdown.read_text()
    terminal = render_terminal(written.report)
    with written.paths.runs_csv.open() as file:
        lines = {(line["arm"], int(line["seed"])): line for line in csv.DictReader(file)}
    for arm in written.report["arms"]:
        text = format_metric("solve_rate", arm["metrics"]["solve_rate"]["mean"])
        assert text in page
        assert text in markdown
        assert text in terminal
    for run in written.report["runs"]:
        line = lines[(run["arm"], run["seed"])]
        assert float(line["solve_rate"]) == run["metrics"]["solve_rate"]["mean"]
        assert line["collapsed"] == run["collapsed"]["state"]
        text = format_metric("solve_rate", run["metrics"]["solve_rate"]["mean"])
        assert text in page
        assert text in markdown


def test_verdicts_events_and_warnings_of_the_sweep(written: WrittenReport) -> None:
    report = written.report
    by_name = {(i["arm"], i["name"]): i for i in report["comparisons"]}
    # The baseline collapsed in all of its runs, which 4 against 4 can't prove among 8 comparisons.
    found = by_name[("icepop", "solve_rate")]
    assert (found["verdict"], found["p"]) == ("not decidable", pytest.approx(2 / 70))
    assert by_name[("icepop", "mismatch_kl")]["verdict"] == "not decidable"
    assert by_name[("icepop", "collapsed")]["p"] == pytest.approx(2 / 70)
    shares = {arm["name"]: arm["collapsed"]["share"]["k"] for arm in report["arms"]}
    assert shares == {"ipo": 4, "icepop": 0, "kpop": 0}
    exploded = {arm["name"]: arm["exploded"]["steps"] for arm in report["arms"]}
    assert exploded["ipo"] == [40, 40, 40, 40]
    assert exploded["kpop"] == [70, 70, 70, 70]
    assert kinds(report) == {"vanished", "superseded", "left", "onset_not_decidable"}
    # The mean of 10 steps is below half of 0.85 once 6 of them are at 0.02.
    assert report["findings"][0] == (
        "The solve rate collapsed in ipo 4 of 4 (from step 65); in no run of icepop, kpop."
    )
    markdown = written.paths.markdown.read_text()
    assert "icepop against ipo: solve rate not decidable (4 v 4 runs can't reach 5 %" in markdown
    assert "on disk, but no longer in the plan, so left out: ppo/seed_0" in markdown


def test_the_method_states_windows_rules_and_keys(written: WrittenReport) -> None:
    text = Page(written.html.read_text()).text
    assert "steps 101 to 120 (20 steps)" in text
    assert "above 20 times its median in the baseline window for 3 consecutive" in text
    assert "paired t test" in text
    assert "train/reverse/all/agent/reward/mean" in text
    assert written.report["files"][0]["sha256"] in text


def test_figures_that_are_no_longer_drawn_are_removed(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(is_started=False)}, seeds=(0,))
    stale = SweepPaths(root).report.figures_dir / "causes.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")
    assert write_report(root).figures == ()
    assert not stale.exists()


def test_progress_is_told_stage_by_stage(sweep_maker: MakeSweep) -> None:
    said: list[str] = []
    write_report(sweep_maker({"ipo": Behaviour(is_started=False)}), progress=said.append)
    assert said[0] == "reading runs"
    assert said[-1] == "writing"


def test_a_folder_that_is_no_sweep_gets_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_is_one_clear_error(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(is_started=False)})
    SweepPaths(root).report.root.write_text("a file stands where the folder should be")
    with pytest.raises(HarnessError, match="can't be written"):
        write_report(root)


def test_the_library_stays_apart_from_composing_and_training(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=25)
    for path in root.rglob("metrics.jsonl"):  # A constant KL is what matplotlib warns of.
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [{**row, "mismatch_kl/all/mean": 1e-3} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = f"""
import sys
import analysis
loaded = {{"numpy", "pandas", "scipy", "matplotlib", "jinja2"}} & set(sys.modules)
assert not loaded, loaded
from pathlib import Path
root = Path({str(root)!r})
analysis.render_terminal(analysis.write_report(root).report)
from analysis.foreign import ArmSource, ComparisonSpec
sources = [ArmSource(arm, str(root / "runs" / arm / "seed_*")) for arm in ("ipo", "icepop")]
written = analysis.compare_runs(sources, ComparisonSpec("ipo"), root.with_name("comparison"))
assert written.report["kind"] == "comparison"
banned = {{"hydra", "omegaconf", "submitit", "torch", "wandb"}} & set(sys.modules)
assert not banned, banned
harness = {{name for name in sys.modules if name.startswith("harness.")}}
allowed = ("harness.records", "harness.errors", "harness.near", "harness.losses")
assert all(name.startswith(allowed) for name in harness), harness
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
