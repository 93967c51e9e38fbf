"""Text of files and programs, made safe to show: it can't steer the terminal."""

from __future__ import annotations

import re
import unicodedata

_TERMINAL_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
)
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cs"})
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They reorder the line that they stand in."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` without terminal sequences, and other control characters as `\x1b`.

    Args:
        keep: control characters to let through, such as `"\n\t"`.
    """
    if text.isprintable():
        return text
    return "".join(
        _escaped(char) if _is_unsafe(char) and char not in keep else char
        for char in _TERMINAL_CODES.sub("", text)
    )


def one_line(text: str) -> str:
    """Return `text` on one line, white space made single spaces, safe to show."""
    return printable(" ".join(_TERMINAL_CODES.sub("", text).split()))


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE_CATEGORIES or char in _DIRECTION_MARKS


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
