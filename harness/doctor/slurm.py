"""SLURM as this machine reaches it: commands, controller, accounting, limits."""

from __future__ import annotations

import os
import shutil

from harness.doctor.check import Check, failed, ok, warning
from harness.scheduler.commands import SlurmError, call, ping, show_config

NEEDED = ("sbatch", "squeue", "scancel", "scontrol")
"""Commands without which nothing runs; `srun` is needed on the nodes."""
LOGIN_TODO = "load your site's SLURM module, or work on a login node of the cluster"
ALLOCATION_ENV = "SLURM_JOB_ID"

_NO_STORAGE = ("accounting_storage/none", "(null)", "")


def check_commands(*, is_needed: bool) -> Check:
    """Whether SLURM's commands are on the PATH.

    Args:
        is_needed: whether a profile of a cluster is asked for.
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if not missing:
        folder = os.path.dirname(shutil.which(NEEDED[0]) or "")  # noqa: PTH120 (a text to show)
        return ok("SLURM commands", f"{', '.join(NEEDED)} in {folder}")
    if not is_needed and len(missing) == len(NEEDED):
        return ok("SLURM commands", "none here; the profile `local` needs none")
    found = f"not on the PATH: {', '.join(missing)}"
    return (failed if is_needed else warning)("SLURM commands", found, LOGIN_TODO)


def check_cluster(*, is_needed: bool) -> list[Check]:
    """Check the controller, its accounting and its limits. The commands are there.

    Args:
        is_needed: whether a profile of a cluster is asked for.
    """
    unreachable = failed if is_needed else warning
    wrong = ping()
    if wrong is not None:
        todo = "`scontrol ping` says more; if SLURM_CONF is set, see whether it names the cluster"
        return [unreachable("controller", wrong, todo)]
    try:
        config = show_config()
    except SlurmError as error:
        return [unreachable("controller", error.message, error.hint or "try again in a minute")]
    version, name = config.get("SLURM_VERSION", "?"), config.get("ClusterName", "?")
    checks = [ok("controller", f"answers: cluster {name}, SLURM {version}")]
    job_id = os.environ.get(ALLOCATION_ENV)
    if job_id:
        checks.append(
            ok("allocation", f"this shell runs inside job {job_id}; its SLURM_* are left out")
        )
    return [*checks, _check_accounting(config), _check_arrays(config)]


def _check_accounting(config: dict[str, str]) -> Check:
    age = config.get("MinJobAge", "").removesuffix(" sec")
    kept = f"for {age} s " if age.isdecimal() else ""
    if config.get("AccountingStorageType", "") in _NO_STORAGE:
        return warning(
            "accounting",
            f"off: SLURM remembers a job {kept}after its end and no longer",
            "nothing to do; the runs' own records tell how they ended, and one that left none"
            " becomes `lost`",
        )
    try:
        call(["sacct", "--noheader", "--allocations", "--starttime=now", "--format=JobID"])
    except SlurmError as error:
        return warning(
            "accounting",
            error.message,
            f"until slurmdbd answers, SLURM remembers a job {kept}after its end",
        )
    return ok("accounting", "on; sacct answers")


def _check_arrays(config: dict[str, str]) -> Check:
    size = config.get("MaxArraySize", "")
    if not size.isdecimal() or int(size) < 1:
        todo = "ask your site to allow job arrays (MaxArraySize in slurm.conf)"
        return failed("arrays", f"the cluster allows none (MaxArraySize is `{size}`)", todo)
    return ok("arrays", f"up to {size} runs each; larger sweeps are split")
