"""The sweep file: a question, its arms and seeds, and how it will be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness.config.check import check_value
from harness.config.fields import Limits
from harness.config.groups import MAX_MAX_STEPS, MAX_SEED
from harness.config.override import Override, parse_overrides
from harness.config.yaml_file import load_yaml
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import MAX_NAME_LENGTH, is_valid_name
from harness.records.model import AnalysisSpec, StopRule
from harness.sweep.axes import expand_axis
from harness.sweep.replicates import (
    check_baseline,
    check_replicates,
    load_replicate_of,
    share_resources,
)
from harness.sweep.resources import load_resources
from harness.sweep.start_from import StartFrom, load_start_from
from harness.sweep.stop_rules import load_stop_when

PAIRINGS = ("seed", "none")

_ANALYSIS_LIMITS = {
    "last_steps": Limits(ge=1, le=MAX_MAX_STEPS),
    "baseline_steps": Limits(ge=1, le=MAX_MAX_STEPS),
    "explode_factor": Limits(gt=1, le=1e9),
    "explode_hold": Limits(ge=1, le=MAX_MAX_STEPS),
    "collapse_window": Limits(ge=1, le=MAX_MAX_STEPS),
    "collapse_fraction": Limits(gt=0, lt=1),
    "margin": Limits(ge=0, le=1),
    "alpha": Limits(ge=1e-6, lt=0.5),
    "max_left_out": Limits(ge=0, lt=1),
    "onset_false_alarm": Limits(ge=1e-3, lt=0.5),
    "entropy_fraction": Limits(gt=0, lt=1),
    "spike_factor": Limits(gt=1, le=1e9),
    "mask_floor": Limits(ge=0, lt=1),
    "mask_ceiling": Limits(gt=0, le=1),
}


@dataclass(frozen=True)
class ArmSpec:
    """One arm as asked for, axes expanded; a replicate with the overrides of its arm."""

    name: str
    overrides: tuple[Override, ...]
    replicate_of: str | None = None


@dataclass(frozen=True)
class SweepSpec:
    """What a sweep file says, checked as far as it can be without composing anything.

    Attributes:
        pairing: `seed` when runs of one seed share their random numbers, `none` for reruns.
        may_differ: keys (or groups of keys) in which arms may differ.
        resources: arm -> keys of a SLURM profile that it overrides, see `load_resources`.
        note: what a reader of the report must know about the design.
        start_from: the checkpoint that every run starts from; None for a start from scratch.
        stop_when: any of them stops a run before its last step.
    """

    name: str
    path: Path
    question: str
    baseline: str
    seeds: tuple[int, ...]
    common: tuple[Override, ...]
    arms: tuple[ArmSpec, ...]
    may_differ: tuple[str, ...]
    pairing: str
    analysis: AnalysisSpec
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""
    start_from: StartFrom | None = None
    stop_when: tuple[StopRule, ...] = ()


_KEYS = (
    "question",
    "note",
    "baseline",
    "seeds",
    "start_from",
    "common",
    "arms",
    "grid",
    "zip",
    "may_differ",
    "pairing",
    "analysis",
    "stop_when",
    "resources",
)


_SHOWN_KEYS = ("question", "baseline", "seeds", "common", "arms")


def load_sweep(path: Path, name: str | None = None) -> SweepSpec:
    """Return the sweep in `path`, called `name` (default: the file's stem).

    Raises:
        UsageError: names the file, the key and the offending value.
    """
    content = load_yaml(path)
    name = path.stem if name is None else name
    if not is_valid_name(name):
        raise UsageError(
            f"`{path}`: {name!r} can't be the name of a sweep",
            f"use letters, digits, `.`, `_`, `-`, at most {MAX_NAME_LENGTH}, no dot at the end",
        )
    if not isinstance(content, Mapping):
        raise UsageError(f"`{path}` holds no keys", f"a sweep has {', '.join(_SHOWN_KEYS)}")
    for key in content:
        if key not in _KEYS:
            raise UsageError(
                f"`{path}`: unknown key `{key}`", did_you_mean(str(key), _KEYS, what="keys")
            )
    arms = _load_arms(content, path)
    analysis = load_analysis(content.get("analysis"), path)
    resources = load_resources(content.get("resources"), [arm.name for arm in arms], path)
    return SweepSpec(
        name=name,
        path=path,
        question=_text(content, "question", path, default=""),
        baseline=_load_baseline(content, arms, path),
        seeds=_load_seeds(content, path),
        common=parse_overrides(_list(content, "common", path), f"`{path}`: common"),
        arms=arms,
        may_differ=_load_may_differ(content, path),
        pairing=_load_pairing(content, path),
        analysis=analysis,
        resources=share_resources(resources, _replicates(arms)),
        note=_text(content, "note", path, default=""),
        start_from=load_start_from(content.get("start_from"), path),
        stop_when=load_stop_when(content.get("stop_when"), path, analysis),
    )


def _load_arms(content: Mapping[str, Any], path: Path) -> tuple[ArmSpec, ...]:
    arms: list[ArmSpec] = []
    plain = content.get("arms") or {}
    if not isinstance(plain, Mapping):
        raise UsageError(
            f"`{path}`: `arms` is {plain!r}, want names with lists of overrides",
            "write `arms: {ipo: [loss=ipo]}`",
        )
    for name, overrides in plain.items():
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            raise UsageError(f"`{path}`: {name!r} can't be the name of an arm", "quote the name")
        if isinstance(overrides, Mapping):
            of = load_replicate_of(overrides, f"`{path}`: arm `{name}`")
            arms.append(ArmSpec(str(name), (), of))
            continue
        texts = [] if overrides is None else overrides
        if not isinstance(texts, list):
            raise UsageError(
                f"`{path}`: arm `{name}` is {texts!r}, want a list of overrides",
                f"write `{name}: [key=value]`",
            )
        arms.append(ArmSpec(str(name), parse_overrides(texts, f"`{path}`: arm `{name}`")))
    for axis in ("grid", "zip"):
        expanded = expand_axis(axis, content.get(axis) or {}, path)
        arms.extend(ArmSpec(name, overrides) for name, overrides in expanded)
    if not arms:
        raise UsageError(f"`{path}` has no arms", "add `arms:`, for example `ipo: [loss=ipo]`")
    seen: dict[str, str] = {}
    for arm in arms:
        if not is_valid_name(arm.name):
            raise UsageError(
                f"`{path}`: {arm.name!r} can't be the name of an arm",
                f"use letters, digits, `.`, `_`, `-`, at most {MAX_NAME_LENGTH}, no dot at the end",
            )
        folded = arm.name.casefold()
        if folded in seen:
            raise UsageError(
                f"`{path}`: the arms `{seen[folded]}` and `{arm.name}` have one name",
                "give each arm a name that differs in more than case",
            )
        seen[folded] = arm.name
    return _with_replicates(arms, path)


def _with_replicates(arms: list[ArmSpec], path: Path) -> tuple[ArmSpec, ...]:
    """Give replicates the overrides of their arms."""
    check_replicates(_replicates(arms), [arm.name for arm in arms], path)
    overrides = {arm.name: arm.overrides for arm in arms}
    return tuple(
        arm if arm.replicate_of is None else replace(arm, overrides=overrides[arm.replicate_of])
        for arm in arms
    )


def _replicates(arms: Sequence[ArmSpec]) -> dict[str, str]:
    return {arm.name: arm.replicate_of for arm in arms if arm.replicate_of is not None}


def _load_baseline(content: Mapping[str, Any], arms: tuple[ArmSpec, ...], path: Path) -> str:
    names = [arm.name for arm in arms]
    if "baseline" not in content:
        raise UsageError(f"`{path}` has no `baseline`", f"name one of the arms: {', '.join(names)}")
    baseline = str(content["baseline"])
    if baseline not in names:
        raise UsageError(
            f"`{path}`: the baseline `{baseline}` is not an arm",
            did_you_mean(baseline, names, what="arms"),
        )
    check_baseline(baseline, _replicates(arms), path)
    return baseline


def _load_seeds(content: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    seeds = content.get("seeds")
    if not isinstance(seeds, list) or not seeds:
        raise UsageError(
            f"`{path}`: `seeds` is {seeds!r}, want a list of whole numbers", "write `[0, 1, 2]`"
        )
    for seed in seeds:
        check_value(int, seed, Limits(ge=0, le=MAX_SEED), "seeds", lambda key: f"`{path}`")
        if seeds.count(seed) > 1:
            raise UsageError(f"`{path}`: the seed {seed} stands twice in `seeds`", "name it once")
    return tuple(seeds)


def _load_may_differ(content: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    keys = _list(content, "may_differ", path, default=["loss"])
    for key in keys:
        if not isinstance(key, str) or not key:
            raise UsageError(f"`{path}`: `may_differ` holds {key!r}, want keys", "write `[loss]`")
        if key == "seed" or key.startswith("seed."):
            raise UsageError(
                f"`{path}`: `may_differ` holds `seed`", "seeds belong to `seeds`, not to arms"
            )
    return tuple(keys)


def _load_pairing(content: Mapping[str, Any], path: Path) -> str:
    pairing = content.get("pairing", "seed")
    if pairing is None:
        pairing = "none"
    if pairing not in PAIRINGS:
        raise UsageError(
            f"`{path}`: `pairing` is {pairing!r}",
            did_you_mean(str(pairing), PAIRINGS, what="choices"),
        )
    return str(pairing)


def load_analysis(content: Any, path: Path) -> AnalysisSpec:
    """Return the checked content of an `analysis:` block; the defaults where there is none.

    Args:
        path: where it stands, for the errors.

    Raises:
        UsageError: a key is unknown, or a value isn't one that it takes.
    """
    if content is None:
        return AnalysisSpec()
    names = [f.name for f in fields(AnalysisSpec)]
    if not isinstance(content, Mapping):
        raise UsageError(f"`{path}`: `analysis` is {content!r}", f"keys: {', '.join(names)}")
    checked: dict[str, Any] = {}
    for key, value in content.items():
        if key not in names:
            raise UsageError(
                f"`{path}`: unknown key `analysis.{key}`", did_you_mean(str(key), names)
            )
        checked[key] = _check_analysis(str(key), value, path)
    spec = AnalysisSpec(**checked)
    both = sorted(set(spec.primary) & set(spec.exploratory))
    if both:
        raise UsageError(
            f"`{path}`: `analysis.exploratory` holds `{both[0]}`, which is primary",
            "a metric is either judged or explored: take it out of one of the two",
        )
    first, last = spec.baseline_steps
    if first > last:
        raise UsageError(
            f"`{path}`: `analysis.baseline_steps` is [{first}, {last}], which holds no step",
            "give the first and the last step",
        )
    return spec


def _check_analysis(key: str, value: Any, path: Path) -> Any:
    kinds: dict[str, Any] = {
        "primary": tuple[str, ...],
        "exploratory": tuple[str, ...],
        "baseline_steps": tuple[int, int],
        "last_steps": int,
        "explode_hold": int,
        "collapse_window": int,
    }
    limits = _ANALYSIS_LIMITS.get(key, Limits())
    checked = check_value(
        kinds.get(key, float), value, limits, f"analysis.{key}", lambda _: f"`{path}`"
    )
    if key in ("primary", "exploratory"):
        _check_metric_names(key, list(checked), path)
    return tuple(checked) if isinstance(checked, list) else checked


def _check_metric_names(key: str, names: list[str], path: Path) -> None:
    from analysis.metrics import METRICS  # noqa: PLC0415 (only where it is declared)

    if len(set(names)) != len(names) or (key == "primary" and not names):
        raise UsageError(
            f"`{path}`: `analysis.{key}` is {names}, want each metric once",
            f"write `{key}: [solve_rate, mismatch_kl]`",
        )
    for name in names:
        if name not in METRICS:
            raise UsageError(
                f"`{path}`: `analysis.{key}` holds `{name}`, which is no metric",
                did_you_mean(name, METRICS, what="metrics"),
            )


def _list(content: Mapping[str, Any], key: str, path: Path, default: Any = None) -> list[Any]:
    value = content.get(key)
    if value is None:
        return default or []
    if not isinstance(value, list):
        raise UsageError(f"`{path}`: `{key}` is {value!r}, want a list", f"write `{key}: [a, b]`")
    return value


def _text(content: Mapping[str, Any], key: str, path: Path, *, default: str) -> str:
    value = content.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"`{path}`: `{key}` is {value!r}, want text", "quote it")
    return value
