"""Finds a sweep by what the user typed: a file, a name under sweeps/, or one that ran before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import SweepPaths, is_valid_name, outputs_root

SWEEPS_DIR = Path("sweeps")


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
    path = Path(word)
    if path.suffix in (".yaml", ".yml") or "/" in word:
        if path.is_file():
            return SweepSource(path.stem, path)
        known = sorted(str(p) for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise UsageError(
            f"the sweep file `{word}` does not exist", did_you_mean(word, known, what="sweeps")
        )
    named = SWEEPS_DIR / f"{word}.yaml"
    if named.is_file():
        return SweepSource(word, named)
    if is_valid_name(word):
        stored = SweepPaths(outputs_root() / word)
        if stored.sweep_file.is_file():
            return SweepSource(word, stored.sweep_file, is_stored=True)
    raise _unknown(word, {*_files(), *_planned()})


def find_planned(word: str) -> SweepPaths:
    """Return the folder of the sweep that `word` names, which must have been planned by `run`.

    Raises:
        UsageError: there is none, with the near miss.
    """
    name = Path(word).stem if word.endswith((".yaml", ".yml")) else word.rstrip("/")
    folder = Path(name)
    if "/" in name and (folder / "plan.json").is_file():
        return SweepPaths(folder)
    paths = SweepPaths(outputs_root() / Path(name).name)
    if paths.plan.is_file():
        return paths
    if (SWEEPS_DIR / f"{name}.yaml").is_file():
        raise UsageError(
            f"the sweep `{name}` has not been run: `{paths.plan}` does not exist",
            f"harness run {name}",
        )
    raise _unknown(word, _planned())


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


def _files() -> list[str]:
    return [p.stem for p in SWEEPS_DIR.glob("*.yaml")] if SWEEPS_DIR.is_dir() else []


def _planned() -> list[str]:
    root = outputs_root()
    if not root.is_dir():
        return []
    return [p.name for p in root.iterdir() if SweepPaths(p).plan.is_file()]


def _unknown(word: str, known: set[str] | list[str]) -> UsageError:
    hint = (
        did_you_mean(word, known, what="sweeps")
        if known
        else f"there are no sweeps in `{SWEEPS_DIR}/` here; give the path of a sweep file"
    )
    return UsageError(f"there is no sweep `{word}`", hint)
