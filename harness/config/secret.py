"""Which names hold secrets: what must never reach a configuration, as others read that file."""

from __future__ import annotations

import re

_WORDS = frozenset(
    {"key", "pass", "pgpass", "pw", "pat", "auth", "credential", "credentials", "creds", "secrets"}
)
"""Parts of a name that mean a secret when they stand alone."""
_ENDINGS = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "secretkey",
)
"""Ends of such parts, which are also written together with what they open (`hftoken`)."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")


def looks_like_secret(name: str) -> bool:
    """Whether a variable or key of that name (`WANDB_API_KEY`, `apiKey`) likely holds a secret.

    A name is judged by its parts, so that `tokens`, `path`, `author` or `monkey` are no secrets.
    """
    parts = [part.lower() for part in _SEPARATOR.split(_CAMEL.sub("_", name))]
    return any(part in _WORDS or part.endswith(_ENDINGS) for part in parts)
