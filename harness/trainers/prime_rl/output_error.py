"""From what prime-rl printed to one line that says why it refused a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.runner.failure import MAX_ERROR_LENGTH, last_error

MAX_SHOWN = 3

_BOX = re.compile(r"\s*[│┃|] (?P<text>.*?)\s*[│┃|]\s*")
_REFUSED = re.compile(r"\b\d+ validation errors? for \S+")
_COUNT = re.compile(rf".*{_REFUSED.pattern}")
_FLAG = re.compile(r"--(?P<key>[A-Za-z_][\w.\[\]-]*)")
_KEY = re.compile(r"\S+")
_NOTE = re.compile(r"\s*\[type=\w+, input_value=.*?(?:, input_type=\w+)?\]\s*$")
_MORE = re.compile(r"\s*For further information visit .*")
_UV_ERROR = re.compile(r"error: (?P<text>.+)")
_UV_CAUSE = re.compile(r"\s*Caused by: (?P<text>.+)")
_RULE = re.compile(r"[\W_]*")


def names_keys(text: str) -> bool:
    """Whether prime-rl says in `text` which keys it refuses."""
    return _REFUSED.search(text) is not None


def explain_output(text: str) -> str:
    """Return the line that explains why a program with the output `text` failed; "" for none.

    A list of refused keys, in a box or as a traceback ends with it, becomes `key: message`, the
    first MAX_SHOWN of them.
    """
    boxed = [match["text"] for line in text.splitlines() if (match := _BOX.fullmatch(line))]
    lines = boxed or text.splitlines()
    start = next((i for i in reversed(range(len(lines))) if _COUNT.fullmatch(lines[i])), None)
    if start is not None:
        problems = _problems(lines[start + 1 :])
        if problems:
            return _shorten("; ".join(problems[:MAX_SHOWN]) + _more(len(problems) - MAX_SHOWN))
    if boxed:
        return _shorten(" ".join(line.strip() for line in boxed if not _RULE.fullmatch(line)))
    return _uv_error(lines) or last_error(text)


def _problems(lines: Sequence[str]) -> list[str]:
    """Return `key: message` for each refused key: a line with the key, then its message."""
    are_flags = any(_FLAG.fullmatch(line.strip()) for line in lines)
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        flag = _FLAG.fullmatch(line.strip())
        if are_flags and flag is not None:
            found.append((flag["key"].replace("-", "_"), []))
        elif not are_flags and _KEY.fullmatch(line):
            found.append((line, []))
        elif line.strip() and not _MORE.fullmatch(line):
            if not found:
                found.append(("", []))
            found[-1][1].append(_NOTE.sub("", line).strip())
    return [": ".join(filter(None, (key, " ".join(said)))) for key, said in found if said]


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
    return _shorten(": ".join(said))


def _more(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[: MAX_ERROR_LENGTH - 1]}…"
