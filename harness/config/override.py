"""Override strings: what a `key=value` is and where it was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.config.groups import GROUPS
from harness.errors import UsageError


@dataclass(frozen=True)
class Override:
    """One `key=value` string with the place it came from, such as `sweeps/x.yaml: arm ipo`."""

    text: str
    origin: str

    @property
    def key(self) -> str:
        return self.text.partition("=")[0]

    @property
    def is_group(self) -> bool:
        """Whether it chooses an option of a group (`loss=ipo`), not a value."""
        return self.key in GROUPS

    @property
    def where(self) -> str:
        return f"{self.origin}: override `{self.text}`"


def parse_overrides(texts: Iterable[Any], origin: str) -> tuple[Override, ...]:
    """Return `texts` as overrides, after the checks that need no configuration.

    Raises:
        UsageError: not text, no `=`, `+`/`++`/`~` prefixes, `key@package`, `hydra.` keys.
    """
    parsed = []
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{origin}: override {text!r} is not text", "write `key=value`")
        override = Override(text, origin)
        if text[:1] in ("+", "~"):
            raise UsageError(
                f"{override.where} adds or deletes a key; the schema is fixed",
                f"write `{text.lstrip('+~') or 'key=value'}`",
            )
        if "=" not in text:
            raise UsageError(f"{override.where} has no `=`", "write `key=value`")
        key = override.key
        if not key or key != key.strip() or "@" in key:
            raise UsageError(f"{override.where}: `{key}` can't be a key", "write `key=value`")
        if key == "hydra" or key.startswith("hydra."):
            raise UsageError(
                f"{override.where} sets a key of Hydra itself", "only the run's own keys can be set"
            )
        parsed.append(override)
    return tuple(parsed)


def to_override(key: str, value: Any) -> str:
    """Return the override text that sets `key` to the plain value `value`, whatever is in it."""
    return f"{key}={_to_text(value)}"


def _to_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # Hydra's grammar: inside quotes only a backslash run before a quote is an escape.
        quoted = ""
        backslashes = 0
        for character in value:
            if character == "'":
                quoted += "\\" * backslashes + "\\'"
            else:
                quoted += character
            backslashes = backslashes + 1 if character == "\\" else 0
        return f"'{quoted}{chr(92) * backslashes}'"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_to_text(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{_to_text(v)}' for k, v in value.items())}}}"
    raise UsageError(
        f"a {type(value).__name__} can't be written as an override", "use text or a number"
    )
