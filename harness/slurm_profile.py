"""The keys of a profile of type `slurm`, strictly checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from harness.config.check import Locate
from harness.config.fields import choice, number
from harness.errors import UsageError
from harness.slurm_keys import FINISH_KEYS as FINISH_KEYS
from harness.slurm_keys import MEMORY_KEYS, check_keys, join_key
from harness.slurm_options import WRITTEN, gpu_counts, gpu_options
from harness.slurm_time import MAX_MINUTES, show_minutes

RESOURCE_KEYS = (
    "partition",
    "account",
    "qos",
    "nodes",
    "gpus_per_node",
    "cpus_per_task",
    *MEMORY_KEYS,
    "time",
    "sbatch",
)
"""What a sweep may override for an arm."""
FINISH_MINUTES = 30
FINISH_MEM = "2G"
_KEPT_FOR_FINISH = ("clusters", "reservation", "wckey")


@dataclass(frozen=True, kw_only=True)
class SlurmProfile:
    """A SLURM cluster. None leaves an option to the cluster's own default.

    All values are plain data, as an intent records them.

    Attributes:
        partition, account, qos: where a run queues and who pays.
        nodes, gpus_per_node, cpus_per_task: of each run.
        mem, mem_per_cpu, mem_per_gpu: memory as SLURM writes it (`64G`, a bare number is MB); at
            most one of the three.
        time: limit of a run in whole minutes.
        parallelism: runs at once; None for no limit of the harness's own.
        setup: lines of bash before the program; one that fails ends the job.
        python: shell words that start Python on the node; None for the interpreter that submits.
        use_srun: whether the program starts as a step of the job; None for yes on one node.
        srun_args: further arguments of that `srun`.
        mail_type, mail_user: SLURM's own mails.
        sbatch: any other option of sbatch by its long name; None switches off one that the
            harness writes by itself.
        requeue: whether SLURM may start a job again, and whether the runner has it started again.
        max_requeues: restarts per run and submission that the runner itself asks for.
        signal_delay_s: seconds between the warning and the time limit.
        grace_s: seconds between asking a trainer to stop and killing it.
        heartbeat_limit_s: seconds after which a run without a sign of life counts as gone.
        stall_limit_s: seconds without a new step after which a run is stalled; None for never.
        stall_action: `warn`, or `requeue` to stop a stalled run and have it started again.
        retry_failures: whether a failed run is started again.
        quick_failure_s: two failures in a row that each came sooner than this are final.
        poll_s: seconds between two looks of a command that follows.
        notify: {`command`: a line of bash} or {`webhook`: a URL, or `$NAME` of a variable that
            holds it}, run when the submission has ended.
        finish: overrides (FINISH_KEYS) of the job that ends a submission, see `finish_settings`.
    """

    type: str = choice("slurm", "slurm")
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int = number(1, ge=1, le=100_000)
    gpus_per_node: int | None = number(None, ge=0, le=1_000)
    cpus_per_task: int | None = number(None, ge=1, le=100_000)
    mem: str | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    time: int | None = number(None, ge=1, le=MAX_MINUTES)
    parallelism: int | None = number(None, ge=1, le=1_000_000)
    setup: tuple[str, ...] = ()
    python: str | None = None
    use_srun: bool | None = None
    srun_args: tuple[str, ...] = ()
    mail_type: str | None = None
    mail_user: str | None = None
    sbatch: dict[str, Any] = field(default_factory=dict)
    requeue: bool = True
    max_requeues: int = number(20, ge=0, le=100_000)
    signal_delay_s: int = number(120, ge=1, le=65_535)
    grace_s: float = number(60.0, ge=0, le=86_400)
    heartbeat_limit_s: float = number(60.0, ge=5, le=86_400)
    stall_limit_s: float | None = number(1800.0, ge=1, le=10_000_000)
    stall_action: str = choice("warn", "warn", "requeue")
    retry_failures: bool = True
    quick_failure_s: float = number(60.0, ge=0, le=86_400)
    poll_s: float = number(15.0, ge=0.1, le=86_400)
    notify: dict[str, str] | None = None
    finish: dict[str, Any] | None = None


PROFILE_KEYS = tuple(spec.name for spec in fields(SlurmProfile))


def check_slurm(data: Mapping[Any, Any], locate: Locate) -> SlurmProfile:
    """Return the profile that a file's keys stand for.

    Raises:
        UsageError: a key is unknown, of the wrong form, out of range, or at odds with another.
    """
    checked = check_keys(SlurmProfile, data, PROFILE_KEYS, "", locate, overrides=False)
    settings = SlurmProfile(**checked)
    _check_together(settings, locate)
    return settings


def check_resources(data: Mapping[Any, Any], key: str, locate: Locate) -> dict[str, Any]:
    """Return RESOURCE_KEYS that override a profile's, in their one form (`time` in minutes).

    Args:
        key: dotted key of the group, for messages.

    Raises:
        UsageError: as `check_slurm`, as far as it can be told without the profile.
    """
    checked = check_keys(SlurmProfile, data, RESOURCE_KEYS, key, locate, overrides=True)
    _check_memory(checked, key, locate)
    _check_gpus(checked, key, locate)
    return checked


def override_settings(
    settings: SlurmProfile, overrides: Mapping[str, Any], where: str = "the sweep's `resources`"
) -> SlurmProfile:
    """Return `settings` with the RESOURCE_KEYS in `overrides`.

    A memory option replaces the profile's, a way of asking for GPUs likewise. Options of `sbatch`
    are merged by name; null takes back the profile's.

    Raises:
        UsageError: an override is none, or does not fit the rest; says `where`.
    """
    changes = check_resources(overrides, "", lambda key: where)
    options = changes.pop("sbatch", {})
    kept = dict(settings.sbatch)
    if any(key in changes for key in MEMORY_KEYS):
        changes = {**dict.fromkeys(MEMORY_KEYS), **changes}
    if "gpus_per_node" in changes or gpu_options(options):
        kept = {name: kept[name] for name in kept if name not in gpu_options(kept)}
        changes.setdefault("gpus_per_node", None)
    merged = replace(settings, **changes, sbatch=_merge_options(kept, options))
    _check_together(merged, lambda key: where)
    return merged


def finish_settings(settings: SlurmProfile) -> SlurmProfile:
    """Return the settings of the small job that ends a submission.

    One CPU and no GPU where the runs queue, for half an hour or a run's limit where that is
    shorter, with what `finish` overrides. Of the profile's other options it keeps those that are
    switched off and those that say where and on whose account.
    """
    overrides = settings.finish or {}
    kept = {
        name: value
        for name, value in settings.sbatch.items()
        if value is None or name in _KEPT_FOR_FINISH
    }
    plain = {
        "nodes": 1,
        "gpus_per_node": None,
        "cpus_per_task": 1,
        "mem": FINISH_MEM,
        "mem_per_cpu": None,
        "mem_per_gpu": None,
        "time": min(FINISH_MINUTES, settings.time or FINISH_MINUTES),
        "parallelism": None,
        "finish": None,
    }
    sbatch = _merge_options(kept, overrides.get("sbatch", {}))
    return replace(settings, **{**plain, **overrides, "sbatch": sbatch})


def count_gpus(settings: SlurmProfile) -> int | None:
    """Return the GPUs of one run on all its nodes; None where the profile does not say."""
    if settings.gpus_per_node is not None:
        return settings.nodes * settings.gpus_per_node
    options = gpu_options(settings.sbatch)
    if options == ["gres"]:
        return settings.nodes * sum(gpu_counts(settings.sbatch["gres"]))
    if options == ["gpus"]:
        counts = [part.rpartition(":")[2] for part in str(settings.sbatch["gpus"]).split(",")]
        return sum(map(int, counts)) if all(count.isdecimal() for count in counts) else None
    return None


def _merge_options(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of both; null takes back one that the harness does not write itself."""
    merged = {**options, **changes}
    return {name: value for name, value in merged.items() if value is not None or name in WRITTEN}


def _check_together(settings: SlurmProfile, locate: Locate) -> None:
    """Refuse keys that are at odds with each other."""
    values = {spec.name: getattr(settings, spec.name) for spec in fields(settings)}
    _check_memory(values, "", locate)
    _check_gpus(values, "", locate)
    switched_off = {name for name, value in settings.sbatch.items() if value is None}
    if {"comment", "job-name"} <= switched_off:
        raise UsageError(
            f"{locate('sbatch')}: `sbatch.comment` and `sbatch.job-name` are both null",
            "keep one: by it an interrupted submission finds its jobs",
        )
    if settings.grace_s > settings.signal_delay_s:
        raise UsageError(
            f"{locate('grace_s')}: `grace_s` is {settings.grace_s:g}, longer than `signal_delay_s`"
            f" ({settings.signal_delay_s}), so a run could not save before its time limit",
            "lower `grace_s` or raise `signal_delay_s`",
        )
    if settings.time is not None and settings.signal_delay_s >= settings.time * 60:
        raise UsageError(
            f"{locate('time')}: `time` is {show_minutes(settings.time)}, no longer than the warning"
            f" before it (`signal_delay_s`: {settings.signal_delay_s})",
            "raise `time` or lower `signal_delay_s`",
        )


def _check_memory(values: Mapping[str, Any], key: str, locate: Locate) -> None:
    given = [join_key(key, name) for name in MEMORY_KEYS if values.get(name) is not None]
    if len(given) > 1:
        shown = " and ".join(f"`{name}`" for name in given)
        raise UsageError(
            f"{locate(given[0])}: {shown} are both set, and SLURM takes one", "keep one of them"
        )


def _check_gpus(values: Mapping[str, Any], key: str, locate: Locate) -> None:
    options = [join_key(key, f"sbatch.{name}") for name in gpu_options(values.get("sbatch") or {})]
    if values.get("gpus_per_node") is not None:
        options.insert(0, join_key(key, "gpus_per_node"))
    if len(options) > 1:
        raise UsageError(
            f"{locate(options[0])}: `{options[0]}` and `{options[1]}` both ask for GPUs",
            "keep one of them",
        )
