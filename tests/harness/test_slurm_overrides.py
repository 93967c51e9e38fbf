from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from harness.errors import UsageError
from harness.slurm_profile import (
    RESOURCE_KEYS,
    SlurmProfile,
    count_gpus,
    finish_settings,
    override_settings,
)


def test_overriding_replaces_memory_and_gpus_and_merges_options() -> None:
    profile = SlurmProfile(
        partition="gpu",
        mem_per_gpu="64G",
        sbatch={"gres": "gpu:h100:8", "constraint": "a", "exclusive": True, "comment": None},
    )
    changed = override_settings(
        profile,
        {
            "mem": "8G",
            "gpus_per_node": 2,
            "time": "4:00:00",
            "sbatch": {"constraint": None, "signal": None, "nice": 3},
        },
    )
    assert changed == SlurmProfile(
        partition="gpu",
        mem="8G",
        gpus_per_node=2,
        time=240,
        sbatch={"exclusive": True, "comment": None, "signal": None, "nice": 3},
    )


def test_overriding_with_a_type_of_gpu_replaces_the_profiles_number() -> None:
    profile = SlurmProfile(gpus_per_node=8, sbatch={"gres": "shard:3"})
    changed = override_settings(profile, {"sbatch": {"gres": "gpu:a100:2"}})
    assert (changed.gpus_per_node, changed.sbatch) == (None, {"gres": "gpu:a100:2"})
    assert override_settings(profile, {"gpus_per_node": 2}).sbatch == {"gres": "shard:3"}


def test_overriding_with_nothing_changes_nothing() -> None:
    profile = SlurmProfile(mem="4G", gpus_per_node=1, sbatch={"wckey": None})
    assert override_settings(profile, {}) == profile


def test_overriding_twice_with_the_stored_form_is_the_same() -> None:
    profile = SlurmProfile(time=600)
    once = override_settings(profile, {"time": "1-00", "mem": "1G"})
    assert override_settings(once, {"time": 1440, "mem": "1G"}) == once


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"setup": ["a"]}, "`setup` can't be set here"),
        ({"mem": "1G", "mem_per_cpu": "1G"}, "`mem` and `mem_per_cpu` are both set"),
        ({"time": 1}, "`time` is 0:01:00, no longer than the warning"),
        ({"sbatch": {"comment": None}}, "`sbatch.comment` and `sbatch.job-name` are both null"),
    ],
)
def test_overrides_that_do_not_fit_are_refused_where_they_stand(
    overrides: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError) as raised:
        override_settings(SlurmProfile(sbatch={"job-name": None}), overrides, "`study`")
    assert raised.value.message.startswith(f"`study`: {error}")


def test_resources_of_an_arm_are_keys_of_the_profile() -> None:
    assert set(RESOURCE_KEYS) < {spec.name for spec in fields(SlurmProfile)}


def test_the_last_job_is_small_and_stays_on_the_account() -> None:
    profile = SlurmProfile(
        partition="gpu",
        account="lab",
        nodes=4,
        gpus_per_node=8,
        cpus_per_task=16,
        mem_per_gpu="64G",
        time=1440,
        parallelism=3,
        setup=("module load cuda",),
        sbatch={
            "exclusive": True,
            "constraint": "h100",
            "clusters": "big",
            "wckey": None,
            "comment": None,
        },
    )
    last = finish_settings(profile)
    assert (last.partition, last.account, last.setup) == ("gpu", "lab", ("module load cuda",))
    assert (last.nodes, last.gpus_per_node, last.cpus_per_task) == (1, None, 1)
    assert (last.mem, last.mem_per_gpu, last.time, last.parallelism) == ("2G", None, 30, None)
    assert last.sbatch == {"clusters": "big", "wckey": None, "comment": None}


def test_the_last_job_has_what_finish_says() -> None:
    finish = {"partition": "cpu", "mem": None, "time": 90, "sbatch": {"constraint": "x"}}
    last = finish_settings(SlurmProfile(partition="gpu", time=10, finish=finish))
    assert (last.partition, last.mem, last.time) == ("cpu", None, 90)
    assert last.sbatch == {"constraint": "x"}
    assert finish_settings(SlurmProfile(time=10)).time == 10


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        (SlurmProfile(), None),
        (SlurmProfile(gpus_per_node=0, nodes=3), 0),
        (SlurmProfile(gpus_per_node=8, nodes=2), 16),
        (SlurmProfile(nodes=2, sbatch={"gres": "gpu:h100:4"}), 8),
        (SlurmProfile(sbatch={"gres": "gpu"}), 1),
        (SlurmProfile(sbatch={"gres": "gpu:h100"}), 1),
        (SlurmProfile(sbatch={"gres": "gpu:3"}), 3),
        (SlurmProfile(sbatch={"gres": "gpu:a100:2(S:0-1),gpu:b:1,shard:9"}), 3),
        (SlurmProfile(sbatch={"gres": "shard:9"}), None),
        (SlurmProfile(nodes=2, sbatch={"gpus": 6}), 6),
        (SlurmProfile(sbatch={"gpus": "h100:6"}), 6),
        (SlurmProfile(sbatch={"gpus-per-task": 2}), None),
    ],
)
def test_gpus_of_a_run_are_counted_over_its_nodes(settings: SlurmProfile, gpus: int | None) -> None:
    assert count_gpus(settings) == gpus
