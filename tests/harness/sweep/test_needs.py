"""Whether a profile gives runs what their trainer needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.profile import LocalProfile, Profile
from harness.records.layout import SweepPaths
from harness.slurm_profile import SlurmProfile
from harness.sweep.needs import check_needs
from harness.trainers.interface import Needs
from tests.harness.sweep.test_gpu_hours import make_plan

FOUR_NODES = Needs(nodes=4, gpus_per_node=8, is_alone=True, fatal_names=("vllm",))
EXCLUSIVE = {"exclusive": True}


def check(
    needs: Needs,
    settings: LocalProfile | SlurmProfile,
    *,
    root: str = "/outputs/study",
    resources: Mapping[str, dict[str, Any]] | None = None,
    num_runs: int = 3,
) -> tuple[str, ...]:
    profile = Profile("mine", settings)
    paths = SweepPaths(Path(root))
    return check_needs(make_plan(resources), {"ipo": needs}, profile, paths, num_runs=num_runs)


def refusal(needs: Needs, settings: LocalProfile | SlurmProfile, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        check(needs, settings, **options)
    return caught.value


def test_profile_that_gives_what_is_needed_passes_without_a_word() -> None:
    assert check(FOUR_NODES, SlurmProfile(nodes=4, gpus_per_node=8, sbatch=EXCLUSIVE)) == ()


def test_trainer_without_needs_takes_any_profile() -> None:
    assert check(Needs(), SlurmProfile(nodes=7)) == ()
    assert check(Needs(), LocalProfile(slots=9)) == ()


def test_too_few_nodes_are_refused_with_the_key_to_set() -> None:
    error = refusal(FOUR_NODES, SlurmProfile(nodes=1, sbatch=EXCLUSIVE))
    assert error.message == "arm `ipo` needs 4 nodes, and the profile `mine` gives each run 1"
    assert "`resources: {ipo: {nodes: 4}}` in the sweep" in error.hint


def test_resources_of_the_arm_count_before_the_profile() -> None:
    settings = SlurmProfile(nodes=1, gpus_per_node=8, sbatch=EXCLUSIVE)
    assert check(FOUR_NODES, settings, resources={"ipo": {"nodes": 4}}) == ()


def test_run_that_must_be_alone_wants_an_exclusive_profile() -> None:
    error = refusal(FOUR_NODES, SlurmProfile(nodes=4, gpus_per_node=8))
    assert "must have its nodes to itself" in error.message
    assert "sbatch: {exclusive: true}" in error.hint


def test_too_few_gpus_are_refused_and_idle_ones_told() -> None:
    error = refusal(Needs(gpus_per_node=8), SlurmProfile(gpus_per_node=4))
    assert "uses 8 GPUs on each node, and the profile `mine` gives it 4" in error.message
    (warning,) = check(Needs(gpus_per_node=2), SlurmProfile(gpus_per_node=8))
    assert warning == "6 GPUs of 8 on each node would be idle"
    (warning,) = check(Needs(gpus_per_node=2), SlurmProfile())
    assert warning.endswith("the profile `mine` doesn't say how many it gives")
    assert check(Needs(gpus_per_node=8), SlurmProfile(sbatch={"gres": "gpu:h100:8"})) == ()


def test_several_nodes_are_refused_on_this_machine() -> None:
    error = refusal(FOUR_NODES, LocalProfile())
    assert error.message == "arm `ipo` needs 4 nodes, and the profile `mine` is this machine"


def test_run_that_must_be_alone_wants_one_slot_here() -> None:
    needs = Needs(nodes=1, is_alone=True)
    assert refusal(needs, LocalProfile(slots=2)).hint == "--slots 1"
    assert check(needs, LocalProfile(slots=1)) == ()
    assert check(needs, LocalProfile(slots=2), num_runs=1) == ()


def test_local_profile_with_too_few_gpus_per_run_is_refused() -> None:
    error = refusal(Needs(gpus_per_node=2), LocalProfile(gpus=["0", "1"], gpus_per_run=1))
    assert error.hint == "set `gpus_per_run: 2` in the profile"


@pytest.mark.parametrize(
    ("root", "python", "what", "hint"),
    [
        ("/data/vllm/study", None, "the folder of outputs is `/data/vllm`", "HARNESS_OUTPUTS"),
        ("/data/vllm_drift", None, "the sweep is `vllm_drift`", "--as NAME"),
        ("/data/study", "/envs/vllm/bin/python", "the Python of the runs is", "`python`"),
    ],
)
def test_names_that_the_trainers_clean_up_kills_are_refused(
    root: str, python: str | None, what: str, hint: str
) -> None:
    settings = SlurmProfile(nodes=4, gpus_per_node=8, sbatch=EXCLUSIVE, python=python)
    error = refusal(FOUR_NODES, settings, root=root)
    assert error.message.startswith(what)
    assert "kills every process with `vllm` in its command line" in error.message
    assert hint in error.hint
    assert "vllm" not in sys.executable
