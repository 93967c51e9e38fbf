"""Which version of prime-rl a checkout holds. It isn't copied: runs start in it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.trainers.interface import Stamp
from harness.trainers.prime_rl.settings import find_checkout


def stamp(config: Mapping[str, Any]) -> Stamp | None:
    """Return the commit of the checkout and what was changed since; None outside git.

    Files that git doesn't track are not looked at.
    """
    checkout = find_checkout(config["trainer"])
    commit = _git(checkout, "rev-parse", "HEAD")
    tracked = _git(checkout, "ls-files", "--", ".")
    diff = _git(checkout, "diff", "HEAD", "--no-ext-diff", "--no-color", "--full-index", "--", ".")
    if commit is None or diff is None or not tracked:
        return None
    name = commit.decode().strip()
    if not diff:
        return Stamp(name, name, is_dirty=False)
    return Stamp(f"{name}+{hashlib.sha256(diff).hexdigest()}", name, is_dirty=True)


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            check=True,
            capture_output=True,
            # Other jobs and people work in the checkout: take no lock there.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
