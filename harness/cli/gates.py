"""--fail-if: predicates over the verdicts of a report decide the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.cli import tell
from harness.printable import one_line

HOLDS = 3
UNDECIDED = 4


def check_gates(
    gates: Sequence[str],
    arms: tuple[str, ...],
    baseline: str,
    replicates: Mapping[str, str] | None = None,
) -> None:
    """Refuse predicates that can't be evaluated, before anything is read or written.

    Args:
        replicates: replicate -> its arm.

    Raises:
        UsageError: one isn't a predicate, or names what doesn't exist.
    """
    if not gates:
        return
    from analysis.gates import check_gate  # noqa: PLC0415 (only where there is one)

    for text in gates:
        check_gate(text, arms, baseline, replicates)


def judge(gates: Sequence[str], report: Mapping[str, Any]) -> int:
    """Say of each predicate what became of it; return 3 where one holds, else 4 where one can't be
    decided, else 0."""
    if not gates:
        return 0
    from analysis.gates import Truth, evaluate_gate  # noqa: PLC0415

    words = {
        Truth.YES: "holds",
        Truth.NO: "does not hold",
        Truth.UNDECIDED: "can't be decided",
    }
    code = 0
    for text in gates:
        answer = evaluate_gate(text, report)
        tell(f"--fail-if {one_line(text)}: {words[answer.truth]} ({one_line(answer.reason)})")
        if answer.truth is Truth.YES:
            code = HOLDS
        elif answer.truth is Truth.UNDECIDED and code == 0:
            code = UNDECIDED
    return code
