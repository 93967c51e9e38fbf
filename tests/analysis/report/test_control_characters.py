from __future__ import annotations

import pytest

from analysis.report.control_characters import show_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("bell\x07 back\x08 delete\x7f", r"bell\x07 back\x08 delete\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\tc\x00", r"a\x0db\x09c\x00"),
        ("two\nlines", "two\nlines"),
        ("right\u202eleft\u2069", r"right\u202eleft\u2069"),
        ("half\udc9b", r"half\udc9b"),
        ("\N{SNOWMAN} \N{LATIN SMALL LETTER E WITH ACUTE} \N{DOG FACE}", None),
    ],
)
def test_control_characters_are_shown_and_nothing_else_changes(
    text: str, shown: str | None
) -> None:
    assert show_controls(text) == (text if shown is None else shown)
