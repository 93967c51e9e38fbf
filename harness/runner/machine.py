"""What a machine has: cores, GPUs, processor, versions. Nothing here imports what it describes."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness import __version__
from harness.runner.process import host_name

VISIBLE_GPUS_ENV = "CUDA_VISIBLE_DEVICES"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""What numerical libraries take their number of threads from."""
_SLURM_HAS_NONE = "NoDevFiles"
"""What SLURM puts there for a job that asked for no GPU."""
RECORDED_VERSIONS = ("torch", "numpy")

_NVIDIA_SMI_TIMEOUT_S = 5.0


def usable_cores() -> int:
    """Return how many cores this process may use: its affinity and its cgroup's quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _cgroup_quota()
    return max(1, min(cores, math.ceil(quota)) if quota is not None else cores)


def visible_gpu_ids() -> tuple[str, ...]:
    """Return the ids to put in `CUDA_VISIBLE_DEVICES`: what it holds now, or 0..n-1."""
    listed = os.environ.get(VISIBLE_GPUS_ENV)
    if listed == _SLURM_HAS_NONE:
        return ()
    if listed is not None:
        return tuple(gpu for gpu in (part.strip() for part in listed.split(",")) if gpu)
    return tuple(str(i) for i in range(len(gpu_models())))


def gpu_models() -> tuple[str, ...]:
    """Return the model of each NVIDIA GPU of the machine in bus order; empty where none is.

    The driver's /proc files answer at once; `nvidia-smi` can take seconds and is asked only where
    they are missing.
    """
    folder = Path("/proc/driver/nvidia/gpus")
    models = []
    for path in sorted(folder.glob("*/information")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if models:
        return tuple(models)
    return _models_by_nvidia_smi()


def visible_gpu_models() -> tuple[str, ...]:
    """Return the models of the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible.

    All of the machine's where it names them in another way than by index (UUIDs, MIG).
    """
    models, ids = gpu_models(), visible_gpu_ids()
    if all(gpu.isdecimal() and int(gpu) < len(models) for gpu in ids):
        return tuple(models[int(gpu)] for gpu in ids)
    return models


def machine_facts() -> dict[str, Any]:
    """Return what a claim records of the machine and the interpreter."""
    return {
        "hostname": host_name(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu_model": cpu_model(),
        "cores": usable_cores(),
        "gpus": list(visible_gpu_models()),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the harness and of what the numbers depend on, where installed."""
    found = {"harness": __version__}
    for name in RECORDED_VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """Return the processor's name, or its architecture where the kernel doesn't give one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.machine()


def _models_by_nvidia_smi() -> tuple[str, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _cgroup_quota() -> float | None:
    """Return the tightest CPU quota of this process's cgroups in cores (version 2, then 1)."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            root = Path("/sys/fs/cgroup")
        elif "cpu" in controllers.split(","):
            root = Path("/sys/fs/cgroup") / controllers
        else:
            continue
        folder = root / path.lstrip("/")
        for candidate in (folder, *folder.parents):
            quotas += _quota_in(candidate)
            if candidate == root:
                break
    return min(quotas, default=None)


def _quota_in(folder: Path) -> list[float]:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return []
    return [int(quota) / int(period)] if quota.isdecimal() and int(period) > 0 else []
