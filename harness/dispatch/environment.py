"""What of a shell's environment runs inherit: all but what belongs to one run."""

from __future__ import annotations

from collections.abc import Mapping

_OWN_PREFIX = "HARNESS_"
_RUN_ID_VARIABLES = ("PRL_RUN_ID", "PRL_RUN_NAME", "WANDB_RUN_ID", "WANDB_RESUME")
"""Set in a shell, these would make one tracker run of all runs of a sweep."""


def without_run_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without the harness's own variables and those that name one tracker run."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_OWN_PREFIX) and name not in _RUN_ID_VARIABLES
    }
