"""Control characters in text that users and programs wrote, made visible and harmless."""

from __future__ import annotations

import re

# C0 without the newline, delete, C1; what reverses or hides text; halves of surrogate pairs.
_CONTROL = re.compile(
    "[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
    "\\ud800-\\udfff]"
)


def show_controls(text: str) -> str:
    r"""Return `text` with every control character but the newline as an escape such as `\x1b`.

    A terminal then shows it instead of obeying it.
    """
    return _CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
