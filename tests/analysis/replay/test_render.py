from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.replay.model import build_record, render_json
from analysis.replay.page import render_page
from analysis.replay.report import check_folder, replay_section, write_replay
from analysis.replay.text import render_markdown, render_terminal
from analysis.replay.tokens import TokenFile
from harness.errors import UsageError
from tests.analysis.replay.made_results import differing_check, made_result

EVIL = "<script>alert(1)</script>\x1b[31m"


def test_a_folder_gets_every_form_and_again_the_same_bytes(tmp_path: Path) -> None:
    result = made_result()
    written = write_replay(result, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert names == {
        "replay.json",
        "replay.md",
        "replay.html",
        "rules.csv",
        "curves.csv",
        "buckets.csv",
        "figures/density.png",
        "figures/density.svg",
        "figures/curve_ipo_eps.png",
        "figures/curve_ipo_eps.svg",
    }
    before = {path: path.read_bytes() for path in written.folder.rglob("*.*")}
    write_replay(result, written.folder)
    assert {path: path.read_bytes() for path in written.folder.rglob("*.*")} == before


def test_a_second_replay_removes_pictures_that_it_does_not_have(tmp_path: Path) -> None:
    write_replay(made_result(), tmp_path)
    write_replay(made_result(density=None), tmp_path)
    assert not (tmp_path / "figures" / "density.png").exists()


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        check_folder(tmp_path)
    for inside in ("notes.txt", "notes.txt/replay"):
        with pytest.raises(UsageError, match="notes.txt` is a file"):
            check_folder(tmp_path / inside)


def test_the_record_holds_every_count_and_its_density_adds_up() -> None:
    result = made_result()
    text = render_json(build_record(result))
    record = json.loads(text)
    assert record["schema_version"] == 1
    assert [rule["num_masked"] for rule in record["rules"]] == [
        rule.num_masked for rule in result.rules
    ]
    density = record["density"]
    assert sum(density["counts"]) == result.num_tokens
    assert len(density["counts"]) == len(density["trainer_bins"]) == len(density["inference_bins"])
    assert record["curves"][0]["num_masked"] == list(result.curves[0].num_masked)
    assert max(len(line) for line in text.splitlines() if "num_masked" in line) > 100
    assert "not what a run under it would do" in record["caveat"]


def test_numbers_that_json_lacks_are_named() -> None:
    assert '"max_kl": "inf"' in render_json(build_record(made_result(max_kl=float("inf"))))


def test_the_terminal_shows_rules_examples_recommendation_and_caveat() -> None:
    text = render_terminal(made_result(), width=100)
    words = " ".join(text.split())
    assert text.startswith("rule ")
    assert "ipo_band:eps=0.3,ratio_low=0.2,ratio_high=5" in text
    assert "icepop, ipo_band" in text
    assert "Recommended: ipo eps = 0.298." in words
    assert words.endswith("not what a run under it would do.")


def test_markdown_and_page_show_the_same_rows() -> None:
    result = made_result()
    markdown, page = render_markdown(result, [], "figures"), render_page(result, [])
    for rule in result.rules:
        assert f"| {rule.num_masked:,} |" in markdown
        assert f">{rule.num_masked:,}</span>" in page
    assert "## Agreement between rules" in markdown


def test_text_of_files_is_escaped_everywhere() -> None:
    files = (TokenFile(EVIL, EVIL, 1, 2, {EVIL: 3}, 0, EVIL),)
    result = made_result(label=EVIL, files=files, warnings=(EVIL,), excluded={EVIL: 3})
    for text in (render_page(result, []), render_markdown(result, [], "figures")):
        assert "<script" not in text
        assert "\x1b" not in text
    assert "\x1b" not in render_terminal(result)


def test_the_page_loads_nothing_runs_nothing_and_its_parts_close() -> None:
    page = render_page(made_result(), list(replay_section(made_result())[1]))
    assert "default-src 'none'" in html.unescape(page)
    assert "script-src" not in page
    assert not re.search(r'(src|href)="(?!data:image/png|#)', page)
    assert page.count("<img alt=") == 2
    _Balance().check(page)


def test_decisions_that_differ_raise_an_alarm_on_the_page() -> None:
    alarm = '<section id="findings" class="box alarm">'
    assert alarm in render_page(made_result(self_check=differing_check()), [])
    assert alarm not in render_page(made_result(), [])


def test_a_section_for_a_sweep_s_report_has_tables_and_figures() -> None:
    tables, figures = replay_section(made_result())
    assert [table.name for table in tables][:3] == ["rules", "examples", "self-check"]
    assert [figure.name for figure in figures] == ["density", "curve_ipo_eps"]


class _Balance(HTMLParser):
    """Checks that what is opened is closed."""

    def check(self, page: str) -> None:
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
