"""From what prime-rl printed to one line that says why it refused a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.runner.failure import last_error, shorten
from harness.runner.refusal import explain_box, explain_keys, find_boxed

_UV_ERROR = re.compile(r"error: (?P<text>.+)")
_UV_CAUSE = re.compile(r"\s*Caused by: (?P<text>.+)")


def explain_output(text: str) -> str:
    """Return the line that explains why a program with the output `text` failed; "" for none.

    A list of refused keys, in a box or as a traceback ends with it, becomes `key: message`.
    """
    lines = text.splitlines()
    boxed = find_boxed(lines)
    if boxed:
        return shorten(explain_box(boxed))
    return shorten(explain_keys(lines)) or _uv_error(lines) or last_error(text)


def _uv_error(lines: Iterable[str]) -> str:
    """Return what uv says when it can't start a program, with its causes."""
    said: list[str] = []
    for line in lines:
        error = _UV_ERROR.fullmatch(line)
        cause = _UV_CAUSE.fullmatch(line)
        if error is not None:
            said = [error["text"]]
        elif cause is not None and said:
            said.append(cause["text"])
    return shorten(": ".join(said))
