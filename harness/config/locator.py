"""Says where a key's value was set, for messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.conf_dir import Conf, ConfFile
from harness.config.groups import GROUPS, TYPED_GROUPS
from harness.config.override import Override


def is_same_or_below(first: str, second: str) -> bool:
    """Whether one of two dotted keys is the other, or holds it."""
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")


@dataclass(frozen=True)
class Locator:
    """Says where a key's value was set: an override, else the last file that holds the key."""

    conf: Conf
    overrides: tuple[Override, ...]
    choices: Mapping[str, tuple[str, ...]]

    def __call__(self, key: str) -> str:
        bare = re.sub(r"\[\d+\]", "", key)
        values = [o for o in self.overrides if not o.is_group]
        for override in reversed(values):
            if bare and is_same_or_below(bare, override.key):
                return override.where
        for group, option in reversed(self._files()):
            prefix = f"{group}." if group in TYPED_GROUPS else ""
            if bare and bare.startswith(prefix) and _holds(option.content, bare, prefix):
                return f"`{option.path}`"
        group = bare.split(".")[0]
        if bare and not _holds(self.conf.primary.content, bare, ""):
            for override in reversed(self.overrides):
                if override.key == group:
                    return override.where
            if group in TYPED_GROUPS and self.choices.get(group):
                chosen = self.conf.options[group].get(self.choices[group][0])
                if chosen is not None:
                    return f"`{chosen.path}`"
        if not bare and self.overrides:
            return self.overrides[-1].origin
        return f"`{self.conf.primary.path}`"

    def chosen_files(self) -> list[ConfFile]:
        """Return the files of the chosen options."""
        return [option for _, option in self._files()]

    def _files(self) -> list[tuple[str, ConfFile]]:
        return [
            (group, self.conf.options[group][name])
            for group in GROUPS
            for name in self.choices.get(group, ())
            if name in self.conf.options[group]
        ]


def _holds(content: Mapping[str, Any], key: str, prefix: str) -> bool:
    node: Any = content
    for part in key.removeprefix(prefix).split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True
