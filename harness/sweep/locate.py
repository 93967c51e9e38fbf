"""Finds a sweep by what the user typed: a file, a name under sweeps/, or one that ran before."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.near import near_miss
from harness.records.layout import SweepPaths, is_valid_name, outputs_root

SWEEPS_DIR = Path("sweeps")

_SUFFIXES = (".yaml", ".yml")
_CHOOSE_ROOT = "choose another place with HARNESS_OUTPUTS=DIR"


@dataclass(frozen=True)
class SweepSource:
    """A sweep file and the name of the sweep. `is_stored`: the copy of an earlier run."""

    name: str
    path: Path
    is_stored: bool = False


def find_sweep_file(word: str) -> SweepSource:
    """Return the sweep that `word` names, to plan or run it.

    Raises:
        UsageError: there is none, with the near miss.
    """
    if _is_path(word):
        path = Path(word)
        if _is_file(path):
            return SweepSource(path.stem, path)
        if _is_folder(path):
            raise UsageError(
                f"`{word}` is a folder, want a sweep file or a name",
                _near(path.name, _known()) or "give the path of a sweep file",
            )
        raise _no_file(word)
    if is_valid_name(word):
        named = SWEEPS_DIR / f"{word}.yaml"
        if _is_file(named):
            return SweepSource(word, named)
        stored = SweepPaths(outputs_root() / word)
        if _is_file(stored.sweep_file):
            return SweepSource(word, stored.sweep_file, is_stored=True)
    raise _no_sweep(word, _known())


def find_planned(word: str) -> SweepPaths:
    """Return the folder of the sweep that `word` names, which must have been planned by `run`.

    A path (with `/`, or a `.yaml` file) must exist: it is the sweep's folder, or its file. Nothing
    else is ever taken for a path that is not there.

    Raises:
        UsageError: there is none, with the near miss.
    """
    if _is_path(word):
        path = Path(word)
        if _is_folder(path):
            sweep = SweepPaths(path.resolve() if path.name in ("", "..") else path)
            if _is_file(sweep.plan):
                return sweep
            raise UsageError(
                f"`{word}` is no folder of a sweep: it holds no `{sweep.plan.name}`",
                "give the folder of a sweep that was run, its file, or its name",
            )
        if path.suffix not in _SUFFIXES or not _is_file(path):
            raise _no_file(word)
        return _planned_as(path.stem, word)
    if is_valid_name(word):
        known = _is_file(SWEEPS_DIR / f"{word}.yaml")
        if known or _is_file(SweepPaths(outputs_root() / word).plan):
            return _planned_as(word, word)
    raise _no_sweep(word, _known())


def split_target(target: str | None) -> tuple[str | None, int | None]:
    """Return arm and seed of `ARM`, `ARM/SEED` or `ARM/seed_SEED`; None for what is not named.

    Raises:
        UsageError: the seed is not a number.
    """
    if not target:
        return None, None
    arm, _, seed = target.partition("/")
    if not seed:
        return arm, None
    digits = seed.removeprefix("seed_")
    if not digits.isdecimal():
        raise UsageError(f"`{target}`: the seed `{seed}` is not a number", f"write `{arm}/0`")
    return arm, int(digits)


def check_outputs_root(root: Path) -> None:
    """Refuse a folder for outputs that can't be made or used, before anything is written.

    Args:
        root: of one sweep or of all; it need not exist.

    Raises:
        UsageError: its path is too long, or none that Python imports from; or it can't be written.
    """
    if os.pathsep in str(root.absolute()):
        raise UsageError(
            f"`{root.absolute()}` can't hold outputs: Python can't import the frozen code from a"
            f" path with `{os.pathsep}`",
            _CHOOSE_ROOT,
        )
    folder = root
    try:
        while not folder.exists() and not folder.is_symlink():
            folder = folder.parent
        is_writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise UsageError(
            f"`{root}` can't be written: {error.strerror or error}", _CHOOSE_ROOT
        ) from None
    if not is_writable:
        raise UsageError(
            f"`{root}` can't be written: `{folder}` is not a folder you may write to", _CHOOSE_ROOT
        )


def _is_path(word: str) -> bool:
    return "/" in word or word in (".", "..") or word.endswith(_SUFFIXES)


def _planned_as(name: str, word: str) -> SweepPaths:
    paths = SweepPaths(outputs_root() / name)
    if _is_file(paths.plan):
        return paths
    raise UsageError(
        f"the sweep `{name}` has not been run: `{paths.plan}` does not exist", f"harness run {word}"
    )


def _no_file(word: str) -> UsageError:
    path = Path(word)
    beside = [str(p) for p in _glob(path.parent) if p.suffix in _SUFFIXES]
    hint = (
        f"did you mean `{SWEEPS_DIR / path.name}`?"
        if _is_file(SWEEPS_DIR / path.name)
        else _near(word, beside) or _near(path.stem, _known()) or _list_sweeps(_known())
    )
    what = "the sweep file " if path.suffix in _SUFFIXES else ""
    return UsageError(f"{what}`{word}` does not exist", hint)


def _no_sweep(word: str, known: Iterable[str]) -> UsageError:
    known = sorted(set(known))
    return UsageError(f"there is no sweep `{word}`", _near(word, known) or _list_sweeps(known))


def _near(word: str, known: Iterable[str]) -> str:
    near = near_miss(word, known)
    return "" if near is None else f"did you mean `{near}`?"


def _list_sweeps(known: Iterable[str]) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(known))
    if names:
        return f"sweeps: {names}"
    return f"there is no sweep in `{SWEEPS_DIR}/` here, and none has run; give a sweep file's path"


def _known() -> set[str]:
    return {p.stem for p in _glob(SWEEPS_DIR) if p.suffix == ".yaml"} | set(_planned())


def _planned() -> list[str]:
    return [p.name for p in _glob(outputs_root()) if _is_file(SweepPaths(p).plan)]


def _glob(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
