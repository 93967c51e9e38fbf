"""`start_from` of a sweep file: which checkpoint its runs start from, found and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checkpoint import (
    Checkpoint,
    find_entries,
    hash_content,
    open_checkpoint,
    stamp_content,
)
from harness.errors import HarnessError, UsageError
from harness.near import did_you_mean
from harness.records.files import read_json_if_there
from harness.records.layout import RunPaths, SweepPaths, outputs_root
from harness.records.model import PlannedRun, PlanRecord, RunRecord, StartRecord, read_record
from harness.sweep.difference import find_differences
from harness.sweep.finished import find_earlier
from harness.trainers.registry import load_trainer

_KEYS = ("run", "checkpoint", "step")
_EXAMPLE = "write `start_from: {run: SWEEP/ARM/SEED, step: 200}`"
_MUST_FIT = ("task", "model")
"""Groups in which a fork may not differ from its parent."""


@dataclass(frozen=True)
class StartFrom:
    """What the sweep file says; exactly one of `run` and `checkpoint` is not empty.

    Attributes:
        run: `SWEEP/ARM/SEED`, or `SWEEP/ARM` for each seed's own run.
        step: None for the newest whole checkpoint.
    """

    run: str
    checkpoint: str
    step: int | None

    @property
    def asked(self) -> dict[str, Any]:
        """The keys that the sweep file gives."""
        given = {"run": self.run, "checkpoint": self.checkpoint, "step": self.step}
        return {key: value for key, value in given.items() if value not in ("", None)}


@dataclass(frozen=True)
class FoundStart:
    """A start that was found on disk.

    Attributes:
        checkpoint: None where it is gone, and no run needs it any more.
        parent_config: of the run that made it, where there is one.
    """

    record: StartRecord
    checkpoint: Checkpoint | None
    parent_config: Mapping[str, Any] | None

    @property
    def identity(self) -> dict[str, Any]:
        """What of it decides what a run computes: neither where it lies nor who made it."""
        return {"step": self.record.step, "sha256": self.record.sha256}


def load_start_from(content: Any, path: Path) -> StartFrom | None:
    """Return the checked content of a `start_from:` block; None where there is none.

    Raises:
        UsageError: a key is unknown, or a value isn't one that it takes.
    """
    if content is None:
        return None
    if not isinstance(content, Mapping):
        raise UsageError(f"`{path}`: `start_from` is {content!r}", _EXAMPLE)
    for key in content:
        if key not in _KEYS:
            raise UsageError(
                f"`{path}`: unknown key `start_from.{key}`",
                did_you_mean(str(key), _KEYS, what="keys"),
            )
    if ("run" in content) == ("checkpoint" in content):
        raise UsageError(f"`{path}`: `start_from` wants one of `run` and `checkpoint`", _EXAMPLE)
    for key in ("run", "checkpoint"):
        if key in content and (not isinstance(content[key], str) or not content[key]):
            raise UsageError(f"`{path}`: `start_from.{key}` is {content[key]!r}", _EXAMPLE)
    step = content.get("step")
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 1):
        raise UsageError(
            f"`{path}`: `start_from.step` is {step!r}, want a step from 1 on", _EXAMPLE
        )
    return StartFrom(content.get("run", ""), content.get("checkpoint", ""), step)


def find_starts(
    asked: StartFrom | None,
    arms: Sequence[str],
    seeds: Sequence[int],
    where: str,
    sweep: SweepPaths,
    stored: PlanRecord | None,
) -> dict[int, FoundStart]:
    """Return what the run of each seed starts from; empty where all start from scratch.

    A stored plan of the same wish keeps its step, also where the parent has gone on since; and
    where all runs have begun it keeps the start, also where the parent is gone.

    Args:
        where: the sweep file, for the errors.

    Raises:
        UsageError: there is no such run or checkpoint, or it is not whole.
    """
    if asked is None:
        return {}
    before = () if stored is None else stored.start_from
    old = {start.seed: start for start in before if start.asked == asked.asked}
    try:
        return _find(asked, seeds, sweep, old)
    except UsageError as error:
        kept = {seed: old.get(seed, old.get(None)) for seed in seeds}
        if all(kept.values()) and _have_begun(sweep, arms, seeds):
            return {s: FoundStart(start, None, None) for s, start in kept.items() if start}
        message = f"`{where}`: `start_from`: {error.message}"
        raise UsageError(message, error.hint) from None


def _find(
    asked: StartFrom,
    seeds: Sequence[int],
    sweep: SweepPaths,
    old: Mapping[int | None, StartRecord],
) -> dict[int, FoundStart]:
    if asked.checkpoint:
        found = _found(asked, None, Path(asked.checkpoint), None, sweep, old.get(None))
        if asked.step is not None and found.record.step != asked.step:
            raise UsageError(
                f"`{asked.checkpoint}` is of step {found.record.step}, not {asked.step}",
                "leave `step` out: the folder's name tells it",
            )
        return dict.fromkeys(seeds, found)
    parents, arm, seed = _split_run(asked.run)
    if seed is not None:
        found = _of_run(asked, None, parents.run(arm, seed), sweep, old.get(None))
        return dict.fromkeys(seeds, found)
    return {s: _of_run(asked, s, parents.run(arm, s), sweep, old.get(s)) for s in seeds}


def _split_run(text: str) -> tuple[SweepPaths, str, int | None]:
    """Return sweep, arm and seed of `SWEEP/ARM[/SEED]`; SWEEP is a name or a path."""
    path = RunPaths(Path(text))
    if path.record.is_file():
        return path.sweep, path.arm, path.seed
    parts = text.rstrip("/").rsplit("/", 2)
    digits = parts[-1].removeprefix("seed_")
    if len(parts) == 3 and digits.isdecimal():
        word, arm, seed = parts[0], parts[1], int(digits)
    else:
        word, _, arm = text.rstrip("/").rpartition("/")
        seed = None
    if not word or not arm:
        raise UsageError(f"`{text}` names no run", _EXAMPLE)
    sweep = SweepPaths(Path(word) if "/" in word or word in (".", "..") else outputs_root() / word)
    if not sweep.plan.is_file():
        raise UsageError(
            f"there is no sweep `{word}` to start from: `{sweep.plan}` does not exist",
            "name a sweep that has run, as in `harness status SWEEP`",
        )
    arms = list(dict.fromkeys(run.arm for run in sweep.runs()))
    if arm not in arms:
        raise UsageError(
            f"the sweep `{word}` has no run of an arm `{arm}`", did_you_mean(arm, arms, what="arms")
        )
    return sweep, arm, seed


def _of_run(
    asked: StartFrom,
    seed: int | None,
    parent: RunPaths,
    sweep: SweepPaths,
    old: StartRecord | None,
) -> FoundStart:
    name = f"{parent.sweep.name}/{parent.arm}/{parent.root.name}"
    if not parent.record.is_file():
        seeds = [str(run.seed) for run in parent.sweep.runs() if run.arm == parent.arm]
        raise UsageError(
            f"there is no run `{name}`",
            f"`{parent.arm}` has the seeds {', '.join(seeds)}",
        )
    record = _read(parent)
    if record.checkpoints is None:
        raise UsageError(
            f"`{name}` keeps no checkpoints that are known of",
            "a program names its folder by `trainer.checkpoints`; or give `checkpoint: FOLDER`",
        )
    entries = find_entries(parent.root / record.checkpoints)
    step = asked.step if asked.step is not None or old is None else old.step
    if step is None:
        return _newest(asked, seed, entries, parent, sweep, name)
    if step not in entries:
        steps = ", ".join(map(str, entries)) or "none"
        raise UsageError(
            f"`{name}` has no checkpoint of step {step}",
            f"it has those of step {steps}; `trainer.checkpoints.every` and `keep_every` say which"
            " its recipe keeps",
        )
    return _found(asked, seed, entries[step], parent, sweep, old)


def _newest(
    asked: StartFrom,
    seed: int | None,
    entries: Mapping[int, Path],
    parent: RunPaths,
    sweep: SweepPaths,
    name: str,
) -> FoundStart:
    problem = UsageError(f"`{name}` has no checkpoint yet", f"`harness status {name}` shows it")
    for path in reversed(list(entries.values())):
        try:
            return _found(asked, seed, path, parent, sweep, None)
        except UsageError as error:
            problem = error
    raise problem


def _found(
    asked: StartFrom,
    seed: int | None,
    path: Path,
    parent: RunPaths | None,
    sweep: SweepPaths,
    old: StartRecord | None,
) -> FoundStart:
    checkpoint = open_checkpoint(path)
    stamp = stamp_content(checkpoint.path)
    is_same = old is not None and old.stamp == stamp and old.step == checkpoint.step
    sha256 = old.sha256 if old is not None and is_same else hash_content(checkpoint.path)
    parent = parent or _run_around(checkpoint.path)
    record = None if parent is None else _read(parent)
    start = StartRecord(
        seed=seed,
        asked=asked.asked,
        step=checkpoint.step,
        sha256=sha256,
        stamp=stamp,
        checkpoint=_shown(checkpoint.path, sweep),
        parent="" if record is None else f"{record.sweep}/{record.arm}/seed_{record.seed}",
        parent_dir=None if parent is None else _shown(parent.root, sweep),
        parent_identity=None if record is None else record.identity,
    )
    config = None if parent is None else read_json_if_there(parent.config)
    return FoundStart(start, checkpoint, config)


def _run_around(checkpoint: Path) -> RunPaths | None:
    """Return the run of this project whose folder holds `checkpoint`."""
    for folder in checkpoint.parents:
        run = RunPaths(folder)
        if run.record.is_file() and run.config.is_file() and run.sweep.runs_dir.is_dir():
            return run
    return None


def _read(parent: RunPaths) -> RunRecord:
    try:
        return read_record(RunRecord, parent.record)
    except HarnessError as error:
        raise UsageError(error.message, error.hint) from None


def _shown(path: Path, sweep: SweepPaths) -> str:
    """Return `path` relative to the sweep's folder where both lie below one folder of outputs."""
    root = sweep.root.absolute()
    path = path.absolute()
    near = path.is_relative_to(root.parent)
    return Path(os.path.relpath(path, root)).as_posix() if near else path.as_posix()


def _have_begun(sweep: SweepPaths, arms: Sequence[str], seeds: Sequence[int]) -> bool:
    runs = [PlannedRun(arm, seed, "", 0) for seed in seeds for arm in arms]
    return len(find_earlier(sweep, runs)) == len(runs)


def check_starts(
    starts: Mapping[int, FoundStart],
    runs: Sequence[PlannedRun],
    configs: Mapping[str, Mapping[str, Any]],
    where: str,
) -> None:
    """Refuse runs that can't start from what was found for them.

    Raises:
        UsageError: another trainer, task or model than the parent's, or no step is left to do;
            names the keys.
    """
    for run in runs:
        config = configs[run.run_id]
        start = starts.get(run.seed)
        trainer = load_trainer(config["trainer"]["type"])
        try:
            if start is not None:
                _check_start(start, run, config)
            if start is None or start.checkpoint is not None:
                trainer.check_start(config, None if start is None else start.checkpoint)
        except UsageError as error:
            raise UsageError(f"`{where}`: arm `{run.arm}`: {error.message}", error.hint) from None


def _check_start(start: FoundStart, run: PlannedRun, config: Mapping[str, Any]) -> None:
    record = start.record
    parent = f"`{record.parent or record.checkpoint}`"
    if record.step >= run.max_steps:
        raise UsageError(
            f"`max_steps` is {run.max_steps}, and {parent} has done {record.step} steps at the"
            " checkpoint that it would start from",
            "`max_steps` counts the parent's steps, too: raise it, or start from an earlier step",
        )
    if start.parent_config is None:
        return
    before, now = (c.get("trainer", {}).get("type") for c in (start.parent_config, config))
    if before != now:
        raise UsageError(
            f"`trainer.type`: {parent} is a run of the trainer `{before}`, this is one of `{now}`",
            "start from a run of the same trainer",
        )
    differences = find_differences(
        {key: start.parent_config.get(key, {}) for key in _MUST_FIT},
        {key: config.get(key, {}) for key in _MUST_FIT},
    )
    if differences:
        shown = ", ".join(f"`{d.key}`: {d.baseline} -> {d.arm}" for d in differences[:4])
        more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise UsageError(
            f"{parent} is of another {' and '.join(_groups(differences))}: {shown}{more}",
            "a fork keeps its parent's task and model: set these keys back, or choose another run",
        )


def _groups(differences: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(difference.key.partition(".")[0] for difference in differences))


def describe_starts(starts: Sequence[StartRecord]) -> str:
    """Return what the runs of a plan start from, in one sentence; empty where from scratch."""
    if not starts:
        return ""
    first = starts[0]
    if first.seed is None:
        return f"every run starts from step {first.step} of {first.parent or first.checkpoint}"
    steps = sorted({start.step for start in starts})
    shown = str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    arm = first.parent.rpartition("/")[0]
    return f"each run starts from step {shown} of the run of its own seed in {arm}"


def find_start_warnings(starts: Mapping[int, FoundStart], sweep: SweepPaths) -> tuple[str, ...]:
    """Say which checkpoints may go before the runs have started from them."""
    found = {}
    for start in starts.values():
        record = start.record
        if record.parent_dir is None or start.checkpoint is None:
            continue
        parent = RunPaths(Path(os.path.normpath(sweep.root / record.parent_dir)))
        attempts = parent.attempts()
        is_open = bool(attempts) and not attempts[-1].exit.is_file()
        if is_open and not _is_kept(record.step, start.parent_config or {}):
            found[record.parent] = (
                f"{record.parent}, which runs start from, may still be at work, and a trainer"
                f" drops its older checkpoints: that of step {record.step} may go before they"
                " start"
            )
    return tuple(found.values())


def _is_kept(step: int, config: Mapping[str, Any]) -> bool:
    checkpoints = config.get("trainer", {}).get("checkpoints")
    keep = checkpoints.get("keep_every") if isinstance(checkpoints, Mapping) else None
    return isinstance(keep, int) and keep > 0 and step % keep == 0
