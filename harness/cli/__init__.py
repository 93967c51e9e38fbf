"""The command line: `harness VERB SWEEP [ARM[/SEED]]`. Start-up imports nothing heavy."""

from __future__ import annotations

import os
import sys

from harness.errors import HarnessError

INTERRUPTED = 130


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command; return 0 (done), 1 (runs failed) or 2 (the command can't be carried out).

    A HarnessError becomes an `error:` and a `hint:` line on stderr.
    """
    from harness.cli.app import run_app  # noqa: PLC0415 (records import this package alone)

    try:
        return run_app(arguments)
    except HarnessError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (such as `head`) has what it wanted; closing stdout must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def print_error(error: HarnessError) -> None:
    """Print a failure for people, to stderr."""
    print(f"error: {' '.join(error.message.split())}", file=sys.stderr)
    if error.hint:
        print(f"hint: {' '.join(error.hint.split())}", file=sys.stderr)
