from __future__ import annotations

import pytest

from analysis.report.markdown import escape


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
