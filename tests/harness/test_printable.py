from __future__ import annotations

import pytest

from harness.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 数 \U0001f600", "plain ü 数 \U0001f600"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 back\x08 cr\r", "bell\\x07 back\\x08 cr\\x0d"),
        ("\x1bc\x9b2J", "\\x1bc\\x9b2J"),
        ("\u202ereversed", "\\u202ereversed"),
        ("not text: \udcff", "not text: \\udcff"),
        ("two\nlines", "two\\x0alines"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_kept_characters_are_let_through() -> None:
    assert printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\x0d"


def test_one_line_folds_white_space() -> None:
    assert one_line(" a\n  b\t\x1b[1mc\r\n") == "a b c"
