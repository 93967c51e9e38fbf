from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.errors import UsageError
from harness.profile import LocalProfile, Profile
from harness.records.model import (
    SCHEMA_VERSION,
    AnalysisSpec,
    CodeRecord,
    PlannedArm,
    PlannedRun,
    PlanRecord,
)
from harness.slurm_profile import SlurmProfile
from harness.sweep.gpu_hours import PlannedGpuHours, planned_gpu_hours

ARMS = ("ipo", "icepop")


def make_plan(resources: Mapping[str, dict[str, Any]] | None = None) -> PlanRecord:
    seeds = (0, 1, 2)
    return PlanRecord(
        schema_version=SCHEMA_VERSION,
        sweep="study",
        question="",
        baseline="ipo",
        pairing="seed",
        may_differ=("loss",),
        common=(),
        overrides=(),
        conf_dirs=(),
        trainer="command",
        seeds=seeds,
        arms=tuple(PlannedArm(arm, (), (), (), {}) for arm in ARMS),
        runs=tuple(PlannedRun(arm, seed, f"{arm}{seed}", 10) for seed in seeds for arm in ARMS),
        left=(),
        analysis=AnalysisSpec(),
        earlier_analysis=(),
        code=CodeRecord("0" * 64, None, None, {}),
        resources=dict(resources or {}),
    )


def count(
    settings: SlurmProfile, resources: Mapping[str, dict[str, Any]] | None = None
) -> PlannedGpuHours:
    planned = planned_gpu_hours(make_plan(resources), Profile("big", settings))
    assert planned is not None
    return planned


def test_gpu_hours_are_runs_x_nodes_x_gpus_x_time_limit() -> None:
    planned = count(SlurmProfile(nodes=2, gpus_per_node=8, time=90))
    assert planned.arms == {"ipo": 72.0, "icepop": 72.0}  # 3 runs x 2 nodes x 8 GPUs x 1.5 h
    assert (planned.total, planned.unknown) == (144.0, "")
    assert planned.largest == "`ipo`: 3 x 16 GPUs x 1:30:00"


def test_an_arms_own_resources_count() -> None:
    resources = {"icepop": {"gpus_per_node": 4, "nodes": 1, "time": 1440}}
    planned = count(SlurmProfile(nodes=2, gpus_per_node=8, time=90), resources)
    assert planned.arms == {"ipo": 72.0, "icepop": 288.0}
    assert (planned.total, planned.largest) == (360.0, "`icepop`: 3 x 4 GPUs x 1-00:00:00")


def test_only_the_given_runs_count() -> None:
    plan = make_plan()
    profile = Profile("big", SlurmProfile(gpus_per_node=1, time=60))
    planned = planned_gpu_hours(plan, profile, plan.runs[:3])
    assert planned is not None
    assert (planned.arms, planned.total) == ({"ipo": 2.0, "icepop": 1.0}, 3.0)
    nothing = planned_gpu_hours(plan, profile, [])
    assert nothing is not None
    assert (nothing.arms, nothing.total, nothing.largest) == ({}, 0.0, "")


@pytest.mark.parametrize(
    ("settings", "resources", "arms", "unknown"),
    [
        (
            SlurmProfile(gpus_per_node=1),
            {},
            {"ipo": None, "icepop": None},
            "no `time` is set",
        ),
        (
            SlurmProfile(gpus_per_node=1),
            {"ipo": {"time": 60}},
            {"ipo": 3.0, "icepop": None},
            "no `time` is set for `icepop`",
        ),
        (
            SlurmProfile(),
            {"ipo": {"time": 60}},
            {"ipo": None, "icepop": None},
            "no `gpus_per_node` is set, no `time` is set for `icepop`",
        ),
    ],
)
def test_what_can_not_be_told_is_none_and_says_what_is_missing(
    settings: SlurmProfile,
    resources: dict[str, dict[str, Any]],
    arms: dict[str, float | None],
    unknown: str,
) -> None:
    planned = count(settings, resources)
    assert (planned.total, planned.arms, planned.unknown) == (None, arms, unknown)
    with pytest.raises(UsageError) as raised:
        planned.refuse_beyond(1000)
    assert raised.value.message == (
        f"--max-gpu-hours 1,000 can't be held against a plan without limits: {unknown}"
    )
    assert "`big`" in raised.value.hint


def test_runs_without_gpus_take_none_whatever_their_time() -> None:
    planned = count(SlurmProfile(gpus_per_node=0))
    assert (planned.total, planned.arms) == (0.0, {"ipo": 0.0, "icepop": 0.0})
    planned.refuse_beyond(0)


def test_a_local_queue_has_no_limits_to_count() -> None:
    assert planned_gpu_hours(make_plan(), Profile("local", LocalProfile())) is None


def test_a_plan_within_the_limit_passes_and_one_beyond_it_is_refused() -> None:
    planned = count(SlurmProfile(nodes=25, gpus_per_node=8, time=100))
    assert planned.total == 2000.0
    planned.refuse_beyond(2000)
    with pytest.raises(UsageError) as raised:
        planned.refuse_beyond(1999.5)
    assert raised.value.message == (
        "the plan takes up to 2,000 GPU-hours, more than --max-gpu-hours 1,999.5;"
        " most in `ipo`: 3 x 200 GPUs x 1:40:00"
    )
    assert raised.value.exit_code == 2
    assert "lower `time` or `gpus_per_node`" in raised.value.hint


def test_resources_that_do_not_fit_the_profile_are_refused_with_both_names() -> None:
    with pytest.raises(UsageError) as raised:
        count(SlurmProfile(gpus_per_node=1, time=60), {"ipo": {"time": 2}})
    assert raised.value.message.startswith(
        "`resources.ipo` of the sweep `study`, on the profile `big`: `time` is 0:02:00"
    )
