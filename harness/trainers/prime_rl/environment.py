"""The environment that prime-rl's programs start in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.resources import PACKAGE_DIR

PYTHONPATH = "PYTHONPATH"


def without_own_code(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with a PYTHONPATH that doesn't lead to this project's code: it must not hide a
    package of prime-rl's environment."""
    if PYTHONPATH not in env:
        return dict(env)
    entries = env[PYTHONPATH].split(os.pathsep)
    kept = [entry for entry in entries if entry and Path(entry).resolve() != PACKAGE_DIR.parent]
    return {**env, PYTHONPATH: os.pathsep.join(kept)}
