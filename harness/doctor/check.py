"""One finding of `harness doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`warning`: sweeps run, but not as well as they could, or not everywhere."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """What was looked at and how it stands.

    Attributes:
        found: one line.
        todo: one line on what to do about it; empty where all is well.
    """

    name: str
    verdict: Verdict
    found: str
    todo: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, Verdict.OK, found)


def warning(name: str, found: str, todo: str) -> Check:
    return Check(name, Verdict.WARNING, found, todo)


def failed(name: str, found: str, todo: str) -> Check:
    return Check(name, Verdict.FAILED, found, todo)
