"""Where conf/ and slurm/ are: bundled by the wheel, or beside the package in a checkout.

Anchored on this file, never looked up in site-packages: an editable install leaves a stale copy
of the bundled folders there.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
_BUNDLED = PACKAGE_DIR / "_data"
IS_CHECKOUT = not _BUNDLED.is_dir()
_ROOT = PACKAGE_DIR.parent if IS_CHECKOUT else _BUNDLED

CONF_DIR = _ROOT / "conf"
SLURM_DIR = _ROOT / "slurm"
