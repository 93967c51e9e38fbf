"""A job of one minute, handed over as a run would be, that tells what a node sees."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.dispatch.script import BatchJob, check_path
from harness.doctor.check import Check, failed, ok, warning
from harness.doctor.node import ANSWER, ASKED, NODE_MODULE, PROBE_DIR_ENV
from harness.errors import HarnessError
from harness.profile import Profile
from harness.records.files import read_json_if_there, write_json
from harness.records.layout import SweepPaths
from harness.runner.failure import read_tail
from harness.scheduler.commands import SlurmError, scancel, show_job
from harness.scheduler.words import Phase, phase_of
from harness.slurm_profile import SlurmProfile, count_gpus
from harness.sweep.code_copy import freeze_code, read_code

WAIT_LIMIT_S = 600.0
"""How long the job may wait in the queue before the probe gives up and cancels it."""

_MINUTES = 1
_POLL_S = 1.0
_SUBMIT_TIMEOUT_S = 120.0
_LAG_S = 5.0
"""How long a shared folder may take to show what a node has written."""
_LOG = "job.log"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Probe:
    """One probe: its folder below the outputs, and what proves that a node has read it."""

    folder: Path
    nonce: str
    settings: SlurmProfile

    @property
    def log(self) -> Path:
        return self.folder / _LOG

    def answer(self) -> dict[str, Any] | None:
        return read_json_if_there(self.folder / ANSWER)


def run_probe(
    profile: Profile, root: Path, say: Say, *, wait_limit_s: float = WAIT_LIMIT_S
) -> list[Check]:
    """Run the job, wait for its end and return what it found. Leaves nothing behind.

    Args:
        root: the folder of all sweeps.
        say: told in one line when the job's state changes.
    """
    from harness.dispatch.slurm import SbatchError, sbatch  # noqa: PLC0415 (loads submitit)

    settings = dataclasses.replace(
        profile.settings, time=_MINUTES, requeue=False, mail_type=None, mail_user=None
    )
    try:
        check_path(root, "the folder of the outputs")
        with _open_probe(root, settings) as probe:
            try:
                job_id = sbatch(_job(probe), probe.folder.absolute(), _SUBMIT_TIMEOUT_S).job_id
            except SbatchError as error:
                todo = "see to the profile and your account's limits"
                return [failed("probe", f"SLURM refused the job: {error.words}", todo)]
            return _wait(probe, job_id, say, wait_limit_s)
    except HarnessError as error:
        return [failed("probe", error.message, error.hint or "try again")]


@contextlib.contextmanager
def _open_probe(root: Path, settings: SlurmProfile) -> Iterator[Probe]:
    """Make the folder that the job gets; afterwards it is gone, and so is a root made for it."""
    was_there = root.is_dir()
    nonce = secrets.token_hex(8)
    folder = root / f".doctor-{nonce}"
    try:
        folder.mkdir(parents=True)
        write_json(folder / ASKED, {"nonce": nonce}, durable=True)
        yield Probe(folder, nonce, settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):
                root.rmdir()


def _job(probe: Probe) -> BatchJob:
    settings = probe.settings
    # As a run: its Python gets the harness from a copy in the shared folder.
    code_dir = freeze_code(read_code(), SweepPaths(probe.folder))
    return BatchJob(
        name="probe",
        job_name=f"harness-doctor@{probe.nonce}",
        comment="harness doctor",
        settings=settings,
        module=NODE_MODULE,
        env={PROBE_DIR_ENV: str(probe.folder.absolute())},
        code_dir=str(code_dir.absolute()),
        log=str(probe.log.absolute()),
        is_step=settings.nodes == 1 if settings.use_srun is None else settings.use_srun,
    )


def _wait(probe: Probe, job_id: str, say: Say, wait_limit_s: float) -> list[Check]:
    began = time.monotonic()
    said = ""
    has_ended = False
    try:
        while True:
            job = _ask(job_id)
            state = job.get("JobState", "gone")
            phase = phase_of(state) if job else Phase.ENDED
            if phase is Phase.ENDED:
                has_ended = True
                return _judge(probe, job_id, job, time.monotonic() - began)
            reason = job.get("Reason", "None")
            line = f"probe: job {job_id} is {state}" + (f" ({reason})" if reason != "None" else "")
            if line != said:
                say(line)
                said = line
            if phase is Phase.WAITING and time.monotonic() - began > wait_limit_s:
                return [
                    failed(
                        "probe",
                        f"job {job_id} didn't start within {wait_limit_s:.0f} s: {reason}",
                        "`squeue --start` tells when it may; try again, or on another partition",
                    )
                ]
            time.sleep(_POLL_S)
    finally:
        if not has_ended:
            with contextlib.suppress(SlurmError):
                scancel([job_id])


def _ask(job_id: str) -> dict[str, str]:
    """Return what SLURM says of the job; empty where it no longer knows it."""
    try:
        return show_job(job_id)
    except SlurmError as error:
        if "Invalid job id" in error.message:
            return {}
        raise


def _judge(probe: Probe, job_id: str, job: dict[str, str], took_s: float) -> list[Check]:
    deadline = time.monotonic() + _LAG_S
    while (answer := probe.answer()) is None and time.monotonic() < deadline:
        if job.get("ExitCode", "0:0") != "0:0" and probe.log.exists():
            break  # it said why there is no answer
        time.sleep(0.1)
    if answer is None:
        return [_judge_silence(probe, job_id, job)]
    node = str(answer["node"] or answer["host"])
    return [
        ok("probe", f"job {job_id} ran on {node} and ended after {took_s:.0f} s"),
        _judge_folder(probe, answer, node),
        ok("python there", f"{answer['python']}, {answer['executable']}"),
        _judge_gpus(probe.settings, answer, node),
        _judge_scontrol(answer, node),
    ]


def _judge_silence(probe: Probe, job_id: str, job: dict[str, str]) -> Check:
    node = job.get("NodeList", "") or "the node"
    ended = f"job {job_id} on {node} ended {job.get('JobState', 'without a trace')}"
    code = job.get("ExitCode", "0:0")
    if code != "0:0":
        ended += f" ({code})"
    if not probe.log.exists():
        return failed(
            "folder there",
            f"{ended} and left nothing in `{probe.folder.parent.absolute()}`: it doesn't see it",
            "choose a folder that all nodes share with HARNESS_OUTPUTS=DIR",
        )
    lines = [line.strip() for line in read_tail(probe.log).splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))]
    last = (own or lines or ["it printed nothing"])[-1]
    return failed("program there", f"{ended}: {last}", "see to `python` and `setup` of the profile")


def _judge_folder(probe: Probe, answer: dict[str, Any], node: str) -> Check:
    shown = probe.folder.parent.absolute()
    if answer["nonce"] != probe.nonce:
        return failed(
            "folder there",
            f"{node} sees another `{shown}` than this machine",
            "choose a folder that all nodes share with HARNESS_OUTPUTS=DIR",
        )
    return ok("folder there", f"{node} reads and writes {shown}")


def _judge_gpus(settings: SlurmProfile, answer: dict[str, Any], node: str) -> Check:
    asked = count_gpus(settings)
    per_node = None if asked is None else asked // settings.nodes
    listed = answer["visible_gpus"]
    seen = [gpu for gpu in (listed or "").split(",") if gpu] if listed is not None else []
    if listed is None and answer["gpu_models"]:
        seen = answer["gpu_ids"]
    if per_node is not None and len(seen) != per_node:
        return failed(
            "GPUs there",
            f"a run asks for {per_node} on a node and sees {len(seen)} on {node}",
            "see to `gpus_per_node` (or `sbatch: {gres: …}`), or ask your site about its gres.conf",
        )
    return ok("GPUs there", f"{len(seen)} visible" if seen else "none, as none is asked for")


def _judge_scontrol(answer: dict[str, Any], node: str) -> Check:
    if answer["scontrol"]:
        return warning(
            "SLURM there",
            f"{node}: {answer['scontrol']}",
            "put SLURM's commands on the PATH in `setup`, or runs can't start themselves again"
            " after a time limit",
        )
    return ok("SLURM there", "scontrol answers; a run can start itself again")
