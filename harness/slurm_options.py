"""The options of sbatch: which a profile may name under `sbatch`, and which have their own key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from harness.config.check import Locate
from harness.config.secret import find_secret
from harness.errors import UsageError
from harness.near import did_you_mean, near_miss
from harness.printable import one_line, printable

KEYS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "nodes": "nodes",
    "gpus-per-node": "gpus_per_node",
    "cpus-per-task": "cpus_per_task",
    "mem": "mem",
    "mem-per-cpu": "mem_per_cpu",
    "mem-per-gpu": "mem_per_gpu",
    "time": "time",
    "array": "parallelism",
    "mail-type": "mail_type",
    "mail-user": "mail_user",
    "requeue": "requeue",
    "no-requeue": "requeue",
    "signal": "signal_delay_s",
}
"""Option -> key of a profile that stands for it."""
WRITTEN = (
    "comment",
    "error",
    "job-name",
    "nodes",
    "ntasks-per-node",
    "open-mode",
    "output",
    "requeue",
    "signal",
    "wckey",
)
"""What the harness may write by itself, and `null` switches off."""
RESERVED = {
    "comment": "by it an interrupted submission finds its jobs",
    "job-name": "by it an interrupted submission finds its jobs",
    "dependency": "the arrays of a submission and the job that ends it depend on each other",
    "error": "a run's output belongs into one log, which `harness logs` reads",
    "output": "`harness logs` reads the file that the harness names",
    "open-mode": "a run that starts again appends to its log",
    "export-file": "a run gets its folder by environment; put `export` lines into `setup`",
    "parsable": "the harness sets it itself",
    "wait": "sbatch would return only when the runs have ended; `harness run` follows them",
    "wrap": "the harness writes the script",
    "test-only": "sbatch would submit nothing; `harness run --dry-run` shows what it would do",
    "help": "sbatch would submit nothing",
    "usage": "sbatch would submit nothing",
    "version": "sbatch would submit nothing",
}
"""Option -> why no profile sets it."""
_LONG_NAMES = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint
container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task
deadline delay-boot dependency distribution error exclude exclusive export export-file
extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
gpus-per-task gres gres-flags help hint hold ignore-pbs input job-name kill-on-invalid-dep
licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice
no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
ntasks-per-socket oom-kill-step open-mode output overcommit oversubscribe parsable partition
power prefer priority profile propagate qos quiet reboot requeue reservation resv-ports segment
signal sockets-per-node spread-job stepmgr switches test-only thread-spec threads-per-core time
time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose version wait wait-all-nodes
wckey wrap
"""
KNOWN = frozenset(_LONG_NAMES.split())
"""Long options of sbatch from 22.05 on. A cluster's plugins may add others."""
_SYNONYMS = {
    "gpu": "gpus_per_node",
    "gpus": "gpus_per_node",
    "num_gpus": "gpus_per_node",
    "gpus_per_task": "gpus_per_node",
    "cpus": "cpus_per_task",
    "num_cpus": "cpus_per_task",
    "cores": "cpus_per_task",
    "mem_gb": "mem",
    "memory": "mem",
    "mem_per_node": "mem",
    "timeout": "time",
    "timeout_min": "time",
    "time_limit": "time",
    "timelimit": "time",
    "walltime": "time",
    "num_nodes": "nodes",
    "queue": "partition",
    "array": "parallelism",
    "array_parallelism": "parallelism",
    "max_parallel": "parallelism",
    "signal": "signal_delay_s",
    "no_requeue": "requeue",
    "max_num_timeout": "max_requeues",
    "additional_parameters": "sbatch",
    "extra": "sbatch",
    "prologue": "setup",
}
"""What the same thing is called elsewhere -> key of a profile."""
_ENVIRONMENT = {
    "array-inx": "array",
    "timelimit": "time",
    "mem-per-node": "mem",
    "req-switch": "switches",
    "wait4switch": "switches",
    "debug": "verbose",
}
"""`SBATCH_…` in the form of options, where it differs from the option's name."""
GPU_OPTIONS = ("gpus", "gpus-per-socket", "gpus-per-task")
"""What asks for GPUs, beside `gres`."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_GPU_GRES = re.compile(r"gpu(?::[\w.-]*[A-Za-z_][\w.-]*)?(?::([0-9]+))?(?:\(.*\))?", re.ASCII)


def check_options(data: Any, key: str, locate: Locate, *, overrides: bool) -> dict[str, Any]:
    """Return the options under `sbatch`, each by its long name: text, a number, True or None.

    Args:
        key: dotted key of the group, for messages.
        overrides: whether they override a profile's, so that null may take back any of them.

    Raises:
        UsageError: an option has a key of its own, is the harness's, or has no such value.
    """
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise UsageError(
            f"{locate(key)}: `{key}` is {data!r}, want options of sbatch",
            "write `sbatch: {constraint: h100}`",
        )
    checked: dict[str, Any] = {}
    for written, value in data.items():
        name = _to_name(written, key, locate)
        if name in checked:
            raise UsageError(
                f"{locate(key)}: `{key}` names the option `{name}` twice", "name it once"
            )
        if value is None:
            _check_null(name, key, locate, overrides=overrides)
        else:
            _check_option(name, value, f"{key}.{name}", locate)
        checked[name] = value
    return checked


def unknown_key_hint(name: str, allowed: tuple[str, ...], *, what: str = "keys") -> str:
    """Return what to write instead of the key `name`, which is none of `allowed`."""
    plain = name.strip("-").lower().replace("-", "_").removeprefix("slurm_")
    option = plain.replace("_", "-")
    if plain == "gres" and "gpus_per_node" in allowed:
        return "write `gpus_per_node: 8`, or `sbatch: {gres: …}` for a type of GPU"
    meant = _SYNONYMS.get(plain, KEYS.get(option, plain))
    if meant in allowed:
        return f"write `{meant}`"
    if option in RESERVED:
        return RESERVED[option]
    near = near_miss(plain, allowed)
    if near is None and "sbatch" in allowed:
        near_option = option if option in KNOWN else near_miss(option, KNOWN)
        if near_option is not None:
            return f"any other option of sbatch stands under `sbatch: {{{near_option}: …}}`"
    return did_you_mean(plain, allowed, what=what)


def replacement_of(variable: str) -> str:
    """Return what stands for an `SBATCH_…` variable in a profile, for a message.

    The harness submits without these variables, so that what a shell happens to hold changes no
    run. Empty where the harness decides it alone.
    """
    option = variable.removeprefix("SBATCH_").lower().replace("_", "-")
    option = _ENVIRONMENT.get(option, option)
    if option == "no-requeue":
        return "`requeue: false`"
    if option in KEYS:
        return f"`{KEYS[option]}`"
    return "" if option in RESERVED else f"`sbatch: {{{option}: …}}`"


def _to_name(written: Any, key: str, locate: Locate) -> str:
    name = str(written).replace("_", "-")
    if isinstance(written, str) and _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{locate(key)}: `{key}` holds {written!r}, which can't be an option of sbatch",
        "write its long name without dashes before it, such as `constraint`",
    )


def _check_null(name: str, key: str, locate: Locate, *, overrides: bool) -> None:
    if name == "array":
        raise UsageError(
            f"{locate(key)}: `{key}.array` can't be switched off",
            "the runs of a sweep are the elements of an array",
        )
    if name in RESERVED and name not in WRITTEN:
        raise UsageError(
            f"{locate(key)}: `{key}.{name}` is not for a profile to set", RESERVED[name]
        )
    if name not in WRITTEN and not overrides:
        raise UsageError(
            f"{locate(key)}: `{key}.{name}` is null, and the harness does not write that option",
            f"set `{KEYS[name]}: null`" if name in KEYS else did_you_mean(name, WRITTEN),
        )


def _check_option(name: str, value: Any, key: str, locate: Locate) -> None:
    if name in KEYS:
        raise UsageError(
            f"{locate(key)}: `{key}` has a key of its own", f"write `{KEYS[name]}` instead"
        )
    if name in RESERVED:
        off = "; null switches it off" if name in WRITTEN else ""
        raise UsageError(
            f"{locate(key)}: `{key}` is not for a profile to set", f"{RESERVED[name]}{off}"
        )
    if value is True and name != "export":
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number or isinstance(value, str)):
        raise UsageError(
            f"{locate(key)}: `{key}` is {value!r}, want text, a number or true",
            "leave the option out" if value is False else "write a list as text: `a,b`",
        )
    if is_number and not math.isfinite(value):
        raise UsageError(f"{locate(key)}: `{key}` is {value}", "write a finite number")
    check_text(str(value), key, locate)
    if name == "export" and value.split(",")[0] != "ALL":
        raise UsageError(
            f"{locate(key)}: `{key}` is {value!r}, but a run gets its folder by environment",
            "leave it out, or begin with `ALL`: `ALL,NAME=value`",
        )


def check_text(text: str, key: str, locate: Locate) -> None:
    """Refuse text that can't stand on a line of a script that others may read."""
    secret = find_secret(text)
    if secret is not None:
        raise UsageError(
            f"{locate(key)}: `{key}` looks like it holds a secret ({one_line(secret)}), and the"
            " job's script is a file that others read",
            "keep it in the environment, in ~/.netrc, or in a file that the line reads",
        )
    if not text.strip():
        raise UsageError(f"{locate(key)}: `{key}` is empty", "leave it out, or write null")
    if printable(text, keep="\t") != text:
        raise UsageError(
            f"{locate(key)}: `{key}` is {text!r}, want one line without control characters",
            "write one line",
        )


def gpu_options(options: Mapping[str, Any]) -> list[str]:
    """Return those of the `options` that ask for GPUs."""
    return [
        name
        for name, value in options.items()
        if value is not None and (name in GPU_OPTIONS or (name == "gres" and gpu_counts(value)))
    ]


def gpu_counts(gres: Any) -> list[int]:
    """Return the counts of the parts of a `gres` that are GPUs (`gpu`, `gpu:8`, `gpu:h100:8`)."""
    matches = (_GPU_GRES.fullmatch(part.strip()) for part in str(gres).split(","))
    return [int(match[1] or 1) for match in matches if match is not None]
