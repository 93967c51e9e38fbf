from __future__ import annotations

import pytest

from analysis.load import load_sweep
from analysis.report.markdown import MAX_LENGTH, escape, render_markdown
from analysis.report.model import build_report
from analysis.results import analyze
from tests.analysis.conftest import HEALTHY, MakeSweep


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ipo_0.1 [0.2, 5]", "ipo_0.1 [0.2, 5]"),
        ("_a_ *b* `c`", r"\_a\_ \*b\* \`c\`"),
        ("[click](javascript:x)", r"[click\](javascript:x)"),
        ("![x][y]", r"![x\][y]"),
        ("a|b", r"a\|b"),
        ("<img src=x> &amp;", "&lt;img src=x&gt; &amp;amp;"),
        ("two\nlines\r\n# no heading", r"two lines \# no heading"),
        ("back\\slash", r"back\\slash"),
        ("\x1b[31mred \x9b0m", r"\\x1b[31mred \\x9b0m"),
    ],
)
def test_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_a_long_report_fits_a_comment_and_says_which_tables_it_left_out(
    sweep_maker: MakeSweep,
) -> None:
    arms = {f"arm_{place}": HEALTHY for place in range(8)}
    report = build_report(analyze(load_sweep(sweep_maker(arms, seeds=range(20), max_steps=40))))
    text = render_markdown(report, [], "figures")
    assert 20_000 < len(text) <= MAX_LENGTH
    assert "### Files\n\n160 rows, left out here; they stand in report.html." in text
    assert "| **arm_7** |" in text


def test_a_short_report_leaves_nothing_out(sweep_maker: MakeSweep) -> None:
    sweep = load_sweep(sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0, 1)))
    assert "left out here" not in render_markdown(build_report(analyze(sweep)), [], "figures")
