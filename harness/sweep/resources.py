"""`resources:` of a sweep file: what single arms need of a SLURM cluster.

They say where runs execute, never what they compute: no run's identity and no difference between
arms holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.slurm_profile import check_resources


def load_resources(content: Any, arms: Sequence[str], path: Path) -> dict[str, dict[str, Any]]:
    """Return, for each arm named, the keys that it overrides in a profile, in their one form.

    Raises:
        UsageError: no such arm or key, or a value that the key can't have.
    """
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise UsageError(
            f"`{path}`: `resources` is {content!r}, want arms with keys of a SLURM profile",
            "write `resources: {ipo: {gpus_per_node: 2, time: 4:00:00}}`",
        )
    checked: dict[str, dict[str, Any]] = {}
    for name, keys in content.items():
        arm = str(name)
        if arm not in arms:
            raise UsageError(
                f"`{path}`: `resources` names `{arm}`, which is not an arm",
                did_you_mean(arm, arms, what="arms"),
            )
        if not isinstance(keys, Mapping):
            raise UsageError(
                f"`{path}`: `resources.{arm}` is {keys!r}, want keys of a SLURM profile",
                f"write `{arm}: {{gpus_per_node: 2, time: 4:00:00}}`",
            )
        checked[arm] = check_resources(keys, f"resources.{arm}", lambda key: f"`{path}`")
    return {arm: keys for arm, keys in checked.items() if keys}
