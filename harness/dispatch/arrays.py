"""Splits an order into job arrays: by resources, under the cluster's limit, within the cap."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.dispatch.interface import Order
from harness.errors import UsageError
from harness.records.files import canonical_json
from harness.records.layout import FINISH_JOB
from harness.records.model import ArrayPlan, PlannedRun
from harness.slurm_profile import SlurmProfile, override_settings

DEFAULT_MAX_ARRAY_SIZE = 1001
"""SLURM's own, where a preview can't ask the cluster."""


@dataclass(frozen=True)
class Array:
    """An array with its settings as the profile's type."""

    plan: ArrayPlan
    settings: SlurmProfile


def array_job_name(sweep: str, nonce: str, name: str) -> str:
    """Return the name of a job: `name` is an array's number, or FINISH_JOB."""
    return f"{sweep}@{nonce}.{name}"


def finish_job_name(sweep: str, nonce: str) -> str:
    """Return the name of the job that ends a submission."""
    return array_job_name(sweep, nonce, FINISH_JOB)


def plan_arrays(order: Order, nonce: str, max_array_size: int) -> tuple[Array, ...]:
    """Return the arrays that hold the order's runs, each run once.

    Runs with the same resources stand together, in as few arrays as `max_array_size` allows
    (indices stay below it), in the order's order, which is seed-major: whenever the arms of a
    sweep have come equally far, they have the same seeds.

    The profile's `parallelism` bounds all arrays together. Where it is at least their number, it
    is divided over them by their sizes, and an array that ends lends its share to none. Otherwise
    each array waits for the end of the one before. It bounds one submission: runs that an earlier
    one still holds do not count.

    Raises:
        UsageError: `resources` don't fit the profile.
    """
    groups = _by_resources(order)
    cap = order.profile.settings.parallelism
    num_arrays = sum(_count_arrays(runs, max_array_size) for _, runs in groups)
    is_chained = cap is not None and cap < num_arrays
    chunks = [
        (settings, chunk)
        for settings, runs in groups
        for chunk in _split(
            runs,
            _count_arrays(runs, max_array_size),
            side_by_side=cap is not None and not is_chained,
        )
    ]
    sizes = [len(runs) for _, runs in chunks]
    shares: Sequence[int | None]
    if cap is None:
        shares = [None] * len(sizes)
    elif is_chained:
        shares = [min(cap, size) for size in sizes]
    else:
        shares = _divide(cap, sizes)
    return tuple(
        Array(
            ArrayPlan(
                number=number,
                job_name=array_job_name(order.sweep.name, nonce, str(number)),
                run_ids=tuple(run.run_id for run in runs),
                settings=dataclasses.asdict(settings),
                parallelism=shares[number],
                after=number - 1 if is_chained and number else None,
            ),
            settings,
        )
        for number, (settings, runs) in enumerate(chunks)
    )


def _by_resources(order: Order) -> list[tuple[SlurmProfile, list[PlannedRun]]]:
    """Return the runs that share their settings, by the first run of each group."""
    by_arm: dict[str, SlurmProfile] = {}
    groups: dict[bytes, tuple[SlurmProfile, list[PlannedRun]]] = {}
    for run in order.runs:
        if run.arm not in by_arm:
            by_arm[run.arm] = _settings_of(order, run.arm)
        settings = by_arm[run.arm]
        key = canonical_json(dataclasses.asdict(settings))
        groups.setdefault(key, (settings, []))[1].append(run)
    return list(groups.values())


def _settings_of(order: Order, arm: str) -> SlurmProfile:
    settings = order.profile.settings
    if not isinstance(settings, SlurmProfile):
        raise UsageError(
            f"the profile `{order.profile.name}` is {order.profile.type}", "give a slurm profile"
        )
    overrides: Mapping[str, Any] | None = order.resources.get(arm)
    if not overrides:
        return settings
    where = (
        f"`resources.{arm}` of the sweep `{order.sweep.name}`, "
        f"on the profile `{order.profile.name}`"
    )
    return override_settings(settings, overrides, where)


def _count_arrays(runs: Sequence[PlannedRun], max_array_size: int) -> int:
    return -(-len(runs) // max_array_size)


def _split(
    runs: Sequence[PlannedRun], num_arrays: int, *, side_by_side: bool
) -> list[Sequence[PlannedRun]]:
    """Return `num_arrays` chunks of `runs`, of sizes that differ by one at most.

    Arrays that share a cap run side by side, and get the runs in turns; others begin one after
    the other, as SLURM takes jobs in the order they came.
    """
    if side_by_side:
        return [runs[offset::num_arrays] for offset in range(num_arrays)]
    bounds = [len(runs) * i // num_arrays for i in range(num_arrays + 1)]
    return [runs[bounds[i] : bounds[i + 1]] for i in range(num_arrays)]


def _divide(cap: int, sizes: Sequence[int]) -> list[int]:
    """Return shares of `cap` in proportion to `sizes`: each at least 1, none above its size."""
    shares = [1] * len(sizes)
    for _ in range(cap - len(sizes)):
        # The next goes where most elements still wait for each that runs.
        waiting = [i for i, size in enumerate(sizes) if shares[i] < size]
        if not waiting:
            break
        shares[max(waiting, key=lambda i: sizes[i] / shares[i])] += 1
    return shares
