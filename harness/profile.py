"""Profiles: where runs execute. A profile never enters a run's identity."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.check import check_group
from harness.config.fields import choice, number
from harness.config.yaml_file import load_yaml
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import is_valid_name
from harness.resources import SLURM_DIR
from harness.slurm_profile import SlurmProfile, check_slurm

AUTO = "auto"
DEFAULT_PROFILE = "local"


@dataclass(frozen=True, kw_only=True)
class LocalProfile:
    """A queue on this machine.

    Attributes:
        slots: runs at once; None for usable cores / threads.
        threads: of each run.
        gpus: `auto` or the ids to lease; several runs never hold one at the same time.
        gpus_per_run: None for 1 where there are GPUs, else 0.
        grace_s: seconds between asking a run to stop and killing it.
        heartbeat_limit_s: seconds after which a run without a sign of life counts as gone.
    """

    type: str = choice("local", "local")
    slots: int | None = number(None, ge=1, le=100_000)
    threads: int = number(1, ge=1, le=100_000)
    gpus: Any = AUTO
    gpus_per_run: int | None = number(None, ge=0, le=100_000)
    grace_s: float = number(10.0, ge=0, le=86_400)
    heartbeat_limit_s: float = number(30.0, ge=5, le=86_400)


PROFILE_TYPES: Mapping[str, type[Any]] = {"local": LocalProfile, "slurm": SlurmProfile}
"""`type` of a profile -> dataclass of its keys."""


@dataclass(frozen=True)
class Profile:
    """A loaded profile: `settings` is an instance of one of PROFILE_TYPES."""

    name: str
    settings: Any

    @property
    def type(self) -> str:
        return str(self.settings.type)

    def to_settings(self) -> dict[str, Any]:
        """Return the settings as plain data, as an intent records them."""
        return dataclasses.asdict(self.settings)


def load_profile(name_or_path: str) -> Profile:
    """Return the shipped profile of that name, or the one in a file (anything with `/` or `.yaml`).

    Raises:
        UsageError: no such profile, or a key in it is unknown, of the wrong type or out of range.
    """
    path = _find(name_or_path)
    name = path.stem
    if not is_valid_name(name):
        raise UsageError(
            f"`{path}`: {name!r} can't be a profile's name", "use letters, digits, -_."
        )
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(f"`{path}` holds no keys", "begin with `type: local` or `type: slurm`")
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in PROFILE_TYPES:
        raise UsageError(
            f"`{path}`: `type` is {kind!r}",
            did_you_mean(str(kind), PROFILE_TYPES, what="types of profiles"),
        )
    if kind == "slurm":
        return Profile(name, check_slurm(data, lambda key: f"`{path}`"))
    checked = check_group(LocalProfile, data, "", lambda key: f"`{path}`")
    _check_gpus(path, checked["gpus"])
    return Profile(name, LocalProfile(**checked))


def profile_names() -> list[str]:
    """Return the names of the shipped profiles, sorted."""
    return sorted(path.stem for path in _profiles_dir().glob("*.yaml"))


def _profiles_dir() -> Path:
    return SLURM_DIR / "profiles"


def _find(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".yaml"):
        path = Path(name_or_path)
        if not path.is_file():
            raise UsageError(f"the profile `{path}` does not exist", "give a file or a name")
        return path
    path = _profiles_dir() / f"{name_or_path}.yaml"
    if name_or_path not in profile_names():
        raise UsageError(
            f"there is no profile `{name_or_path}`",
            did_you_mean(name_or_path, profile_names(), what="profiles"),
        )
    return path


def _check_gpus(path: Path, gpus: Any) -> None:
    if gpus == AUTO:
        return
    hint = f'write {AUTO} or a list of ids such as ["0", "1"]'
    if not isinstance(gpus, list):
        raise UsageError(f"`{path}`: `gpus` is {gpus!r}", hint)
    for gpu in gpus:
        is_id = isinstance(gpu, (str, int)) and not isinstance(gpu, bool)
        if not is_id or not re.fullmatch(r"[\w.:/-]+", str(gpu)):
            raise UsageError(f"`{path}`: `gpus` holds {gpu!r}", hint)
    if len({str(gpu) for gpu in gpus}) != len(gpus):
        raise UsageError(f"`{path}`: `gpus` names one GPU twice: {gpus}", "name each once")
