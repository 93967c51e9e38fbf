"""The command line: `harness VERB SWEEP [ARM[/SEED]]`. Start-up imports nothing heavy."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from harness.errors import HarnessError

INTERRUPTED = 130


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        _open_standard_streams()
        code = run_command(sys.argv[1:])
        _flush_stderr()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run one command; return 0 (done), 1 (runs failed) or 2 (the command can't be carried out).

    A HarnessError becomes an `error:` and a `hint:` line on stderr, and so does output that can't
    be written (exit code 1). A reader that has gone (such as `head`) is no error.
    """
    try:
        # Imported here, so that a Ctrl-C while modules load is met, too.
        from harness.cli.app import run_app  # noqa: PLC0415

        code = run_app(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except Exception as failure:
        error = _for_people(failure)
        if error is None:
            raise
        print_error(error, verb=arguments[0] if arguments else "")
        try:
            sys.stdout.flush()
        except OSError:
            silence(sys.stdout)
        return error.exit_code


def _for_people(failure: Exception) -> HarnessError | None:
    from harness.errors import HarnessError  # noqa: PLC0415

    if isinstance(failure, HarnessError):
        return failure
    if not isinstance(failure, OSError):
        return None  # a mistake of the program, which keeps its traceback
    reason = failure.strerror or str(failure)
    if failure.filename is None:
        return HarnessError(
            f"the output can't be written: {reason}", "send it to a place that takes it"
        )
    return HarnessError(f"`{failure.filename}`: {reason}", "see to that file or folder, try again")


def print_error(error: HarnessError, *, verb: str = "") -> None:
    """Print a failure for people, to stderr.

    Args:
        verb: of the command. A usage error without a hint points to its help.
    """
    from harness.cli.app import help_hint  # noqa: PLC0415 (not before there is an error)
    from harness.errors import UsageError  # noqa: PLC0415
    from harness.printable import one_line  # noqa: PLC0415

    hint = error.hint
    if not hint and isinstance(error, UsageError):
        hint = help_hint(verb)
    tell(f"error: {one_line(error.message)}")
    if hint:
        tell(f"hint: {one_line(hint)}")


def tell(line: str) -> None:
    """Print a line to stderr. Where nobody can read that any more, the command goes on."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Let what `stream` still holds, and all that follows, go nowhere."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor has no pipe
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _flush_stderr() -> None:
    try:
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)  # or the interpreter's own flush would change the exit code


def _open_standard_streams() -> None:
    """Give the standard streams that the caller closed a descriptor each.

    Otherwise the next file that is opened would take it, and receive what is printed.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # Opened for reading, stdout still fails: results must not vanish silently.
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text
