"""What the commands report instead of a traceback."""

from __future__ import annotations


class ClusterError(Exception):
    """A command can't do what it was asked to do (exit code 1)."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(ClusterError):
    """Nothing was started or ended: a wrong argument, or a machine that lacks something (2)."""

    exit_code = 2
