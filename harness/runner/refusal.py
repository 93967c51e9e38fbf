"""Reads how programs print that they refuse their configuration: a box, or a list of keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_SHOWN = 3
"""Refused keys that are named."""

_BOX = re.compile(r"\s*[│┃|] (?P<text>.*?)\s*[│┃|]\s*")
_TOP = re.compile(r"\s*[╭┌┏+][─━-].*")
_RULE = re.compile(r"[\W_]*")
_REFUSED = re.compile(r"\b\d+ validation errors? for \S+")
_COUNT = re.compile(rf".*{_REFUSED.pattern}")
_FLAG = re.compile(r"--(?P<key>[A-Za-z_][\w.\[\]-]*)")
_KEY = re.compile(r"\S+")
_NOTE = re.compile(r"\s*\[type=\w+, input_value=.*?(?:, input_type=\w+)?\]\s*$")
_MORE = re.compile(r"\s*For further information visit .*")


def names_keys(text: str) -> bool:
    """Whether `text` says which keys are refused."""
    return _REFUSED.search(text) is not None


def find_boxed(lines: Sequence[str]) -> list[str]:
    """Return what stands in boxes, without their borders."""
    return [match["text"] for line in lines if (match := _BOX.fullmatch(line))]


def find_box(lines: Sequence[str], index: int) -> list[str]:
    """Return what stands in the box around line `index`; nothing where there is none."""
    start = end = index
    while start >= 0 and _BOX.fullmatch(lines[start]):
        start -= 1
    while end < len(lines) and _BOX.fullmatch(lines[end]):
        end += 1
    is_box = start >= 0 and _TOP.fullmatch(lines[start]) is not None
    return find_boxed(lines[start + 1 : end]) if is_box else []


def explain_box(boxed: Sequence[str]) -> str:
    """Return what stands in a box as one line."""
    said = " ".join(line.strip() for line in boxed if not _RULE.fullmatch(line))
    return explain_keys(boxed) or said


def explain_keys(lines: Sequence[str]) -> str:
    """Return `key: message` for the first MAX_SHOWN of the keys that `lines` refuse last; "" where
    they refuse none."""
    start = next((i for i in reversed(range(len(lines))) if _COUNT.fullmatch(lines[i])), None)
    problems = [] if start is None else _problems(lines[start + 1 :])
    more = len(problems) - MAX_SHOWN
    return "; ".join(problems[:MAX_SHOWN]) + (f" (and {more} more)" if more > 0 else "")


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
