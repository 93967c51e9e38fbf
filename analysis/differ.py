"""What differs between runs: keys of their configs, code, machines, package versions.

Taken from the records of the runs, not from the plan's word. Whatever differs beyond the keys that
the sweep declared is marked, as it may be what a difference between arms comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.runs import Run, Sweep
from harness.records.files import canonical_json, flatten
from harness.records.model import REPLICATE_KEY

ABSENT = "(absent)"
_NO_CIRCUMSTANCE = ("hostname",)  # Equal machines have different names; the time table has them.
_NAMES_AND_PLACES = re.compile(
    r"(.*\.)?(seed|run_name|run_id|experiment_name|exp_name|output_dir|log_dir|logging_dir|job_name"
    r"|[a-z_]*port|hostname)|(.*\.)?(wandb|slurm|monitors)(\..*)?|(.*\.)?run\.(name|id)"
)
"""Keys of foreign configs that tell a run from others of its arm and not what it computes."""


@dataclass(frozen=True)
class Difference:
    """One key that isn't the same everywhere.

    Attributes:
        area: `config`, `plan`, `code` or `machine`.
        values: text of a value -> the runs (or, for configs, the arms) that have it.
        is_declared: the sweep says that it may differ.
    """

    area: str
    key: str
    values: Mapping[str, tuple[str, ...]]
    is_declared: bool


@dataclass(frozen=True)
class Circumstances:
    """Under what the runs ran.

    Attributes:
        differences: undeclared ones first.
        same: key -> the value that every attempt recorded, for code and machine.
    """

    differences: tuple[Difference, ...]
    same: Mapping[str, str]


def find_differences(sweep: Sweep) -> Circumstances:
    """Return what differs between the runs of `sweep`, and what is the same everywhere."""
    is_foreign = any(run.source for run in sweep.runs)
    by_config = _foreign_differences if is_foreign else _config_differences
    found = [*by_config(sweep), *_max_steps_differences(sweep)]
    same: dict[str, str] = {}
    for (area, key), values in _recorded_facts(sweep.runs).items():
        if len(values) == 1:
            same[key] = next(iter(values))
        else:
            found.append(Difference(area, key, values, is_declared=False))
    found.extend(_other_code(sweep))
    found.sort(key=lambda difference: difference.is_declared)
    return Circumstances(tuple(found), same)


def is_covered(key: str, may_differ: Iterable[str]) -> bool:
    """Whether `key` is one of `may_differ` or lies below one."""
    return any(key == root or key.startswith(f"{root}.") for root in may_differ)


def text_of(value: Any) -> str:
    """Return a config value as people write it: strings bare, everything else as JSON."""
    return value if isinstance(value, str) else canonical_json(value).decode()


def _config_differences(sweep: Sweep) -> list[Difference]:
    """Compare arms at equal seeds, as keys that follow the seed differ between seeds anyway."""
    by_key: dict[str, dict[str, str]] = {}
    for seed in sorted({run.seed for run in sweep.runs}):
        flat = {
            run.arm: {key: text_of(value) for key, value in flatten(run.config).items()}
            for run in sweep.runs
            if run.seed == seed and run.config is not None
        }
        for key in sorted({key for leaves in flat.values() for key in leaves} - {REPLICATE_KEY}):
            values = {arm: leaves.get(key, ABSENT) for arm, leaves in flat.items()}
            if len(set(values.values())) > 1:
                for arm, value in values.items():
                    by_key.setdefault(key, {}).setdefault(arm, value)
    return [
        Difference("config", key, _grouped(by_arm), is_covered(key, sweep.plan.may_differ))
        for key, by_arm in sorted(by_key.items())
    ]


def _foreign_differences(sweep: Sweep) -> list[Difference]:
    """Compare all runs, also those of one arm, as nothing vouches for what they have in common."""
    flat = {
        run.run_id: {key: text_of(value) for key, value in flatten(run.config).items()}
        for run in sweep.runs
        if run.config is not None
    }
    found = []
    for key in sorted({key for leaves in flat.values() for key in leaves}):
        values = {run_id: leaves.get(key, ABSENT) for run_id, leaves in flat.items()}
        if len(set(values.values())) < 2 or _NAMES_AND_PLACES.fullmatch(key):
            continue
        by_arm: dict[str, set[str]] = {}
        for run in sweep.runs:
            if run.run_id in values:
                by_arm.setdefault(run.arm, set()).add(values[run.run_id])
        is_of_arms = all(len(held) == 1 for held in by_arm.values())
        holders = {arm: held.pop() for arm, held in by_arm.items()} if is_of_arms else values
        # Within an arm not even the loss may differ.
        declared = is_of_arms and is_covered(key, sweep.plan.may_differ)
        found.append(Difference("config", key, _grouped(holders), declared))
    return found


def _max_steps_differences(sweep: Sweep) -> list[Difference]:
    values = {run.run_id: str(run.planned.max_steps) for run in sweep.runs if run.planned.max_steps}
    if len(set(values.values())) < 2:
        return []
    return [Difference("plan", "max_steps", _grouped(values), is_declared=False)]


def _recorded_facts(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
    """Return (area, key) -> value -> runs, over what attempts recorded of code and machine."""
    facts: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for name, text in run.versions.items():
            facts.setdefault(("code", name), {}).setdefault(text, []).append(run.run_id)
        for attempt in run.attempts:
            recorded = {("code", "code hash"): attempt.claim.code_hash}
            for key, value in flatten(attempt.claim.machine).items():
                if key not in _NO_CIRCUMSTANCE:
                    recorded[("machine", key)] = text_of(value)
            for fact, text in recorded.items():
                holders = facts.setdefault(fact, {}).setdefault(text, [])
                if run.run_id not in holders:
                    holders.append(run.run_id)
    return {
        name: {text: tuple(holders) for text, holders in sorted(values.items())}
        for name, values in sorted(facts.items())
    }


def _other_code(sweep: Sweep) -> list[Difference]:
    """The code of finished attempts against the plan's, where all runs agree among themselves."""
    hashes = {a.claim.code_hash: run.run_id for run in sweep.runs for a in run.attempts}
    if len(hashes) != 1 or sweep.plan.code.hash in hashes:
        return []
    [other] = hashes
    values = {sweep.plan.code.hash: ("the plan",), other: ("every run",)}
    return [Difference("code", "code hash of the plan", values, is_declared=False)]


def _grouped(by_holder: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, list[str]] = {}
    for holder, value in by_holder.items():
        grouped.setdefault(value, []).append(holder)
    return {value: tuple(holders) for value, holders in grouped.items()}
