"""How the command line talks: tables to stdout, progress to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.sweep.plan import Progress

_PIPE_WIDTH = 200


def open_console(*, stderr: bool = False) -> Console:
    """Return a rich console; where the output is no terminal, wide and without colours."""
    from rich.console import Console  # noqa: PLC0415 (only where something is shown)

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # as `print` does; rich's own answer is to exit with 1

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return PipeConsole(stderr=stderr, width=width, highlight=False, soft_wrap=False)


@contextmanager
def planning_progress(what: str = "planning") -> Iterator[Progress]:
    """Yield a callback (done, total) that shows a bar on a terminal and nothing elsewhere."""
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(
        console=open_console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
