"""Errors that are for people: one line that names the thing, one line that says what to do."""


class HarnessError(Exception):
    """A failure that the command line shows as `error:` and `hint:` lines, without a traceback.

    Attributes:
        message: one line naming file, key and the offending value.
        hint: one line with the near miss or the fix; empty when there is none to give.
        exit_code: what the command ends with.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HarnessError):
    """What the user gave can't be used. Nothing has been written and nothing queued (exit 2)."""

    exit_code = 2


class VariableError(UsageError):
    """An environment variable can't be used: no place in the configuration is at fault."""
