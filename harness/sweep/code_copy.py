"""Freezes the code that will run, so that editing the checkout does not change a queued run."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.errors import UsageError
from harness.records.files import write_json
from harness.records.layout import PROGRAM_DIR, CodePaths, SweepPaths, outputs_root
from harness.records.model import CodeRecord, to_record
from harness.resources import IS_CHECKOUT, PACKAGE_DIR
from harness.trainers.interface import Stamp

_HASH_LENGTH = 16
_PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "submitit")
_MAX_PROGRAM_BYTES = 50_000_000


@dataclass(frozen=True)
class Code:
    """The code in use: its record, its files (name in the copy -> path) and uncommitted changes."""

    record: CodeRecord
    files: Mapping[str, Path]
    diff: str


def read_code(program_dir: Path | None = None, stamp: Stamp | None = None) -> Code:
    """Return the code of this installation, and of the program in `program_dir`, as it is now.

    A program that is not copied counts by its `stamp`.

    In a git checkout the tracked files and those that git does not ignore, with the difference to
    the last commit; elsewhere every file of the folder but caches, hidden folders and virtual
    environments. Never the folder of all sweeps.

    Raises:
        UsageError: `program_dir` holds more than a copy per plan should.
    """
    ours = _read_folder(PACKAGE_DIR, with_git=IS_CHECKOUT)
    files = {f"{PACKAGE_DIR.name}/{name}": path for name, path in ours.files.items()}
    files = {name: path for name, path in files.items() if "/_data/" not in name}
    theirs = _Folder({}, None, "")
    if program_dir is not None:
        theirs = _read_folder(program_dir.resolve(), with_git=True)
        _check_size(program_dir, theirs.files)
        files |= {f"{PROGRAM_DIR}/{name}": path for name, path in theirs.files.items()}
    stamp = stamp or Stamp("", theirs.commit, None if theirs.commit is None else bool(theirs.diff))
    record = CodeRecord(
        hash=_hash(files, stamp.text),
        commit=ours.commit,
        is_dirty=None if ours.commit is None else bool(ours.diff),
        versions=_versions(),
        program_commit=stamp.commit,
        program_is_dirty=stamp.is_dirty,
        program_stamp=stamp.text or None,
    )
    return Code(record, files, ours.diff + theirs.diff)


def freeze_code(code: Code, sweep: SweepPaths) -> Path:
    """Copy `code` below the sweep unless that copy is there already; return its folder.

    Raises:
        UsageError: it can't be written there. Nothing of it is left.
    """
    target = sweep.code_dir(code.record.hash)
    try:
        if not target.is_dir():
            _copy(code, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            sweep.code_root.rmdir()  # unless it holds other copies
        at = f" (`{error.filename}`)" if error.filename else ""
        raise UsageError(
            f"the code can't be copied to `{target}`: {error.strerror or error}{at}",
            "make room there, or choose another place with HARNESS_OUTPUTS=DIR",
        ) from None
    return target


def _copy(code: Code, target: Path) -> None:
    building = CodePaths(
        target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    )
    try:
        for name, path in code.files.items():
            copy = building.root / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        write_json(building.record, to_record(code.record))
        if code.diff:
            building.diff.write_text(code.diff, encoding="utf-8", errors="surrogateescape")
        try:
            building.root.rename(target)
        except OSError:
            if not target.is_dir():  # else another planner published the same copy first
                raise
    finally:
        shutil.rmtree(building.root, ignore_errors=True)


@dataclass(frozen=True)
class _Folder:
    files: Mapping[str, Path]
    commit: str | None
    diff: str


def _read_folder(folder: Path, *, with_git: bool) -> _Folder:
    commit, diff, names = _ask_git(folder) if with_git else (None, "", None)
    paths = _all_files(folder) if names is None else [folder / name for name in names]
    outputs = outputs_root().resolve()  # results are no code, and would change its hash
    files = {
        p.relative_to(folder).as_posix(): p
        for p in sorted(paths)
        if p.is_file() and not p.is_relative_to(outputs)
    }
    return _Folder(files, commit, diff)


def _check_size(folder: Path, files: Mapping[str, Path]) -> None:
    size = sum(path.stat().st_size for path in files.values())
    if size > _MAX_PROGRAM_BYTES:
        raise UsageError(
            f"`trainer.code_dir` `{folder}` holds {size / 1e6:.0f} MB, more than"
            f" {_MAX_PROGRAM_BYTES / 1e6:.0f}",
            "name the folder of the code alone, or let git ignore the data",
        )


def _ask_git(folder: Path) -> tuple[str | None, str, list[str] | None]:
    try:
        commit = _git(folder, "rev-parse", "HEAD").strip()
        listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", ".")
        diff = _git(folder, "diff", "HEAD", "--", ".")
        untracked = _git(folder, "ls-files", "-z", "--others", "--exclude-standard", ".")
    except (OSError, subprocess.CalledProcessError):
        return None, "", None
    names = [name for name in listed.split("\0") if name]
    for name in sorted(n for n in untracked.split("\0") if n):
        diff += f"untracked: {name}\n"
    return commit, diff, names or None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    return done.stdout


def _all_files(folder: Path) -> Iterable[Path]:
    """Yield the files below `folder`, but for caches, hidden folders and virtual environments."""
    for here, folder_names, names in os.walk(folder):
        folder_names[:] = [
            name
            for name in folder_names
            if not name.startswith(".")
            and name != "__pycache__"
            and not (Path(here) / name / "pyvenv.cfg").is_file()
        ]
        yield from (Path(here) / name for name in names)


def _hash(files: Mapping[str, Path], stamp: str) -> str:
    digest = hashlib.sha256(stamp.encode())
    for name, path in files.items():
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()[:_HASH_LENGTH]


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "ablation-harness": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
