"""From SLURM's variables to the run of an array element."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError
from harness.records.files import write_json
from harness.records.model import ArrayPlan, to_record
from harness.runner.claim import find_assignment
from harness.runner.element import find_element, runner_variables

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

TRAINS = ("trains", "METRICS", "0")


@pytest.fixture
def submitted(make_sweep: MakeSweep) -> tuple[DiskSweep, dict[str, str]]:
    """A submission of two arrays, and the variables of the second element of the second."""
    sweep = make_sweep({"a": TRAINS, "b": TRAINS}, seeds=[0, 7], max_steps=5)
    submission = sweep.submit()
    arrays = (
        ArrayPlan(0, "toy@abc.0", ("a/seed_0", "a/seed_7"), {"grace_s": 1.0}),
        ArrayPlan(1, "toy@abc.1", ("b/seed_0", "b/seed_7"), {"grace_s": 2.0, "cpus_per_task": 6}),
    )
    intent = replace(submission.intent, arrays=arrays)
    write_json(submission.paths.intent, to_record(intent))
    return sweep, {
        "HARNESS_SUBMISSION_DIR": str(submission.paths.root),
        "HARNESS_ARRAY": "1",
        "SLURM_ARRAY_TASK_ID": "1",
    }


def test_element_is_the_run_of_its_array_and_index(
    submitted: tuple[DiskSweep, dict[str, str]],
) -> None:
    sweep, env = submitted
    element = find_element(env)
    assert (element.run.run_id, element.array.number) == ("b/seed_7", 1)
    assert element.paths == sweep.run("b", 7)
    assert element.job_name == f"toy/b/7@{element.intent.nonce}.1"
    assert find_element({**env, "HARNESS_ARRAY": "0", "SLURM_ARRAY_TASK_ID": "0"}).run.arm == "a"


def test_run_has_the_settings_of_its_array(submitted: tuple[DiskSweep, dict[str, str]]) -> None:
    sweep, env = submitted
    assignment = find_assignment(sweep.run("b", 7), find_element(env).intent.id)
    assert assignment.grace_s == 2.0
    assert find_assignment(sweep.run("a"), assignment.intent.id).grace_s == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"HARNESS_SUBMISSION_DIR": ""}, "`HARNESS_SUBMISSION_DIR` is not set"),
        ({"HARNESS_ARRAY": ""}, "`HARNESS_ARRAY` is not set"),
        ({"HARNESS_ARRAY": "2"}, "has no array `2`"),
        ({"HARNESS_ARRAY": "01"}, "has no array `01`"),
        ({"SLURM_ARRAY_TASK_ID": ""}, "`SLURM_ARRAY_TASK_ID` is not set"),
        ({"SLURM_ARRAY_TASK_ID": "2"}, "has no run `2`"),
        ({"SLURM_ARRAY_TASK_ID": "-1"}, "has no run `-1`"),
        ({"HARNESS_SUBMISSION_DIR": "/nowhere"}, "`/nowhere/intent.json` is missing"),
    ],
)
def test_wrong_variables_are_named(
    submitted: tuple[DiskSweep, dict[str, str]], change: dict[str, str], message: str
) -> None:
    with pytest.raises(HarnessError) as caught:
        find_element({**submitted[1], **change})
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("sbatch", "expected"), [({}, True), ({"job-name": None}, False), ({"nice": 5}, True)]
)
def test_name_that_is_switched_off_is_not_set_on_the_node_either(
    submitted: tuple[DiskSweep, dict[str, str]], sbatch: dict[str, Any], expected: bool
) -> None:
    element = find_element(submitted[1])
    array = replace(element.array, settings={"sbatch": sbatch})
    assert replace(element, array=array).may_rename is expected


def test_environment_of_the_runner(submitted: tuple[DiskSweep, dict[str, str]]) -> None:
    _, env = submitted
    element = find_element(env)
    leaked = {"WANDB_RUN_ID": "one-for-all", "HARNESS_ATTEMPT": "3", "WANDB_API_KEY": "kept"}
    gained, lost = runner_variables({**env, **leaked, "MKL_NUM_THREADS": "2"}, element)
    assert gained == {
        "OMP_NUM_THREADS": "6",
        "OPENBLAS_NUM_THREADS": "6",
        "NUMEXPR_NUM_THREADS": "6",
        "HARNESS_RUN_DIR": str(element.paths.root),
        "HARNESS_SUBMISSION": element.intent.id,
    }
    assert set(lost) == {
        "HARNESS_SUBMISSION_DIR",
        "HARNESS_ARRAY",
        "HARNESS_ATTEMPT",
        "WANDB_RUN_ID",
    }
    assert runner_variables({**env, "SLURM_CPUS_PER_TASK": "4"}, element)[0]["OMP_NUM_THREADS"] == (
        "4"
    )


def start(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HARNESS_"))}
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness.runner.element"],
        env={**clean, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_element_outside_a_job_is_one_line_and_exit_code_1(
    submitted: tuple[DiskSweep, dict[str, str]],
) -> None:
    done = start({})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "harness.runner: error: `HARNESS_SUBMISSION_DIR` is not set: array elements are started"
        " by `sbatch`\n"
    )
    done = start(submitted[1])
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "this is no SLURM job" in done.stderr


def test_only_the_first_rank_works() -> None:
    done = start({"SLURM_PROCID": "3"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
