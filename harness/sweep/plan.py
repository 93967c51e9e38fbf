"""Builds the plan of a sweep in memory and refuses what could not be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.compose import (
    Composed,
    compose_all,
    find_overruled,
    identity_config,
    surviving_leaves,
    with_seed,
)
from harness.config.conf_dir import Conf
from harness.config.override import Override
from harness.errors import UsageError
from harness.near import did_you_mean, near_miss
from harness.records.files import flatten
from harness.records.model import (
    REPLICATE_KEY,
    SCHEMA_VERSION,
    CodeRecord,
    KeyDifference,
    PlannedArm,
    PlannedRun,
    PlanRecord,
)
from harness.sweep.difference import find_differences, is_declared
from harness.sweep.identity import hash_identity
from harness.sweep.replicates import number_replicates
from harness.sweep.spec import SweepSpec
from harness.sweep.start_from import FoundStart, check_starts
from harness.sweep.stop_rules import check_logged
from harness.trainers.registry import load_trainer

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """A plan and, for each run id, the resolved configuration (with `max_steps`)."""

    record: PlanRecord
    configs: Mapping[str, dict[str, Any]]


def build_plan(
    spec: SweepSpec,
    conf: Conf,
    overrides: Sequence[Override],
    code: CodeRecord,
    progress: Progress | None = None,
    starts: Mapping[int, FoundStart] | None = None,
) -> Plan:
    """Return the plan of `spec` with `overrides` on every arm.

    Each arm is composed once; per seed only what follows from the seed is resolved again. Equal
    inputs give an equal plan.

    Args:
        starts: what the runs of each seed start from; empty where all start from scratch.

    Raises:
        UsageError: the arms can't be composed or compared; names arm and key.
    """
    starts = starts or {}
    check_overrides(spec, overrides)
    composed = _compose_arms(spec, conf, overrides)
    check_overlays(spec, conf, composed)
    numbers = number_replicates({arm.name: arm.replicate_of for arm in spec.arms})
    runs: list[PlannedRun] = []
    configs: dict[str, dict[str, Any]] = {}
    total = len(spec.seeds) * len(spec.arms)
    for seed in spec.seeds:
        for arm in spec.arms:
            config = with_seed(composed[arm.name], seed)
            if seed in starts:
                config["start_from"] = starts[seed].identity
            if arm.name in numbers:
                config[REPLICATE_KEY] = numbers[arm.name]
            run = PlannedRun(
                arm=arm.name,
                seed=seed,
                identity=hash_identity(identity_config(config)),
                max_steps=config["max_steps"],
            )
            runs.append(run)
            configs[run.run_id] = config
            if progress is not None:
                progress(len(runs), total)
    arms = _describe_arms(spec, conf, overrides, composed, configs)
    check_may_differ(spec, configs)
    check_arms(spec, arms, runs)
    check_starts(starts, runs, configs, str(spec.path))
    check_logged(spec.stop_when, configs, spec.path)
    record = PlanRecord(
        schema_version=SCHEMA_VERSION,
        sweep=spec.name,
        question=spec.question,
        baseline=spec.baseline,
        pairing=spec.pairing,
        may_differ=spec.may_differ,
        common=tuple(o.text for o in spec.common),
        overrides=tuple(o.text for o in overrides),
        conf_dirs=tuple(str(path.resolve()) for path in conf.dirs[1:]),
        trainer=composed[spec.baseline].config["trainer"]["type"],
        seeds=spec.seeds,
        arms=arms,
        runs=tuple(runs),
        left=(),
        analysis=spec.analysis,
        note=spec.note,
        earlier_analysis=(),
        code=code,
        resources={arm: dict(keys) for arm, keys in spec.resources.items()},
        start_from=tuple({start.record.seed: start.record for start in starts.values()}.values()),
        stop_when=spec.stop_when,
    )
    return Plan(record, configs)


def check_overrides(spec: SweepSpec, overrides: Sequence[Override]) -> None:
    """Refuse overrides that a later one overrules, and ones that set the seed.

    An arm may overrule `common`; that is what an arm is for.
    """
    groups = [spec.common, *(arm.overrides for arm in spec.arms), overrides]
    for override in (o for group in groups for o in group):
        if override.key == "seed":
            raise UsageError(
                f"{override.where} sets the seed", "list the seeds under `seeds` of the sweep"
            )
    chains = [list(spec.common), list(overrides)]
    chains += [[*arm.overrides, *overrides] for arm in spec.arms]
    for chain in chains:
        found = find_overruled(chain)
        if found is not None:
            earlier, later = found
            raise UsageError(
                f"{earlier.where} has no effect: `{later.text}` ({later.origin}) overrules it",
                "remove one of the two",
            )


def check_overlays(spec: SweepSpec, conf: Conf, composed: Mapping[str, Composed]) -> None:
    """Refuse an overlay none of whose values hold in the result."""
    for arm in spec.arms:
        for name in composed[arm.name].choices.get("overlay", ()):
            option = conf.options["overlay"][name]
            surviving, total = surviving_leaves(composed[arm.name], option)
            if surviving == 0:
                raise UsageError(
                    f"`{spec.path}`: arm `{arm.name}`: overlay `{name}` has no effect: none of its"
                    f" {total} values holds in the end",
                    f"overrides and later overlays win over `{option.path}`; remove one side",
                )


def check_may_differ(spec: SweepSpec, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a declared difference that names no key of any run."""
    known: set[str] = set()
    for seed in spec.seeds[:1]:
        for arm in spec.arms:
            for leaf in flatten(configs[f"{arm.name}/seed_{seed}"]):
                parts = leaf.split(".")
                known.update(".".join(parts[: i + 1]) for i in range(len(parts)))
    trainers = {config["trainer"]["type"] for config in configs.values()}
    derived = [above for name in trainers if (above := load_trainer(name).derives) is not None]
    known.discard(REPLICATE_KEY)
    for key in spec.may_differ:
        if key not in known and not is_declared(key, derived):
            raise UsageError(
                f"`{spec.path}`: `may_differ` holds `{key}`, which is no key of any run",
                did_you_mean(key, known) if near_miss(key, known) else "harness compose shows all",
            )


def check_arms(spec: SweepSpec, arms: Sequence[PlannedArm], runs: Sequence[PlannedRun]) -> None:
    """Refuse arms that differ in more than was declared, and arms that compute the same."""
    declared = ", ".join(f"`{key}`" for key in spec.may_differ) or "nothing"
    for arm in arms:
        undeclared = [d for d in arm.differs if not is_declared(d.key, spec.may_differ)]
        if undeclared:
            shown = ", ".join(show_difference(d) for d in undeclared[:3])
            more = f" and {len(undeclared) - 3} more" if len(undeclared) > 3 else ""
            raise UsageError(
                f"`{spec.path}`: arm `{arm.name}` differs from the baseline `{spec.baseline}` in"
                f" more than {declared}: {shown}{more}",
                f"give both arms the same value, or add `{undeclared[0].key}` to `may_differ`",
            )
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        twin = seen.setdefault(run.identity, run)
        if twin is not run:
            raise UsageError(
                f"`{spec.path}`: the arms `{twin.arm}` and `{run.arm}` compute the same"
                + ("" if run.seed == spec.seeds[0] else f" with seed {run.seed}"),
                "check that the overrides do what they should; to see how far equal runs lie apart,"
                f" write `{run.arm}: {{replicate_of: {twin.arm}}}`",
            )


def show_difference(difference: KeyDifference) -> str:
    """Return `key: baseline -> arm` for people."""
    return f"`{difference.key}`: {difference.baseline} -> {difference.arm}"


def _compose_arms(
    spec: SweepSpec, conf: Conf, overrides: Sequence[Override]
) -> dict[str, Composed]:
    requests = [_effective(spec.common, arm.overrides, overrides) for arm in spec.arms]
    composed = compose_all(conf, requests)
    return {arm.name: result for arm, result in zip(spec.arms, composed, strict=True)}


def _effective(*groups: Sequence[Override]) -> list[Override]:
    """Return the overrides in which each key stands once, the last one winning."""
    last = {override.key: override for group in groups for override in group}
    return [o for group in groups for o in group if last[o.key] is o]


def _describe_arms(
    spec: SweepSpec,
    conf: Conf,
    overrides: Sequence[Override],
    composed: Mapping[str, Composed],
    configs: Mapping[str, dict[str, Any]],
) -> tuple[PlannedArm, ...]:
    restated = _find_restated(spec, conf, overrides, composed)
    return tuple(
        PlannedArm(
            name=arm.name,
            overrides=tuple(o.text for o in arm.overrides),
            differs=_find_differences_over_seeds(spec, arm.name, composed, configs),
            restated=restated[arm.name],
            loss=dict(composed[arm.name].config["loss"]),
            replicate_of=arm.replicate_of,
        )
        for arm in spec.arms
    )


def _find_differences_over_seeds(
    spec: SweepSpec,
    arm: str,
    composed: Mapping[str, Composed],
    configs: Mapping[str, dict[str, Any]],
) -> tuple[KeyDifference, ...]:
    """Return where an arm differs from the baseline with any seed; the first such seed's values.

    A value that follows from the seed may be the baseline's with one seed and not with another.
    """
    depends = composed[arm].depends_on_seed or composed[spec.baseline].depends_on_seed
    found: dict[str, KeyDifference] = {}
    for seed in spec.seeds if depends else spec.seeds[:1]:
        baseline, config = (configs[f"{name}/seed_{seed}"] for name in (spec.baseline, arm))
        for difference in find_differences(baseline, config):
            if difference.key != REPLICATE_KEY:
                found.setdefault(difference.key, difference)
    return tuple(found[key] for key in sorted(found))


def _find_restated(
    spec: SweepSpec, conf: Conf, overrides: Sequence[Override], composed: Mapping[str, Composed]
) -> dict[str, tuple[str, ...]]:
    """For each arm, its overrides that set what holds without them.

    Compared with the arm's options alone, without its values; arms with the same options share
    one composition.
    """
    bases: dict[tuple[str, ...], list[Override]] = {}
    for arm in spec.arms:
        base = _effective(spec.common, [o for o in arm.overrides if o.is_group], overrides)
        bases.setdefault(tuple(o.text for o in base), base)
    shared = _effective(spec.common, overrides)
    bases.setdefault(tuple(o.text for o in shared), shared)
    try:
        results = dict(zip(bases, compose_all(conf, bases.values()), strict=True))
    except UsageError:
        return {arm.name: () for arm in spec.arms}  # an option alone may lack what the arm sets
    common_choices = results[tuple(o.text for o in shared)].choices
    found: dict[str, tuple[str, ...]] = {}
    for arm in spec.arms:
        groups = [o for o in arm.overrides if o.is_group]
        key = tuple(o.text for o in _effective(spec.common, groups, overrides))
        without, with_all = results[key].config, composed[arm.name]
        found[arm.name] = tuple(
            o.text
            for o in arm.overrides
            if (
                common_choices.get(o.key) == with_all.choices.get(o.key)
                if o.is_group
                else _value_at(without, o.key) == _value_at(with_all.config, o.key)
            )
        )
    return found


def _value_at(tree: Mapping[str, Any], key: str) -> Any:
    node: Any = tree
    for part in key.split("."):
        if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
        else:
            return None
    return node
