"""Freezes the code that will run, so that editing the checkout does not change a queued run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import CodeRecord, to_record
from harness.resources import IS_CHECKOUT, PACKAGE_DIR

_HASH_LENGTH = 16
_PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "submitit")
_RECORD = "code.json"
_DIFF = "uncommitted.diff"


@dataclass(frozen=True)
class Code:
    """The code in use: its record, its files (name in the copy -> path) and uncommitted changes."""

    record: CodeRecord
    files: Mapping[str, Path]
    diff: str


def read_code() -> Code:
    """Return the code of this installation: the package's files as they are on disk now.

    In a git checkout the tracked files and those that git does not ignore, with the difference to
    the last commit; otherwise (a wheel) every file of the package.
    """
    commit, diff, names = _ask_git() if IS_CHECKOUT else (None, "", None)
    paths = _all_files() if names is None else [PACKAGE_DIR / name for name in names]
    files = {
        f"{PACKAGE_DIR.name}/{path.relative_to(PACKAGE_DIR).as_posix()}": path
        for path in sorted(paths)
        if path.is_file() and "_data" not in path.relative_to(PACKAGE_DIR).parts
    }
    record = CodeRecord(
        hash=_hash(files),
        commit=commit,
        is_dirty=None if commit is None else bool(diff),
        versions=_versions(),
    )
    return Code(record, files, diff)


def freeze_code(code: Code, sweep: SweepPaths) -> Path:
    """Copy `code` below the sweep unless that copy is there already; return its folder."""
    target = sweep.code_dir(code.record.hash)
    if target.is_dir():
        return target
    sweep.code_root.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=sweep.code_root))
    try:
        for name, path in code.files.items():
            copy = building / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        write_json(building / _RECORD, to_record(code.record))
        if code.diff:
            (building / _DIFF).write_text(code.diff, encoding="utf-8")
        building.chmod(0o755)
        try:
            building.rename(target)
        except OSError:
            if not target.is_dir():  # else another planner published the same copy first
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _ask_git() -> tuple[str | None, str, list[str] | None]:
    try:
        commit = _git("rev-parse", "HEAD").strip()
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", ".")
        diff = _git("diff", "HEAD", "--", ".")
        untracked = _git("ls-files", "-z", "--others", "--exclude-standard", ".")
    except (OSError, subprocess.CalledProcessError):
        return None, "", None
    names = [name for name in listed.split("\0") if name]
    for name in sorted(n for n in untracked.split("\0") if n):
        diff += f"untracked: {name}\n"
    return commit, diff, names or None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(PACKAGE_DIR), *arguments],
        check=True,
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    return done.stdout


def _all_files() -> Iterable[Path]:
    return (p for p in PACKAGE_DIR.rglob("*") if p.is_file() and p.suffix != ".pyc")


def _hash(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
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
