"""From what a user typed for an arm to the run: a path, a kind and a path, or several with `+`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from analysis.sources.interface import SourceRun, Wanted
from analysis.sources.join import join_runs
from analysis.sources.kinds import KINDS, find_run
from harness.errors import UsageError
from harness.near import did_you_mean, near_miss

__all__ = ["KINDS", "ONLINE", "open_source"]

ONLINE = "wandb"
"""Prefix of an address on a wandb server, `wandb:entity/project/id`."""

_JOINT = "+"
_NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


def open_source(
    text: str, *, wanted: Wanted, columns: Mapping[str, str] = _NO_COLUMNS
) -> SourceRun:
    """Return the run that `text` names, with the series of the wanted keys.

    `text` is a file or folder, whose kind is found out from its content; `KIND:PATH` with a kind of
    `KINDS`; `wandb:entity/project/id`; or several of these, joined with `+`, that one run left. A
    path that exists is never taken apart. `columns` maps `step`, `time`, `attempt` and metrics to
    the columns of a table; mapped columns are wanted, too.

    What a run left behind is never an error: unreadable files and lines are in the provenance of
    the files, and what else is odd in `problems`.

    Raises:
        UsageError: nothing is there, no kind or several runs fit, or a table lacks a column.
        HarnessError: a server doesn't answer.
    """
    mapped = frozenset(columns.values())

    def is_wanted(key: str) -> bool:
        return key in mapped or wanted(key)

    parts = _take_apart(text)
    runs = [_open_part(kind, rest, is_wanted, columns) for kind, rest in parts]
    return runs[0] if len(runs) == 1 else join_runs(runs)


def _take_apart(text: str) -> list[tuple[str, str]]:
    """Return kind (or nothing) and the rest of every part of `text`."""
    pieces = text.split(_JOINT)
    parts: list[tuple[str, str]] = []
    start = 0
    while start < len(pieces):
        ends = range(len(pieces), start, -1)
        whole = (end for end in ends if _exists(_JOINT.join(pieces[start:end])))
        end = next(whole, start + 1)
        part = _JOINT.join(pieces[start:end])
        kind, rest = _split_kind(part)
        is_next_address = parts and parts[-1][0] == ONLINE and not kind and not _exists(part)
        parts.append((ONLINE if is_next_address else kind, rest))
        start = end
    return parts


def _split_kind(part: str) -> tuple[str, str]:
    kind, colon, rest = part.partition(":")
    if not colon or _is_there(part):
        return "", part
    if kind in KINDS or kind == ONLINE:
        return kind, rest
    if "/" not in kind and near_miss(kind, (*KINDS, ONLINE)) is not None:
        raise UsageError(
            f"`{part}`: there is no kind `{kind}`", did_you_mean(kind, (*KINDS, ONLINE))
        )
    return "", part


def _exists(part: str) -> bool:
    kind, rest = _split_kind(part)
    return kind != ONLINE and bool(rest) and _is_there(rest)


def _is_there(text: str) -> bool:
    try:
        return _path(text).exists()
    except OSError:
        # A name that is too long, or lies in a folder that is closed to us.
        return False


def _path(text: str) -> Path:
    # A shell leaves the tilde of `--arm ipo=~/run` as it is.
    path = Path(text)
    return path.expanduser() if text.startswith("~/") else path


def _open_part(kind: str, rest: str, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun:
    if kind == ONLINE:
        from analysis.sources.wandb_online import read_wandb_online  # noqa: PLC0415 (only online)

        return read_wandb_online(rest, wanted=wanted)
    if not rest:
        raise UsageError(
            f"`{kind}:` names no path" if kind else "a part of the source names no path",
            f"write `{kind or 'KIND'}:PATH`, or only a path",
        )
    path = _path(rest)
    try:
        if not path.exists():
            raise _missing(path)
        found, place = find_run(path, kind)
        return KINDS[found].read(place, wanted=wanted, columns=columns)
    except OSError as error:
        raise UsageError(
            f"`{path}` can't be read: {error.strerror or error}", "make it readable"
        ) from error


def _missing(path: Path) -> UsageError:
    if path.is_symlink():
        return UsageError(
            f"`{path}` is a link to `{path.readlink()}`, which doesn't exist", "mend the link"
        )
    parent = path.parent
    if not parent.is_dir():
        return UsageError(
            f"`{path}` doesn't exist", f"the first folder that is missing: `{_first_gap(path)}`"
        )
    try:
        siblings = [entry.name for entry in parent.iterdir()]
    except OSError:
        siblings = []
    near = near_miss(path.name, siblings)
    known = f"paths, or {ONLINE}:entity/project/id, or KIND:PATH with a kind of {', '.join(KINDS)}"
    hint = f"did you mean `{parent / near}`?" if near else f"sources are {known}"
    return UsageError(f"`{path}` doesn't exist", hint)


def _first_gap(path: Path) -> Path:
    missing = [path, *path.parents]
    return next(p for p in reversed(missing) if not p.exists())
