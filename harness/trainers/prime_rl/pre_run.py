"""What the shell command before a run may do beside other runs: end its own sandboxes alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.trainers.interface import RunName
from harness.trainers.prime_rl.owned import (
    PRE_RUN_KEY,
    RUN_ID_ENV,
    find_labels,
    pre_run_command,
    run_name,
)
from harness.trainers.prime_rl.tables import get_value

_OPERATORS = "();<>|&`\n"
_REDIRECTION = re.compile(r"[<>&]*[<>][<>&]*")
_DELETION = re.compile(r"sandbox\s+delete\b")
_SYNCS = (("sync",), ("pip", "install"), ("pip", "sync"))
"""What `uv` does to the environment that runs share."""
_TAKE_OUT = f"take it out of `{PRE_RUN_KEY}` (trainer.patch=['{PRE_RUN_KEY}=…'])"
_ANY_RUN = RunName("sweep", "arm", 0, "")


def refuse_pre_run(document: Mapping[str, Any], where: str) -> None:
    """Refuse a pre-run command that would disturb the other runs of a sweep.

    Args:
        document: not named yet.
        where: names the files, for messages.

    Raises:
        UsageError: it syncs the environment that runs share, or deletes sandboxes by anything else
            than labels that become the run's own.
    """
    command = get_value(document, PRE_RUN_KEY)
    if not isinstance(command, str):
        return
    start = f"{where}: `{PRE_RUN_KEY}`"
    try:
        commands = list(_simple_commands(command))
        named = list(_simple_commands(pre_run_command(document, _ANY_RUN) or ""))
    except ValueError as error:
        if _DELETION.search(_joined(command)):
            raise UsageError(
                f"{start} deletes sandboxes, and can't be read as shell: {error}",
                "close its quotes",
            ) from None
        return
    for words in commands:
        _refuse_sync(words, start)
    for words, named_words in zip(commands, named, strict=True):
        options = _deletion_options(words)
        if options is not None:
            named_options = _deletion_options(named_words)
            assert named_options is not None
            _check_deletion(options, named_options, find_labels(document), start)


def _joined(text: str) -> str:
    return text.replace("\\\n", "")


def _simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, those inside quoted words (`bash -c "…"`) too.

    Comments count as commands.

    Raises:
        ValueError: an open quote.
    """
    lexer = shlex.shlex(_joined(text), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in [*lexer, "\n"]:
        if not token or not set(token) <= set(_OPERATORS):
            words.append(token)
        elif _REDIRECTION.fullmatch(token) is None:
            if words:
                yield words
            words = []
            continue
        if re.search(r"\s", token.strip()):
            yield from _quoted_commands(token)


def _quoted_commands(text: str) -> Iterator[list[str]]:
    try:
        yield from _simple_commands(text)
    except ValueError:
        if _DELETION.search(text):
            raise


def _follows(words: Sequence[str], program: str, wanted: Sequence[str]) -> int | None:
    """Return the index after `program … wanted`, with nothing but options between; None without."""
    for start, word in enumerate(words):
        if word.rpartition("/")[2] != program:
            continue
        left = list(wanted)
        for i in range(start + 1, len(words)):
            if words[i] == left[0]:
                left.pop(0)
                if not left:
                    return i + 1
            elif not words[i].startswith("-"):
                break
    return None


def _refuse_sync(words: Sequence[str], start: str) -> None:
    for wanted in _SYNCS:
        if _follows(words, "uv", wanted) is not None:
            raise UsageError(
                f"{start} calls `uv {' '.join(wanted)}`: runs share the checkout's environment, and"
                " concurrent syncs would break it",
                f"sync the checkout once before the sweep, and {_TAKE_OUT}",
            )


def _deletion_options(words: Sequence[str]) -> tuple[list[str], bool] | None:
    """Return the labels that `sandbox delete` is given, and whether it is told to delete all; None
    for another command."""
    begin = _follows(words, "sandbox", ("delete",))
    if begin is None:
        return None
    labels: list[str] = []
    deletes_all = False
    rest = list(words[begin:])
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            deletes_all |= name.startswith("--all")
            if name == "--label":
                labels += _split(value if equals else _next(rest))
        elif word.startswith("-"):
            flags, has_label, value = word[1:].partition("l")
            deletes_all |= "a" in flags
            if has_label:
                labels += _split(value or _next(rest))
    return labels, deletes_all


def _next(rest: list[str]) -> str:
    return rest.pop(0) if rest else ""


def _split(labels: str) -> list[str]:
    return [label.strip() for label in labels.split(",")]


def _check_deletion(
    options: tuple[list[str], bool],
    named_options: tuple[list[str], bool],
    known: Sequence[str],
    start: str,
) -> None:
    labels, deletes_all = options
    if deletes_all:
        raise UsageError(
            f"{start} deletes all sandboxes, those of other arms, too", "delete by `--label`"
        )
    if not labels:
        raise UsageError(
            f"{start} deletes sandboxes without `--label`, so it may end those of other arms",
            f"delete by the label of a source, or {_TAKE_OUT}",
        )
    for label, named in zip(labels, named_options[0], strict=True):
        if RUN_ID_ENV in label:
            continue
        if label not in known:
            raise UsageError(
                f"{start} names the label {label!r}, which is no label of a source, so arms would"
                " delete each other's sandboxes",
                did_you_mean(label, known, what="labels of sources")
                if known
                else "give the sources that label, or drop the command",
            )
        if named != f"{label}-{run_name(_ANY_RUN)}":
            raise UsageError(
                f"{start} writes the label {label!r} so that it can't become the run's own",
                f"write `--label {label}`",
            )
