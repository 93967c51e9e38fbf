"""What several folders or files hold of one run, as one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.sources.interface import SourceRun

_MIN_SHARED = 0.5
"""Share of the fewer keys from which on two parts are attempts of one process."""


@dataclass
class _Process:
    """The parts that one process wrote, in order."""

    keys: set[str]
    parts: list[SourceRun] = field(default_factory=list)


def join_runs(parts: Sequence[SourceRun]) -> SourceRun:
    """Return the parts of one run as one run.

    Parts that log the same keys are successive attempts of a process; parts that log others are
    of another process (trainer, orchestrator), whose first part belongs to the first attempt. If
    the processes have left different numbers of parts, nothing tells which belong together: all
    are of one attempt then, and the times of rows order them. A file that several parts hold is
    read once.
    """
    distinct_parts, problems = _without_repeats(parts)
    if len(distinct_parts) == 1:
        only = distinct_parts[0]
        return replace(only, problems=(*only.problems, *problems))
    # What logged nothing takes no part in counting attempts.
    empty = [part for part in distinct_parts if not _keys(part)]
    in_order = _in_order([part for part in distinct_parts if _keys(part)])
    processes: list[_Process] = []
    for part in in_order:
        keys = _keys(part)
        process = next((p for p in processes if _is_same_process(p.keys, keys)), None)
        if process is None:
            process = _Process(set())
            processes.append(process)
        process.keys |= keys
        process.parts.append(part)
    numbers = [_attempt_groups(process.parts) for process in processes]
    if len({max((g for groups in n for g in groups), default=0) for n in numbers}) > 1:
        numbers = [[[1] * len(groups) for groups in of_process] for of_process in numbers]
    ordered = [part for process in processes for part in process.parts] + empty
    numbers.append([[1] * len(part.files) for part in empty])
    newest_first = [*reversed(in_order), *empty]
    frameworks = list(dict.fromkeys(part.framework for part in ordered if part.framework))
    if len(frameworks) > 1:
        problems.append(f"its parts log keys of several frameworks: {', '.join(frameworks)}")
    configs = [part.config for part in newest_first if part.config is not None]
    return SourceRun(
        label=parts[0].label,
        framework=frameworks[0] if frameworks else "",
        files=tuple(file for part in ordered for file in part.files),
        attempt_groups=tuple(g for of_process in numbers for groups in of_process for g in groups),
        config=_merged(configs) if configs else None,
        state=_state([process.parts[-1].state for process in processes]),
        max_steps=next((p.max_steps for p in newest_first if p.max_steps is not None), None),
        versions={k: v for part in reversed(newest_first) for k, v in part.versions.items()},
        problems=(*(problem for part in ordered for problem in part.problems), *problems),
    )


def _without_repeats(parts: Sequence[SourceRun]) -> tuple[list[SourceRun], list[str]]:
    seen: dict[tuple[int, int] | str, str] = {}
    problems: list[str] = []
    kept_parts = []
    for part in parts:
        kept = []
        for file, group in zip(part.files, part.attempt_groups, strict=True):
            path = file.provenance.path
            identity = _identity(path)
            if identity in seen:
                problems.append(f"`{path}` is the same file as `{seen[identity]}`: read once")
                continue
            seen[identity] = path
            kept.append((file, group))
        if kept or not part.files:
            files, groups = tuple(f for f, _ in kept), tuple(g for _, g in kept)
            kept_parts.append(replace(part, files=files, attempt_groups=groups))
    return kept_parts, problems


def _keys(part: SourceRun) -> set[str]:
    return set().union(*(file.keys for file in part.files))


def _identity(path: str) -> tuple[int, int] | str:
    try:
        status = Path(path).stat()
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _in_order(parts: Sequence[SourceRun]) -> list[SourceRun]:
    """Return the parts by the time of their first rows; as they stand where one has no times."""
    starts = [_start(part) for part in parts]
    if any(np.isnan(start) for start in starts):
        return list(parts)
    return [parts[place] for place in sorted(range(len(parts)), key=lambda place: starts[place])]


def _start(part: SourceRun) -> float:
    times = [one.times for file in part.files for one in file.series.values()]
    finite = [column[np.isfinite(column)] for column in times]
    return min((float(column.min()) for column in finite if len(column)), default=float("nan"))


def _is_same_process(some: set[str], others: set[str]) -> bool:
    fewer = min(len(some), len(others))
    return fewer > 0 and len(some & others) >= _MIN_SHARED * fewer


def _attempt_groups(parts: Sequence[SourceRun]) -> list[list[int]]:
    """Return the attempt of every file of every part, counted on from part to part."""
    numbers = []
    before = 0
    for part in parts:
        groups = [before + group for group in part.attempt_groups]
        before = max(groups, default=before)
        numbers.append(groups)
    return numbers


def _state(states: Sequence[str]) -> str:
    for word in ("failed", "running", "unknown"):
        if word in states:
            return word
    return states[0] if states else "unknown"


def _merged(trees: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the trees as one: where several have a key, the first one's value counts."""
    merged: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            if key not in merged:
                merged[key] = value
            elif isinstance(merged[key], Mapping) and isinstance(value, Mapping):
                merged[key] = _merged([merged[key], value])
    return merged
