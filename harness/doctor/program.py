"""Python, the packages that the harness needs, and the GPUs that it sees here."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Sequence

from packaging.requirements import Requirement

from harness.doctor.check import Check, failed, ok, warning
from harness.runner.machine import VISIBLE_GPUS_ENV, visible_gpu_models

DISTRIBUTION = "ablation-harness"
OLDEST_PYTHON = (3, 11)


def check_python() -> Check:
    """Whether this interpreter is new enough, and which one it is."""
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return failed("python", found, f"use Python {wanted} or newer")
    return ok("python", found)


def check_packages() -> Check:
    """Whether the packages that the harness requires are installed in versions that it takes."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return warning(
            "packages",
            f"{DISTRIBUTION} runs without being installed, so its requirements are unknown",
            "install it: `pip install .` in a clone",
        )
    return judge_packages(lines)


def judge_packages(requirements: Sequence[str]) -> Check:
    """Compare what is installed with `requirements` (as in a wheel's metadata)."""
    wanted = [r for r in map(Requirement, requirements) if r.marker is None or r.marker.evaluate()]
    wrong: list[str] = []
    to_install: list[str] = []
    for requirement in wanted:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if version and requirement.specifier.contains(version, prereleases=True):
            continue
        wrong.append(f"{requirement.name} {version or 'is missing'} (want {requirement.specifier})")
        to_install.append(f"'{requirement.name}{requirement.specifier}'")
    if wrong:
        return failed("packages", ", ".join(wrong), f"pip install {' '.join(to_install)}")
    return ok("packages", f"all {len(wanted)} in range")


def check_gpus() -> Check:
    """Which GPUs runs on this machine would see, and whether torch can use them."""
    models = visible_gpu_models()
    if not models:
        return ok("GPUs here", "none; a login node often has none")
    names = ", ".join(f"{models.count(name)} x {name}" for name in dict.fromkeys(models))
    import torch  # noqa: PLC0415 (takes seconds, and is asked only where there is a GPU)

    if not torch.cuda.is_available():
        return warning(
            "GPUs here",
            f"{names}, which torch {torch.__version__} can't use",
            "install a torch that is built for this driver's CUDA;"
            f" see what {VISIBLE_GPUS_ENV} holds",
        )
    return ok("GPUs here", f"{names}, torch {torch.__version__} sees {torch.cuda.device_count()}")
