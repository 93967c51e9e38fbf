from __future__ import annotations

import os

import pytest

from harness.dispatch.cluster import compress_ids
from harness.dispatch.slurm import Accepted, parse_answer, submission_env


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Submitted batch job 123", Accepted("123", None)),
        ("Submitted batch job 123\n", Accepted("123", None)),
        ("Submitted batch job 123 on cluster foo", Accepted("123", "foo")),
        ("Submitted batch job 9 on cluster big-iron.2\n", Accepted("9", "big-iron.2")),
        ("Your job has been filtered.\nSubmitted batch job 77\n", Accepted("77", None)),
        ("123", Accepted("123", None)),
        ("123;foo\n", Accepted("123", "foo")),
        ("welcome\n123;foo", Accepted("123", "foo")),
        ("", None),
        ("Submitted batch job", None),
        ("jobs are 123", None),
        ("sbatch: 12 warnings", None),
    ],
)
def test_answer_of_sbatch_names_job_and_cluster(text: str, answer: Accepted | None) -> None:
    assert parse_answer(text) == answer


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ({3}, "12_3"),
        ({0, 1, 2}, "12_[0-2]"),
        ({0, 2}, "12_[0,2]"),
        ({9, 0, 1, 5, 6, 7}, "12_[0-1,5-7,9]"),
    ],
)
def test_elements_are_compressed_to_one_id(indices: set[int], text: str) -> None:
    assert compress_ids("12", indices) == text


def test_sbatch_gets_the_shell_s_environment_without_what_belongs_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    kept = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "a",
        "WANDB_API_KEY": "k",
        "PYTHONPATH": "/site",
    }
    dropped = {
        "SLURM_JOB_ID": "1",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_MEM_PER_NODE": "5",
        "SBATCH_PARTITION": "gpu",
        "SALLOC_QOS": "x",
        "SRUN_CPUS_PER_TASK": "4",
        "SUBMITIT_EXECUTOR": "slurm",
        "PRL_RUN_ID": "x",
        "WANDB_RUN_ID": "x",
        "HARNESS_RUN_DIR": "/x",
        "HARNESS_PARENT_PID": "1",
    }
    for name, value in (kept | dropped).items():
        monkeypatch.setenv(name, value)
    assert submission_env() == kept
