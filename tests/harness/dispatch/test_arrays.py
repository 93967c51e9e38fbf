from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.arrays import Array, plan_arrays
from harness.dispatch.interface import Order
from harness.errors import UsageError
from harness.profile import LocalProfile, Profile
from harness.records.layout import SweepPaths
from harness.records.model import PlannedRun
from harness.slurm_profile import SlurmProfile

ARMS = ("ipo", "icepop", "none")


def make_order(
    num_seeds: int,
    arms: tuple[str, ...] = ARMS,
    resources: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> Order:
    runs = tuple(PlannedRun(arm, seed, "identity", 10) for seed in range(num_seeds) for arm in arms)
    profile = Profile("lab", SlurmProfile(**{"gpus_per_node": 8, **settings}))
    return Order(SweepPaths(Path("toy")), runs, profile, "c" * 64, None, resources or {})


def shape(arrays: tuple[Array, ...]) -> list[tuple[int, int | None, int | None]]:
    """Return size, throttle and predecessor of each array."""
    return [(len(a.plan.run_ids), a.plan.parallelism, a.plan.after) for a in arrays]


def test_runs_of_one_shape_are_one_array_in_the_given_order() -> None:
    order = make_order(2)
    [array] = plan_arrays(order, "1f9c2a", 1001)
    assert array.plan.job_name == "toy@1f9c2a.0"
    assert array.plan.run_ids == tuple(f"{arm}/seed_{seed}" for seed in (0, 1) for arm in ARMS)
    assert array.settings == order.profile.settings
    assert shape((array,)) == [(6, None, None)]


def test_one_run_is_an_array_too() -> None:
    [array] = plan_arrays(make_order(1, ("ipo",)), "1f9c2a", 1001)
    assert array.plan.run_ids == ("ipo/seed_0",)


def test_runs_with_other_resources_are_another_array() -> None:
    resources = {"icepop": {"gpus_per_node": 2, "time": 60}, "none": {}}
    first, second = plan_arrays(make_order(2, resources=resources), "1f9c2a", 1001)
    assert first.plan.run_ids == ("ipo/seed_0", "none/seed_0", "ipo/seed_1", "none/seed_1")
    assert second.plan.run_ids == ("icepop/seed_0", "icepop/seed_1")
    assert (first.settings.gpus_per_node, first.settings.time) == (8, None)
    assert (second.settings.gpus_per_node, second.settings.time) == (2, 60)
    assert second.plan.settings["gpus_per_node"] == 2
    assert (first.plan.number, second.plan.number) == (0, 1)


def test_overrides_that_say_what_holds_make_no_array() -> None:
    resources = {"icepop": {"gpus_per_node": 8}}
    assert len(plan_arrays(make_order(2, resources=resources), "1f9c2a", 1001)) == 1


def test_overrides_that_do_not_fit_are_refused_with_their_place() -> None:
    order = make_order(1, resources={"ipo": {"partitio": "gpu"}})
    with pytest.raises(UsageError, match=r"`resources.ipo` of the sweep `toy`.*`partitio`"):
        plan_arrays(order, "1f9c2a", 1001)


@pytest.mark.parametrize(
    ("max_size", "sizes"),
    [(6, [6]), (7, [6]), (5, [3, 3]), (4, [3, 3]), (2, [2, 2, 2]), (1, [1] * 6)],
)
def test_no_array_exceeds_the_cluster_s_limit(max_size: int, sizes: list[int]) -> None:
    arrays = plan_arrays(make_order(2), "1f9c2a", max_size)
    assert [len(a.plan.run_ids) for a in arrays] == sizes
    listed = [run_id for a in arrays for run_id in a.plan.run_ids]
    assert listed == [f"{arm}/seed_{seed}" for seed in (0, 1) for arm in ARMS]


def test_cap_throttles_one_array() -> None:
    arrays = plan_arrays(make_order(4, parallelism=5), "1f9c2a", 1001)
    assert shape(arrays) == [(12, 5, None)]


def test_cap_above_the_number_of_runs_is_their_number() -> None:
    assert shape(plan_arrays(make_order(1, parallelism=50), "1f9c2a", 1001)) == [(3, 3, None)]


def test_cap_is_divided_by_size_and_seeds_are_dealt_out_in_turns() -> None:
    order = make_order(8, parallelism=6, resources={"none": {"time": 5}})
    arrays = plan_arrays(order, "1f9c2a", 8)
    assert shape(arrays) == [(8, 2, None), (8, 2, None), (8, 2, None)]
    assert arrays[0].plan.run_ids[:2] == ("ipo/seed_0", "ipo/seed_1")
    assert arrays[1].plan.run_ids[:2] == ("icepop/seed_0", "icepop/seed_1")
    [big, small] = plan_arrays(
        make_order(9, ("ipo", "none"), parallelism=4, resources={"none": {"time": 5}}), "1f9c2a", 9
    )
    assert (big.plan.parallelism, small.plan.parallelism) == (2, 2)
    order = make_order(10, parallelism=7, resources={"none": {"time": 5}})
    assert shape(plan_arrays(order, "1f9c2a", 1001)) == [(20, 5, None), (10, 2, None)]


def test_cap_below_the_number_of_arrays_chains_them() -> None:
    arrays = plan_arrays(make_order(4, parallelism=2), "1f9c2a", 4)
    assert shape(arrays) == [(4, 2, None), (4, 2, 0), (4, 2, 1)]
    assert arrays[0].plan.run_ids[3] == "ipo/seed_1", "consecutive runs stand together"


def test_cap_that_equals_the_number_of_arrays_is_one_each() -> None:
    assert shape(plan_arrays(make_order(4, parallelism=3), "1f9c2a", 4)) == [(4, 1, None)] * 3


@pytest.mark.parametrize("cap", [None, 1, 2, 3, 5, 17, 400])
@pytest.mark.parametrize("max_size", [1, 3, 7, 1001])
def test_every_run_stands_once_and_the_cap_holds(cap: int | None, max_size: int) -> None:
    resources: dict[str, dict[str, Any]] = {"none": {"time": 5}, "icepop": {"mem": "5G"}}
    order = make_order(11, parallelism=cap, resources=resources)
    arrays = plan_arrays(order, "1f9c2a", max_size)
    counts = Counter(run_id for a in arrays for run_id in a.plan.run_ids)
    assert counts == {run.run_id: 1 for run in order.runs}
    assert [a.plan.number for a in arrays] == list(range(len(arrays)))
    assert len(arrays) == 3 * -(-11 // max_size)
    if cap is not None:
        at_once = [a.plan.parallelism or 0 for a in arrays]
        is_chain = arrays[-1].plan.after is not None
        assert (max(at_once) if is_chain else sum(at_once)) <= cap
        assert min(at_once) >= 1


def test_profile_of_another_type_is_refused() -> None:
    order = Order(
        SweepPaths(Path("toy")),
        (PlannedRun("ipo", 0, "identity", 10),),
        Profile("here", LocalProfile()),
        "c" * 64,
    )
    with pytest.raises(UsageError, match="the profile `here` is local"):
        plan_arrays(order, "1f9c2a", 1001)
