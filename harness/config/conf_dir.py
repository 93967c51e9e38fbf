"""The folders of configuration files: which options exist, and that each file keeps to its rules.

A rule broken in a file would not fail in Hydra; it would compose to something else, silently: an
overlay without its package line lands under `overlay.` and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.groups import DELTA_GROUPS, GROUPS, TYPED_GROUPS
from harness.config.yaml_file import load_yaml
from harness.errors import UsageError
from harness.near import did_you_mean

PRIMARY = "config"
_PACKAGE_LINE = re.compile(r"^\s*#\s*@package\s+(\S+)", re.MULTILINE)
_GLOBAL = "_global_"


@dataclass(frozen=True)
class ConfFile:
    """One option: where it stands and what it says, as plain data."""

    path: Path
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Conf:
    """All options of all configuration folders.

    Attributes:
        dirs: the shipped folder first, then the user's.
        primary: the base config.
        options: group -> option -> file.
    """

    dirs: tuple[Path, ...]
    primary: ConfFile
    options: Mapping[str, Mapping[str, ConfFile]]

    def option(self, group: str, name: str, where: str) -> ConfFile:
        """Return the file of an option. Raises UsageError with the near miss."""
        known = self.options[group]
        if name not in known:
            raise UsageError(
                f"{where}: there is no {group} `{name}`",
                did_you_mean(name, known, what=f"{group} options"),
            )
        return known[name]


def load_conf(dirs: tuple[Path, ...]) -> Conf:
    """Return every option in `dirs`.

    Raises:
        UsageError: a folder is missing, an option stands in two folders, a file isn't YAML, isn't
            a mapping, or has the wrong package for its group.
    """
    options: dict[str, dict[str, ConfFile]] = {group: {} for group in GROUPS}
    primary: ConfFile | None = None
    for directory in dirs:
        if not directory.is_dir():
            raise UsageError(f"`{directory}` is not a folder", "give an existing folder to --conf")
        for path in sorted(directory.rglob("*.y*ml")):
            if path.suffix == ".yml":
                raise UsageError(f"`{path}` would be ignored", "name it `.yaml`")
            relative = path.relative_to(directory)
            if len(relative.parts) == 1:
                if relative.stem != PRIMARY:
                    raise UsageError(
                        f"`{path}` belongs to no group", f"groups: {', '.join(GROUPS)}"
                    )
                if primary is not None:
                    raise _stands_twice("the base config", primary.path, path)
                primary = ConfFile(path, _load_mapping(path))
                continue
            group = "/".join(relative.parts[:-1])
            if group not in GROUPS:
                raise UsageError(
                    f"`{path}`: there is no group `{group}`",
                    did_you_mean(group, GROUPS, what="groups"),
                )
            if relative.stem in options[group]:
                raise _stands_twice(
                    f"{group} `{relative.stem}`", options[group][relative.stem].path, path
                )
            options[group][relative.stem] = _load_option(group, path)
    if primary is None:
        raise UsageError(f"`{dirs[0]}` holds no `{PRIMARY}.yaml`")
    return Conf(dirs, primary, options)


def _stands_twice(what: str, first: Path, second: Path) -> UsageError:
    return UsageError(
        f"{what} stands in two folders: `{first}` and `{second}`", "rename one of the two"
    )


def _load_option(group: str, path: Path) -> ConfFile:
    content = _load_mapping(path)
    package = _PACKAGE_LINE.search(path.read_text(encoding="utf-8"))
    found = package.group(1) if package else None
    if group in DELTA_GROUPS and found != _GLOBAL:
        says = f"has the package `{found}`" if found else "has no package line"
        raise UsageError(
            f"`{path}` {says}, so its keys would land under `{group}.`",
            f"make `# @package {_GLOBAL}` its first line",
        )
    if group in TYPED_GROUPS and found is not None:
        raise UsageError(
            f"`{path}` has the package `{found}`; a {group} option sets keys of `{group}` only",
            "remove the package line, or make it an overlay",
        )
    _check_defaults(group, path, content)
    if group in DELTA_GROUPS:
        _check_top_keys(path, content)
    return ConfFile(path, {k: v for k, v in content.items() if k != "defaults"})


def _check_top_keys(path: Path, content: Mapping[str, Any]) -> None:
    for key in content:
        if key == "seed":
            raise UsageError(f"`{path}` sets the seed", "list the seeds under `seeds` of the sweep")
        if key not in (*TYPED_GROUPS, "max_steps", "defaults"):
            raise UsageError(
                f"`{path}`: unknown key `{key}`",
                did_you_mean(str(key), (*TYPED_GROUPS, "max_steps"), what="keys"),
            )


def _check_defaults(group: str, path: Path, content: Mapping[str, Any]) -> None:
    entries = content.get("defaults") or []
    if not isinstance(entries, list):
        raise UsageError(f"`{path}`: `defaults` is {entries!r}, want a list", "write `- _self_`")
    for entry in entries:
        if entry == "_self_":
            continue
        if group == "experiment":
            names = list(entry) if isinstance(entry, dict) else [entry]
            groups = [str(name).removeprefix("override /") for name in names]
            if all(str(name).startswith("override /") for name in names):
                for name in groups:
                    if name not in (*TYPED_GROUPS, "overlay"):
                        raise UsageError(
                            f"`{path}`: defaults entry {entry!r}: there is no group `{name}`",
                            did_you_mean(name, GROUPS, what="groups"),
                        )
                continue
            raise UsageError(
                f"`{path}`: defaults entry {entry!r}: an experiment may only override groups",
                "write `- override /loss: icepop`",
            )
        if group in TYPED_GROUPS and isinstance(entry, str) and re.fullmatch(r"[\w.-]+", entry):
            continue
        raise UsageError(
            f"`{path}`: defaults entry {entry!r} reaches outside `{group}`",
            "only an experiment may choose options of other groups",
        )


def _load_mapping(path: Path) -> Mapping[str, Any]:
    content = load_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(
            f"`{path}` holds {type(content).__name__}, want keys and values", "write `key: value`"
        )
    return content
