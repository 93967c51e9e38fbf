"""harness doctor: what works here, what doesn't, and what to do about it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cli import tell
from harness.cli.display import open_console
from harness.doctor.check import Check, Verdict
from harness.doctor.examine import examine
from harness.errors import UsageError
from harness.printable import one_line
from harness.profile import load_profile
from harness.records.files import to_json

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "bold red"}


def doctor_command(*, profile_name: str | None, probe: bool, as_json: bool) -> int:
    """Print one line per check; return 1 where one failed."""
    profile = None if profile_name is None else load_profile(profile_name)
    if probe and (profile is None or profile.type != "slurm"):
        raise UsageError(
            "--probe runs a job on a cluster, and no SLURM profile is named",
            "name one with --on PROFILE",
        )
    checks: list[Check] = []
    console = open_console()
    for check in examine(profile, with_probe=probe, say=tell):
        checks.append(check)
        if not as_json:
            print_check(check, console)
    if as_json:
        sys.stdout.write(to_json([dataclasses.asdict(check) for check in checks]))
    else:
        console.print(summarize(checks), markup=False)
    return 1 if any(check.verdict is Verdict.FAILED for check in checks) else 0


def print_check(check: Check, console: Console) -> None:
    """Print a finding on lines as wide as the terminal, and below it what to do."""
    from rich.text import Text  # noqa: PLC0415 (only where something is shown)

    style = _STYLES[check.verdict]
    lines = [Text.assemble((f"{check.verdict:<7}", style), f"  {check.name:<14}  ")]
    indent = " " * len(lines[0].plain)
    room = max(20, console.width - len(indent))
    lines += [Text(indent) for _ in Text(one_line(check.found)).wrap(console, room)[1:]]
    for line, part in zip(lines, Text(one_line(check.found)).wrap(console, room), strict=True):
        line.append(part.plain.rstrip())
    if check.todo:
        for number, part in enumerate(Text(one_line(check.todo)).wrap(console, room - 3)):
            arrow = "-> " if number == 0 else "   "
            lines.append(Text.assemble(indent, (arrow + part.plain.rstrip(), style)))
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def summarize(checks: Sequence[Check]) -> str:
    """Return how many checks ended how, in one line."""
    counts = {v: sum(check.verdict is v for check in checks) for v in Verdict}
    parts = [f"{counts[Verdict.OK]} ok"]
    if counts[Verdict.WARNING]:
        parts.append(f"{counts[Verdict.WARNING]} to look at")
    if counts[Verdict.FAILED]:
        parts.append(f"{counts[Verdict.FAILED]} failed")
    return ", ".join(parts)
