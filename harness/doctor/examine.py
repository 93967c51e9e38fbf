"""Runs the checks in their order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

from harness.doctor.check import Check, Verdict
from harness.doctor.outputs import check_outputs
from harness.doctor.partition import check_profile
from harness.doctor.probe import run_probe
from harness.doctor.program import check_gpus, check_packages, check_python
from harness.doctor.slurm import NEEDED, check_cluster, check_commands
from harness.doctor.wandb import check_wandb
from harness.profile import Profile
from harness.records.layout import outputs_root
from harness.slurm_profile import SlurmProfile


def examine(
    profile: Profile | None = None,
    *,
    with_probe: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Check]:
    """Yield each finding as soon as it is known.

    Args:
        profile: also check what it needs.
        with_probe: also run a job through it, where all that comes before allows it.
        say: told in lines what is being waited for.
    """
    root = outputs_root()
    settings = None if profile is None else profile.settings
    is_cluster = isinstance(settings, SlurmProfile)
    yield check_python()
    yield check_packages()
    checks = check_outputs(root, is_shared_needed=is_cluster)
    yield from checks
    is_fit = all(check.verdict is not Verdict.FAILED for check in checks)
    yield check_wandb()
    yield check_gpus()
    yield check_commands(is_needed=is_cluster)
    if any(shutil.which(name) is None for name in NEEDED):
        return
    checks = check_cluster(is_needed=is_cluster)
    yield from checks
    if profile is None or not is_cluster:
        return
    if any(check.verdict is Verdict.FAILED for check in checks):
        return
    checks = check_profile(profile, root)
    yield from checks
    if with_probe and is_fit and all(c.verdict is not Verdict.FAILED for c in checks):
        yield from run_probe(profile, root, say)
