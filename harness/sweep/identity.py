"""The identity of a run: a hash of what it computes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from harness.records.files import canonical_json

_LENGTH = 16


def hash_identity(config: Mapping[str, Any]) -> str:
    """Return the identity of a configuration (already without output keys), 16 hex digits.

    1 and 1.0 are equal, key order does not matter, list order does.
    """
    return hashlib.sha256(canonical_json(_in_one_form(config))).hexdigest()[:_LENGTH]


def _in_one_form(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _in_one_form(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_one_form(item) for item in value]
    return value
