"""Weights & Biases, without importing it and without reading a key further than that it exists."""

from __future__ import annotations

import importlib.metadata
import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from harness.doctor.check import Check, ok, warning

KEY_ENV = "WANDB_API_KEY"
BASE_URL_ENV = "WANDB_BASE_URL"
DEFAULT_HOST = "api.wandb.ai"


def check_wandb() -> Check:
    """Whether wandb is installed and could log in. Only `mode=online` needs a login."""
    try:
        version = importlib.metadata.version("wandb")
    except importlib.metadata.PackageNotFoundError:
        return warning("wandb", "not installed", "pip install wandb, to log to Weights & Biases")
    host = urlsplit(os.environ.get(BASE_URL_ENV, "")).hostname or DEFAULT_HOST
    login = find_login(host)
    if login is None:
        return warning(
            "wandb",
            f"{version}, no login for {host}",
            f"`wandb login` or {KEY_ENV}, for trainer.trackers.wandb.mode=online; the modes"
            " offline and disabled (the default) need none",
        )
    return ok("wandb", f"{version}, login for {host} from {login}; disabled unless a sweep asks")


def find_login(host: str) -> str | None:
    """Return where a key for `host` stands (a variable's name or a file); None without one."""
    if os.environ.get(KEY_ENV):
        return KEY_ENV
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        entry = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    return str(path) if entry is not None and entry[2] else None
