"""Runs that this project never launched, put together as if they were the arms of one sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from analysis.curve import Curve, typical_spacing
from analysis.load import curves_by_run, logged_steps, run_notices
from analysis.logged import Logged, read_logged
from analysis.losses import LOSS_ROOTS, loss_of
from analysis.metrics import is_metric_key, nearest_keys
from analysis.parents import parent_of
from analysis.runs import Notice, Run, RunState, RunTime, Sweep
from analysis.sources.columns import NOT_METRICS
from analysis.sources.interface import FileProvenance, MetricsFile, SourceRun
from analysis.sources.locate import open_source
from analysis.table import build_table, clock, superseded_steps
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.files import flatten
from harness.records.layout import MAX_NAME_LENGTH, SweepPaths, is_valid_name
from harness.records.model import (
    SCHEMA_VERSION,
    AnalysisSpec,
    CodeRecord,
    KeyDifference,
    PlannedArm,
    PlannedRun,
    PlanRecord,
)

TRAINER = "foreign runs"
_MAX_LISTED = 5
_SEED_KEYS = ("seed", "trainer.seed", "orchestrator.seed", "data.seed")


@dataclass(frozen=True)
class ArmSource:
    """One run of an arm as the user named it: `ipo=SRC`."""

    arm: str
    source: str


@dataclass(frozen=True)
class ComparisonSpec:
    """What is compared, and how.

    Attributes:
        name: what the comparison is called.
        pairing: `seed` pairs the runs of equal seed (of equal place, where configs name none).
        metrics_keys: canonical name -> key or column, where the user names them.
        may_differ: config keys in which arms may differ, beside those of the loss.
        max_steps: steps that every run was to make; None to take each run's own word.
        min_arms: fewer are refused.
    """

    baseline: str
    name: str = "comparison"
    question: str = ""
    pairing: str = "none"
    analysis: AnalysisSpec = field(default_factory=AnalysisSpec)
    metrics_keys: Mapping[str, str] = field(default_factory=dict)
    may_differ: tuple[str, ...] = ()
    max_steps: int | None = None
    min_arms: int = 2


@dataclass(frozen=True)
class _Found:
    planned: PlannedRun
    source: str
    content: SourceRun
    logged: Logged


def load_runs(
    sources: Sequence[ArmSource],
    spec: ComparisonSpec,
    *,
    root: Path = Path(),
    progress: Callable[[str], None] = lambda message: None,
) -> Sweep:
    """Return the runs in `sources` as the arms of one sweep.

    A run whose files are damaged or empty comes back with what could be read, and a notice.

    Args:
        root: folder of the report; nothing is read from there.

    Raises:
        UsageError: a source isn't there or is no run, a run is named twice (or is a copy of
            another), no arm is the baseline, or no run logged a key that `spec` names.
    """
    sources = _expanded(sources)
    _check(sources, spec)
    columns = {name: key for name, key in spec.metrics_keys.items() if name in NOT_METRICS}
    mapped = frozenset(spec.metrics_keys.values())
    contents: list[SourceRun] = []
    for item in sources:
        progress(f"reading {item.source}")
        contents.append(
            open_source(
                item.source,
                wanted=lambda key: key in mapped or is_metric_key(key),
                columns=columns,
            )
        )
    _refuse_repeats(sources, contents)
    _refuse_unknown_keys(spec.metrics_keys, contents)
    seeds = _seeds(sources, contents, spec.pairing)
    found = [
        _read(item, seed, content, spec)
        for item, seed, content in zip(sources, seeds, contents, strict=True)
    ]
    table = build_table([each.logged.series for each in found])
    by_run, repeated = curves_by_run(table), superseded_steps(table)
    runs = []
    notices: list[Notice] = []
    for each in found:
        key = (each.planned.arm, each.planned.seed)
        run = _make_run(each, by_run.get(key, {}), repeated.get(key, 0))
        runs.append(run)
        notices += [Notice("source", f"{run.run_id}: {text}") for text in run.problems]
        notices += run_notices(run)
    order = list(dict.fromkeys(item.arm for item in sources))
    runs.sort(key=lambda run: (order.index(run.arm), run.seed))
    plan = _plan(order, runs, spec)
    notices += _length_notices(runs)
    if spec.pairing == "seed":
        notices += _pairing_notices(runs)
    return Sweep(SweepPaths(root), plan, tuple(runs), table, tuple(notices))


def _expanded(sources: Sequence[ArmSource]) -> list[ArmSource]:
    """Replace patterns of paths, and addresses of several W&B runs, by what they stand for."""
    expanded: list[ArmSource] = []
    for item in sources:
        names = [item.source]
        if item.source.startswith("wandb:") and _is_query(item.source):
            names = _wandb_runs(item.source)
        elif has_magic(item.source) and not Path(item.source).exists():
            path = Path(item.source)
            anchor = Path(path.anchor)
            names = sorted(map(str, anchor.glob(str(path.relative_to(anchor)))))
            if not names:
                raise UsageError(
                    f"`{item.arm}={item.source}`: no path matches", "look at it with `ls`"
                )
        expanded += [ArmSource(item.arm, name) for name in names]
    return expanded


def _wandb_runs(source: str) -> list[str]:
    from analysis.sources.wandb_online import list_wandb_runs  # noqa: PLC0415 (a network)

    address, _, query = source.removeprefix("wandb:").partition("?")
    return [f"wandb:{run}" for run in list_wandb_runs(address, dict(parse_qsl(query)))]


def _is_query(source: str) -> bool:
    address = source.removeprefix("wandb:")
    return "?" in address or address.count("/") < 2


def _check(sources: Sequence[ArmSource], spec: ComparisonSpec) -> None:
    arms = list(dict.fromkeys(item.arm for item in sources))
    for arm in arms:
        if not is_valid_name(arm):
            raise UsageError(
                f"`{arm}` is no name of an arm",
                f"letters, digits, `.`, `_` and `-`, up to {MAX_NAME_LENGTH} of them",
            )
    if spec.baseline not in arms:
        raise UsageError(
            f"--baseline {spec.baseline}: there is no such arm",
            did_you_mean(spec.baseline, arms, what="arms"),
        )
    if len(arms) < spec.min_arms:
        raise UsageError(
            f"there is one arm only, `{arms[0]}`", "give another one with --arm NAME=SOURCE"
        )


def _refuse_repeats(sources: Sequence[ArmSource], contents: Sequence[SourceRun]) -> None:
    """Refuse a run that is named twice: it would count as two seeds."""
    seen: dict[object, tuple[ArmSource, str]] = {}
    for item, content in zip(sources, contents, strict=True):
        for file in content.files:
            for mark in _marks(file.provenance):
                first, path = seen.setdefault(mark, (item, file.provenance.path))
                if first is item:
                    continue
                both = f"`{path}` and `{file.provenance.path}` hold the same"
                if path == file.provenance.path:
                    both = f"both read `{path}`"
                raise UsageError(
                    f"`{first.arm}={first.source}` and `{item.arm}={item.source}` are the same run",
                    f"{both}; leave one of them out",
                )


def _marks(file: FileProvenance) -> Iterator[object]:
    """Yield what two files share only if they are one, by another name or as a copy."""
    try:
        status = Path(file.path).stat()
    except OSError:
        yield file.path
    else:
        yield status.st_dev, status.st_ino
    if file.num_rows and file.sha256:
        yield file.sha256


def _refuse_unknown_keys(keys: Mapping[str, str], contents: Sequence[SourceRun]) -> None:
    """Refuse a key that the user named and no run logged, where runs logged anything."""
    logged = {key for content in contents for file in content.files for key in file.keys}
    for name, key in keys.items():
        if logged and name not in NOT_METRICS and key not in logged:
            near = nearest_keys(key, logged).removeprefix("; ")
            raise UsageError(
                f"--key {name}={key}: no run logged a number as `{key}`",
                near or did_you_mean(key, logged, what="keys"),
            )


def _seeds(sources: Sequence[ArmSource], contents: Sequence[SourceRun], pairing: str) -> list[int]:
    """Return the seeds that configs name, in arms whose runs all name one and none twice; the
    places of the runs within the other arms.

    Raises:
        UsageError: seeds are to pair runs, and only some arms name theirs.
    """
    by_arm: dict[str, list[int | None]] = {}
    for item, content in zip(sources, contents, strict=True):
        by_arm.setdefault(item.arm, []).append(_config_seed(content.config))
    naming = {
        arm for arm, seeds in by_arm.items() if None not in seeds and len(set(seeds)) == len(seeds)
    }
    if pairing == "seed" and naming and len(naming) < len(by_arm):
        nameless = next(arm for arm in by_arm if arm not in naming)
        raise UsageError(
            f"--pairing seed: the configs of `{nameless}` don't name one seed per run, others do",
            "leave --pairing out, or give runs whose configs name their seeds",
        )
    counts: dict[str, int] = {}
    found = []
    for item in sources:
        place = counts.get(item.arm, 0)
        counts[item.arm] = place + 1
        seed = by_arm[item.arm][place]
        found.append(seed if item.arm in naming and seed is not None else place)
    return found


def _config_seed(config: Mapping[str, Any] | None) -> int | None:
    flat = flatten(config or {})
    for key in _SEED_KEYS:
        value = flat.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _read(item: ArmSource, seed: int, content: SourceRun, spec: ComparisonSpec) -> _Found:
    max_steps = spec.max_steps or content.max_steps or 0
    logged = read_logged(
        item.arm,
        seed,
        content.files,
        attempt_groups=content.attempt_groups,
        metrics_keys={n: k for n, k in spec.metrics_keys.items() if n not in NOT_METRICS},
        framework=content.framework,
    )
    hashes = [file.provenance.sha256 for file in content.files]
    identity = next((text[:16] for text in hashes if text), "unreadable")
    return _Found(PlannedRun(item.arm, seed, identity, max_steps), item.source, content, logged)


def _make_run(found: _Found, run_curves: dict[str, Curve], num_superseded: int) -> Run:
    steps = logged_steps(run_curves)
    state = _state(found.content.state, steps, found.planned.max_steps)
    times = found.logged.series.by_metric.values()
    stamps = np.concatenate([[np.nan], *(series.times for series in times)])
    is_known = bool(np.isfinite(stamps).any())
    work = clock(found.logged.series)
    wall_s = float(work.values[-1]) if len(work) else None
    problems = list(found.content.problems)
    if found.content.state == "failed" and state is RunState.DONE:
        problems.append("the source says it failed, but it made all its steps: it counts as done")
    if not steps:
        problems.append(_why_nothing(found.content.files))
    return Run(
        planned=found.planned,
        state=state,
        config=None if found.content.config is None else dict(found.content.config),
        files=found.logged.files,
        keys=found.logged.keys,
        available_keys=found.logged.available,
        curves=run_curves,
        clock=work,
        num_superseded=num_superseded,
        time=RunTime(
            start=float(np.nanmin(stamps)) if is_known else None,
            end=float(np.nanmax(stamps)) if is_known else None,
            wall_s=wall_s,
            steps_per_s=len(steps) / wall_s if wall_s and steps else None,
        ),
        source=found.source,
        framework=found.content.framework,
        versions=found.content.versions,
        problems=tuple(problems),
        parent=parent_of(Path(found.source)),
    )


def _why_nothing(files: Sequence[MetricsFile]) -> str:
    """Say why no metric was read, as far as the files tell."""
    said = "no metric was read"
    for file in files:
        path, num_rows = file.provenance.path, file.provenance.num_rows
        without_step = file.provenance.num_rows_without_step
        if without_step:
            return f"{said}: {without_step} of {num_rows} rows of `{path}` have no whole step"
        if file.keys:
            keys = ", ".join(f"`{key}`" for key in sorted(file.keys)[:_MAX_LISTED])
            return f"{said}: nobody knows the keys of `{path}` ({keys}); --key METRIC=KEY names one"
        if not file.provenance.problem:
            return f"{said}: `{path}` holds {f'no number in {num_rows}' if num_rows else 'no'} rows"
    return said


def _state(said: str, steps: list[int], max_steps: int) -> RunState:
    """How far a run came: its steps where its goal is known, before what its tracker says."""
    if steps and said == "stopped":
        return RunState.STOPPED
    if not steps:
        return RunState.FAILED if said in ("failed", "finished") else RunState.UNFINISHED
    if max_steps:
        spacing = typical_spacing(np.array(steps, dtype=np.int64))
        if steps[-1] + spacing >= max_steps:
            return RunState.DONE
        return {"failed": RunState.FAILED, "finished": RunState.SHORT}.get(
            said, RunState.UNFINISHED
        )
    return {"failed": RunState.FAILED, "running": RunState.UNFINISHED}.get(said, RunState.DONE)


def _length_notices(runs: Sequence[Run]) -> list[Notice]:
    """Say where runs count as finished only because nothing tells how long they were to be."""
    guessed = [r for r in runs if r.state is RunState.DONE and not r.planned.max_steps]
    ends = {run.last_step for run in guessed}
    if len(ends) < 2:
        return []
    listed = ", ".join(f"{run.run_id} {run.last_step}" for run in guessed)
    message = (
        "nothing says how many steps these runs were to make, so all count as finished, though they"
        f" end at different steps: {listed}; --max-steps N says it"
    )
    return [Notice("unknown_length", message)]


def _pairing_notices(runs: Sequence[Run]) -> list[Notice]:
    """Say where pairs rest on the order of runs, and which runs have no partner in some arm."""
    notices = []
    if all(_config_seed(run.config) is None for run in runs):
        message = "no config names a seed, so runs are paired in the order in which they were named"
        notices.append(Notice("paired_by_place", message))
    num_arms = len({run.arm for run in runs})
    counts = Counter(run.seed for run in runs)
    lonely = ", ".join(run.run_id for run in runs if counts[run.seed] < num_arms)
    if lonely:
        message = f"not every arm has these seeds, so pairs leave these runs out: {lonely}"
        notices.append(Notice("unpaired", message))
    return notices


def _plan(arms: Sequence[str], runs: Sequence[Run], spec: ComparisonSpec) -> PlanRecord:
    losses = {arm: _loss_of_arm(arm, runs) for arm in arms}
    return PlanRecord(
        schema_version=SCHEMA_VERSION,
        sweep=spec.name,
        question=spec.question,
        baseline=spec.baseline,
        pairing=spec.pairing,
        may_differ=(*LOSS_ROOTS, *spec.may_differ),
        common=(),
        overrides=(),
        conf_dirs=(),
        trainer=", ".join(sorted({run.framework for run in runs} - {""})) or TRAINER,
        seeds=tuple(sorted({run.seed for run in runs})),
        arms=tuple(
            PlannedArm(
                name=arm,
                overrides=(),
                differs=_differences(losses[spec.baseline], losses[arm]),
                restated=(),
                loss=losses[arm],
            )
            for arm in arms
        ),
        runs=tuple(run.planned for run in runs),
        left=(),
        analysis=spec.analysis,
        earlier_analysis=(),
        code=CodeRecord("", None, None, {}),
    )


def _loss_of_arm(arm: str, runs: Sequence[Run]) -> dict[str, Any]:
    configs = [run.config for run in runs if run.arm == arm and run.config is not None]
    return loss_of(configs[0]) if configs else {}


def _differences(baseline: Mapping[str, Any], arm: Mapping[str, Any]) -> tuple[KeyDifference, ...]:
    ours, theirs = flatten(arm), flatten(baseline)
    return tuple(
        KeyDifference(key, theirs.get(key), ours.get(key))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    )
