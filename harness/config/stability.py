"""What a configuration that is written to disk and hashed must not hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.config.check import Locate
from harness.config.secret import looks_like_secret
from harness.errors import UsageError
from harness.records.files import flatten

_UNSTABLE = re.compile(r"\$\{\s*(now|hydra)\s*:")
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*(?P<argument>[^,}]*)")
_SECRET_KEY = re.compile(
    r"(?i).*(api_?key|private_?key|passw|secret|credential|(access|auth|hf|wandb|github)_?token).*"
)
"""Keys of a foreign trainer that would hold a secret; `pad_token` and the like don't."""


def refuse_unstable(plain: Mapping[str, Any], locate: Locate) -> None:
    """Refuse values that differ at each planning, and secrets.

    Args:
        plain: the configuration before interpolations are resolved.

    Raises:
        UsageError: names the key.
    """
    for key, value in flatten(plain).items():
        text = str(value)
        if _UNSTABLE.search(text):
            raise UsageError(
                f"{locate(key)}: `{key}` is `{text}`, which differs at each planning",
                "a run is what its configuration says: use a fixed value",
            )
        hint = "export it in the shell; the trainer inherits the environment"
        for found in _ENVIRONMENT.finditer(text):
            name = found["argument"].strip(" \t'\"\\")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise UsageError(
                    f"{locate(key)}: `{key}` is `{text}`: the name of a variable is computed",
                    "write the name out: ${oc.env:NAME}",
                )
            if looks_like_secret(name):
                raise UsageError(
                    f"{locate(key)}: `{key}` reads the secret `{name}`, and the resolved"
                    " configuration is written to disk",
                    hint,
                )
        if _SECRET_KEY.fullmatch(key.rpartition(".")[2]) and isinstance(value, str) and value:
            raise UsageError(
                f"{locate(key)}: `{key}` looks like a secret, and the resolved configuration is"
                " written to disk",
                hint,
            )
