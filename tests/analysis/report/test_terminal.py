from __future__ import annotations

import json

from analysis import load_sweep
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown
from analysis.report.model import build_report
from analysis.report.tables import comparison_table
from analysis.report.terminal import render_terminal
from analysis.results import analyze
from harness.records.files import read_json, to_json
from harness.records.layout import SweepPaths
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep


def test_the_summary_has_arms_findings_and_warnings_in_the_given_width(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"ipo": COLLAPSING, "icepop": Behaviour(has_torn_line=True)}, seeds=(0,))
    text = render_terminal(build_report(analyze(load_sweep(root))), width=60)
    lines = text.splitlines()
    assert lines[2].split("  ")[0] == "arm"
    assert [line.split()[:4] for line in lines[3:5]] == [
        ["ipo", "1", "of", "1"],
        ["icepop", "1", "of", "1"],
    ]
    sentences = lines[5:]
    assert all(len(line) <= 60 for line in sentences)
    assert "! icepop/seed_0: 1 unreadable line (line 31)" in sentences
    assert "* Every comparison with ipo: not decidable (one seed)." in sentences


def test_control_characters_reach_neither_the_terminal_nor_a_file(sweep_maker: MakeSweep) -> None:
    root = sweep_maker(
        {"ipo": Behaviour(outcome="failed"), "icepop": HEALTHY},
        seeds=(0,),
        question="\x1b]0;owned\x07 \x1b[2J \x9b31m why?\x1b[0m",
    )
    path = SweepPaths(root).run("ipo", 0).attempt(1).exit
    record = {**read_json(path), "error": "\x1b[41mRuntimeError\r\x08 \udc9b"}
    path.write_text(json.dumps(record))
    report = build_report(analyze(load_sweep(root)))
    renderings = (
        render_terminal(report),
        render_markdown(report, [], "figures"),
        render_html(report, []),
    )
    for text in renderings:
        assert not set(text) & {chr(code) for code in (*range(10), *range(11, 32), 127, 0x9B)}
        assert "x1b[41mRuntimeError" in text
        assert text.encode()
    assert render_terminal(report).splitlines()[0] == (
        r"synthetic_stand_in: \x1b]0;owned\x07 \x1b[2J \x9b31m why?\x1b[0m"
    )
    assert to_json(report).encode()


def test_an_effect_that_cannot_exist_is_not_promised(sweep_maker: MakeSweep) -> None:
    def uneven(seed: int) -> Behaviour:
        return COLLAPSING if seed % 2 else HEALTHY

    root = sweep_maker({"ipo": HEALTHY, "icepop": uneven}, seeds=(0, 1, 2, 3))
    table = comparison_table(build_report(analyze(load_sweep(root))))
    [row] = [row for row in table.rows if row[1].lines == ("solve rate",)]
    assert row[6].lines[0] == "> 1 (paired t)"
    assert row[2].lines == (
        "not decidable (4 v 4 runs can't reach 5 % among 4 comparisons: collapse in 2 of 4 against"
        " 0 of 4, p = 0.429)",
    )
