"""harness diff: the resolved keys in which two arms of a sweep differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.cli import tell
from harness.cli.compose import show_value
from harness.cli.display import planning_progress
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.printable import printable
from harness.records.files import read_json, to_json
from harness.records.layout import SweepPaths
from harness.records.model import KeyDifference, PlanRecord, read_record
from harness.sweep.difference import find_differences
from harness.sweep.locate import find_planned
from harness.sweep.prepare import prepare


@dataclass(frozen=True)
class _Arms:
    """The arms of a sweep. `config` returns what an arm resolves to with a seed."""

    plan: PlanRecord
    origin: str
    config: Callable[[str, int], Mapping[str, Any]]


def diff_command(*, sweep: str, first: str, second: str, as_json: bool) -> int:
    """Print `key: FIRST -> SECOND` for each key, and which overrides of the two change nothing.

    The arms are those of the plan on disk; an arm that it lacks is composed from the sweep file.
    """
    arms = _find_arms(sweep, (first, second))
    differences = _differences(arms, first, second)
    restated = {name: arms.plan.arm(name).restated for name in (first, second)}
    if as_json:
        data = {
            "arms": [first, second],
            "differences": [
                {"key": d.key, "first": d.baseline, "second": d.arm} for d in differences
            ],
            "restated": {name: list(texts) for name, texts in restated.items()},
        }
        sys.stdout.write(to_json(data))
        return 0
    tell(f"{arms.plan.sweep}: {first} -> {second} ({arms.origin})")
    for d in differences:
        print(f"{printable(d.key)}: {show_value(d.baseline)} -> {show_value(d.arm)}")
    if not differences:
        print("no difference")
    for name, texts in restated.items():
        if texts:
            tell(f"{name} restates {', '.join(map(printable, texts))}")
    return 0


def _find_arms(sweep: str, names: tuple[str, str]) -> _Arms:
    try:
        paths = find_planned(sweep)
    except UsageError:
        return _compose(sweep, names)  # says what is wrong where there is no such sweep at all
    plan = read_record(PlanRecord, paths.plan)
    known = {arm.name for arm in plan.arms}
    if known.issuperset(names):
        return _Arms(plan, f"planned in {printable(str(paths.root))}", _reader(paths))
    try:
        return _compose(sweep, names)
    except UsageError:
        _check_names(plan, names)
        raise


def _compose(sweep: str, names: tuple[str, str]) -> _Arms:
    with planning_progress() as progress:
        prepared = prepare(sweep, progress=progress)
    _check_names(prepared.plan.record, names)
    configs = prepared.plan.configs
    return _Arms(
        prepared.plan.record,
        f"composed from {printable(str(prepared.source.path))}",
        lambda arm, seed: configs[f"{arm}/seed_{seed}"],
    )


def _check_names(plan: PlanRecord, names: tuple[str, str]) -> None:
    known = [arm.name for arm in plan.arms]
    for name in names:
        if name not in known:
            raise UsageError(
                f"sweep `{plan.sweep}` has no arm `{name}`",
                did_you_mean(name, known, what="arms"),
            )


def _reader(paths: SweepPaths) -> Callable[[str, int], Mapping[str, Any]]:
    def read(arm: str, seed: int) -> Mapping[str, Any]:
        return read_json(paths.run(arm, seed).config)

    return read


def _differences(arms: _Arms, first: str, second: str) -> list[KeyDifference]:
    """Return where the arms differ with any seed; the first such seed's values."""
    found: dict[str, KeyDifference] = {}
    for seed in arms.plan.seeds:
        for difference in find_differences(arms.config(first, seed), arms.config(second, seed)):
            found.setdefault(difference.key, difference)
    return [found[key] for key in sorted(found)]
