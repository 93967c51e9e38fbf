"""harness replay: what masks would have done to recorded tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import tell
from harness.cli.display import open_console
from harness.cli.report import shown
from harness.errors import UsageError
from harness.printable import one_line, printable
from harness.records.layout import is_valid_name, outputs_root

if TYPE_CHECKING:
    from analysis.replay.result import ReplayResult


def replay_command(
    *,
    paths: Sequence[Path],
    rules: Sequence[str],
    curves: Sequence[str],
    columns: str,
    probabilities: bool,
    unstable_ok: bool,
    max_share: float,
    moved: float,
    window_steps: int | None,
    out: Path,
    profile_name: str | None,
    as_json: bool,
) -> int:
    """Replay rules over token records and write every form of the result; return 0.

    Prints the tables and the recommendation, or replay.json with --json, to stdout.
    """
    from analysis.replay import run_replay  # noqa: PLC0415 (numpy and pandas load only here)
    from analysis.replay.report import check_folder  # noqa: PLC0415

    check_folder(out)
    located = [_located(path) for path in paths]
    if profile_name is not None:
        result = _count_on(
            located,
            profile_name,
            rules=rules or None,
            curves=curves or None,
            columns=parse_columns(columns),
            probabilities=True if probabilities else None,
            unstable_ok=unstable_ok,
            max_share=max_share,
            moved=moved,
            window_steps=window_steps,
        )
        return _show(result, out, as_json=as_json)
    with _progress() as advance:
        result = run_replay(
            located,
            rules=rules or None,
            curves=curves or None,
            columns=parse_columns(columns),
            probabilities=True if probabilities else None,
            unstable_ok=unstable_ok,
            max_share=max_share,
            moved=moved,
            window_steps=window_steps,
            progress=advance,
        )
    return _show(result, out, as_json=as_json)


def _show(result: ReplayResult, out: Path, *, as_json: bool) -> int:
    from analysis.replay.report import write_replay  # noqa: PLC0415

    for warning in result.warnings:
        tell(f"warning: {one_line(warning)}")
    written = write_replay(result, out)
    if as_json:
        sys.stdout.write(written.json.read_text(encoding="utf-8"))
    else:
        from analysis.replay.text import render_terminal  # noqa: PLC0415

        text = render_terminal(result, width=open_console().width)
        print(printable(text, keep="\n"), end="", flush=True)
    tell(f"replay: {shown(written.html)}")
    return 0


def _count_on(
    paths: Sequence[Path],
    profile: str,
    *,
    rules: Sequence[str] | None,
    curves: Sequence[str] | None,
    columns: dict[str, str],
    probabilities: bool | None,
    unstable_ok: bool,
    max_share: float,
    moved: float,
    window_steps: int | None,
) -> ReplayResult:
    from analysis.replay import DEFAULT_CURVES, rules_of  # noqa: PLC0415
    from analysis.replay.outcome import result_of  # noqa: PLC0415
    from analysis.replay.requests import parse_curve  # noqa: PLC0415
    from analysis.replay.rules import parse_rule  # noqa: PLC0415
    from analysis.replay.sources import open_tokens, runs_or_files  # noqa: PLC0415
    from harness.cli.replay_on import Question, count_on  # noqa: PLC0415 (the whole of `run`)

    texts = [str(path) for path in paths]
    # What is mistyped or isn't there is met here, before any job starts.
    source = open_tokens(
        texts, columns=columns, probabilities=probabilities, unstable_ok=unstable_ok
    )
    question = Question(
        pieces=tuple(map(tuple, runs_or_files(texts))),
        rules=tuple(parse_rule(text).label for text in rules_of(source.loss, rules)),
        curves=tuple(curves or DEFAULT_CURVES),
        columns=columns,
        probabilities=probabilities,
        unstable_ok=unstable_ok,
        stamp=source.stamp(),
    )
    for text in question.curves:
        parse_curve(text)
    found = count_on(question, profile)
    return result_of(found, window_steps=window_steps, max_share=max_share, moved=moved)


def _located(path: Path) -> Path:
    """Return `path`, or the sweep of that name where there is no such path."""
    sweep = outputs_root() / path
    is_name = len(path.parts) == 1 and is_valid_name(path.name)
    return sweep if is_name and not path.exists() and sweep.is_dir() else path


def parse_columns(text: str) -> dict[str, str]:
    """Return what `--columns trainer=a,inference=b` says.

    Raises:
        UsageError: a part is no pair, or a role is named twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        role, is_given, column = part.partition("=")
        role = role.strip()
        if not is_given or not column:
            raise UsageError(
                f"--columns {part}: want ROLE=COLUMN", "such as --columns trainer=p,inference=q"
            )
        if role in found:
            raise UsageError(f"--columns: `{role}` is named twice", "name one column for it")
        found[role] = column
    return found


@contextmanager
def _progress() -> Iterator[Callable[[int, int | None], None]]:
    """Yield a callback (tokens done, tokens in all or None) that shows a bar on a terminal."""
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text  # noqa: PLC0415

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = f"{task.speed / 1e6:.1f}" if task.speed else "?"
            return Text(f"{task.completed:,.0f} tokens, {rate} M/s")

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=open_console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("replay", total=None)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
