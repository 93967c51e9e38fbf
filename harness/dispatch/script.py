"""What the batch script of a job says: sbatch's options, and the bash that starts its program.

Nothing of the submitter's environment is written into a script: SLURM hands that over by itself.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.dispatch.arrays import Array
from harness.errors import UsageError
from harness.records.layout import ARRAY_ENV, FINISH_JOB, SUBMISSION_DIR_ENV, SubmissionPaths
from harness.slurm_profile import SlurmProfile, finish_settings

ELEMENT_MODULE = "harness.runner.element"
FINISH_MODULE = "harness.dispatch.finish"

_OPTION_LINE = re.compile(r"#SBATCH --([a-z0-9-]+)(?:=|$)")
_FORWARDED = ("TERM", "INT", "USR1", "USR2", "CONT")


@dataclass(frozen=True)
class BatchJob:
    """One job or array that is handed to `sbatch`.

    Attributes:
        name: number of the array as text, or FINISH_JOB.
        comment: by which it is found, as by its name.
        module: that it runs.
        env: variables that the script sets.
        code_dir: that `harness` is imported from; None for the installed one.
        num_elements: of the array; None where it is none.
        parallelism: elements at once; None for all.
        after: ids of jobs that must have ended before.
        log: where its output goes, in sbatch's form; None for submitit's own name.
        is_step: whether the program runs as a step of the job, through `srun`.
    """

    name: str
    job_name: str
    comment: str
    settings: SlurmProfile
    module: str
    env: Mapping[str, str]
    code_dir: str | None
    num_elements: int | None = None
    parallelism: int | None = None
    after: tuple[str, ...] = ()
    log: str | None = None
    is_step: bool = False


def job_comment(submission_id: str, name: str) -> str:
    """Return the comment of a submission's job."""
    return f"harness {submission_id} {name}"


def array_job(
    array: Array, paths: SubmissionPaths, code_dir: str | None, after: str | None
) -> BatchJob:
    """Return what is handed over for an array. `after` is the id of the array before it."""
    settings, number = array.settings, str(array.plan.number)
    return BatchJob(
        name=number,
        job_name=array.plan.job_name,
        comment=job_comment(paths.id, number),
        settings=settings,
        module=ELEMENT_MODULE,
        env={SUBMISSION_DIR_ENV: str(paths.root.absolute()), ARRAY_ENV: number},
        code_dir=code_dir,
        num_elements=len(array.plan.run_ids),
        parallelism=array.plan.parallelism,
        after=() if after is None else (after,),
        is_step=settings.nodes == 1 if settings.use_srun is None else settings.use_srun,
    )


def finish_job(
    job_name: str,
    paths: SubmissionPaths,
    settings: SlurmProfile,
    code_dir: str | None,
    after: tuple[str, ...],
) -> BatchJob:
    """Return the job that ends a submission, once the jobs `after` have ended."""
    return BatchJob(
        name=FINISH_JOB,
        job_name=job_name,
        comment=job_comment(paths.id, FINISH_JOB),
        settings=finish_settings(settings),
        module=FINISH_MODULE,
        env={SUBMISSION_DIR_ENV: str(paths.root.absolute())},
        code_dir=code_dir,
        after=after,
        log=str(paths.slurm_dir.absolute() / "%j_finish_log.out"),
    )


def parameters(job: BatchJob) -> dict[str, Any]:
    """Return submitit's parameters for `job`; None omits an option."""
    settings = job.settings
    extra = {name: value for name, value in settings.sbatch.items() if value is not None}
    extra["requeue" if settings.requeue else "no-requeue"] = True
    if not job.is_step:
        # Without `B:` the warning reaches steps only, and there is none.
        extra["signal"] = f"B:USR2@{settings.signal_delay_s}"
    if job.log is not None:
        extra["output"] = job.log
    return {
        "job_name": job.job_name,
        "comment": job.comment,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "nodes": settings.nodes,
        "gpus_per_node": settings.gpus_per_node,
        "cpus_per_task": settings.cpus_per_task,
        "mem": settings.mem,
        "mem_per_cpu": settings.mem_per_cpu,
        "mem_per_gpu": settings.mem_per_gpu,
        "time": settings.time,
        "mail_type": settings.mail_type,
        "mail_user": settings.mail_user,
        "dependency": f"afterany:{':'.join(job.after)}" if job.after else None,
        "wckey": None,
        "signal_delay_s": settings.signal_delay_s,
        "stderr_to_stdout": True,
        "array_parallelism": job.parallelism or job.num_elements or 1,
        "setup": setup_lines(job),
        "use_srun": job.is_step,
        "srun_args": list(settings.srun_args),
        "additional_parameters": extra,
    }


def setup_lines(job: BatchJob) -> list[str]:
    """Return the bash that stands before the program."""
    lines = []
    if job.settings.setup:
        lines += [
            "trap 'harness_code=$?; echo \"harness: exit code $harness_code of the setup line:"
            ' $BASH_COMMAND" >&2; exit "$harness_code"\' ERR',
            *job.settings.setup,
            "trap - ERR",
            "set +eu",
        ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.env.items()]
    if job.code_dir is not None:
        lines.append(f"export PYTHONPATH={shlex.quote(job.code_dir)}${{PYTHONPATH:+:$PYTHONPATH}}")
    if job.is_step:
        lines += [
            "# SLURM 22.05 and newer do not pass the CPUs of a task on to srun by themselves",
            'test -z "${SLURM_CPUS_PER_TASK:-}" ||'
            ' export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
            "# the step gets its own signals; this shell waits for its end",
            f"trap : {' '.join(_FORWARDED)}",
        ]
    return [
        *lines,
        f"set -- {_python(job)}",
        'command -v "$1" >/dev/null || {'
        ' echo "harness: there is no program \\`$1\\` on $(uname -n)'
        ' (key \\`python\\` of the profile)" >&2; exit 127; }',
    ]


def command(job: BatchJob) -> str:
    """Return the bash that runs the program; submitit puts `srun` before it for a step."""
    program = f"{_python(job)} -u -P -m {job.module}"
    if job.is_step or job.num_elements is None:
        return program
    forward = [
        f"trap 'kill -s {name} \"$harness_child\" 2>/dev/null' {name}" for name in _FORWARDED
    ]
    return "\n".join(
        [
            "# no step: the signals come to this shell, which passes them on",
            f"{program} &",
            "harness_child=$!",
            *forward,
            "while :; do",
            '  wait "$harness_child"',
            '  kill -s 0 "$harness_child" 2>/dev/null || break',
            "done",
            'wait "$harness_child"',
        ]
    )


def drop_options(text: str, job: BatchJob) -> str:
    """Return a script without the options that the profile switches off by null."""
    off = {name for name, value in job.settings.sbatch.items() if value is None}
    if job.num_elements is None:
        off.add("signal")  # the finishing job has no use for a warning
    if "requeue" in off:
        off.add("no-requeue")

    def stays(line: str) -> bool:
        match = _OPTION_LINE.match(line)
        return match is None or match[1] not in off

    return "\n".join(filter(stays, text.split("\n")))


def check_path(path: Path, what: str) -> None:
    """Refuse a folder whose name would mean something else in a batch script.

    Raises:
        UsageError: it holds `%` or a backslash, which SLURM reads in names of logs, or a line end.
    """
    text = str(path.absolute())
    bad = next((character for character in "%\\\n\r\0" if character in text), None)
    if bad is not None:
        raise UsageError(
            f"{what} `{text!r}` holds {bad!r}, which has a meaning of its own for SLURM",
            "choose another folder with HARNESS_OUTPUTS",
        )


def _python(job: BatchJob) -> str:
    return job.settings.python or shlex.quote(sys.executable)
