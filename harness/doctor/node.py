"""What a probe tells from a node: `python -P -m harness.doctor.node`, started by its batch script.

It reads the probe's nonce from the shared folder and writes what it found beside it.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import harness
from harness.errors import HarnessError
from harness.records.files import read_json, write_json
from harness.runner.machine import VISIBLE_GPUS_ENV, visible_gpu_ids, visible_gpu_models
from harness.runner.process import host_name
from harness.scheduler.commands import SlurmError, show_job

NODE_MODULE = "harness.doctor.node"
PROBE_DIR_ENV = "HARNESS_PROBE_DIR"
ASKED = "probe.json"
"""Written before the job is handed over; holds the nonce."""
ANSWER = "answer.json"
RANK_ENV = "SLURM_PROCID"


def main() -> int:
    """Write the answer; return 0, or 3 where this node doesn't see the probe's folder."""
    if os.environ.get(RANK_ENV, "0") != "0":
        return 0
    folder = Path(os.environ.get(PROBE_DIR_ENV, ""))
    try:
        nonce = read_json(folder / ASKED).get("nonce")
        write_json(folder / ANSWER, {"nonce": nonce, **look_around()}, durable=True)
    except (HarnessError, OSError) as error:
        print(f"harness: {host_name()} can't use `{folder}`: {error}", file=sys.stderr)
        return 3
    return 0


def look_around() -> dict[str, object]:
    """Return what this node has, as plain data."""
    return {
        "host": host_name(),
        "node": os.environ.get("SLURMD_NODENAME"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "harness": str(Path(harness.__file__).resolve().parent),
        "visible_gpus": os.environ.get(VISIBLE_GPUS_ENV),
        "gpu_ids": list(visible_gpu_ids()),
        "gpu_models": list(visible_gpu_models()),
        "scontrol": _ask_slurm(),
    }


def _ask_slurm() -> str:
    """Return why SLURM can't be asked from this node; empty where it answers."""
    try:
        show_job(os.environ.get("SLURM_JOB_ID", ""))
    except SlurmError as error:
        return error.message
    return ""


if __name__ == "__main__":
    sys.exit(main())
