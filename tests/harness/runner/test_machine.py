from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harness.runner import machine


def test_usable_cores_never_exceed_the_affinity() -> None:
    assert 1 <= machine.usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("listed", "ids"),
    [("0,2", ("0", "2")), ("", ()), (" 1 , GPU-5a ", ("1", "GPU-5a"))],
)
def test_gpu_ids_follow_the_mask_of_the_shell(
    monkeypatch: pytest.MonkeyPatch, listed: str, ids: tuple[str, ...]
) -> None:
    monkeypatch.setenv(machine.VISIBLE_GPUS_ENV, listed)
    assert machine.visible_gpu_ids() == ids


@pytest.mark.skipif(
    Path("/proc/driver/nvidia/gpus").exists(),
    reason="the driver answers before nvidia-smi is asked",
)
def test_gpus_are_counted_by_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A double of the program: this machine has no GPU.
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'NVIDIA H200\\nNVIDIA H200\\n'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv(machine.VISIBLE_GPUS_ENV, raising=False)
    assert machine.visible_gpu_ids() == ("0", "1")
    monkeypatch.setenv(machine.VISIBLE_GPUS_ENV, "1")
    assert machine.visible_gpu_models() == ("NVIDIA H200",)


def test_versions_name_the_packages_without_importing_them() -> None:
    assert {"harness", "torch", "numpy"} <= set(machine.versions())
