"""Run folders of prime-rl: metrics of every layout generation, and the resolved config.

    <run>/metrics.jsonl                              until August 2026
    <run>/monitors/file/metrics.jsonl                since; rows name their producer
    <run>/configs/{rl,trainer,orchestrator,inference}.json
    <run>/configs/{attempt_N,latest}/resolved/*.json

A run that was resumed by a newer version has both files: what the older one holds from the first
step of the newer one on was made again. Which attempt a row belongs to is told by the rows alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis import sources  # its registry is complete only when this runs
from analysis.sources.columns import guess_framework
from analysis.sources.contents import (
    Json,
    distinct,
    entries,
    head_rows,
    lookup,
    read_head,
    read_json_object,
)
from analysis.sources.interface import MetricsFile, SourceRun, Wanted
from analysis.sources.prime_rl import TRAINER_PREFIXES
from harness.errors import UsageError

_FILE_NAME = "metrics.jsonl"
_MONITOR_FILE = f"monitors/file/{_FILE_NAME}"
_PARTS = ("trainer", "orchestrator", "inference")
_PATH_KEYS = ("monitors.file.path", "file_monitor.filename")
_ATTEMPT = re.compile(r"attempt_([0-9]{1,9})")


@dataclass(frozen=True)
class _Resolved:
    """The resolved config of one attempt: `parts` by process, and the whole `rl` config."""

    name: str
    parts: dict[str, Json]
    whole: Json

    @property
    def everywhere(self) -> Iterator[Json]:
        yield from self.parts.values()
        yield self.whole


def is_prime_rl_run(path: Path, head: bytes | None) -> bool:
    """Whether `path` is a run folder with metrics, or a metrics file of one."""
    if head is not None:
        return _logs_prime_rl(head_rows(head))
    if (path / _MONITOR_FILE).is_file():
        return True
    configs = _read_configs(path, [])
    file = path / _FILE_NAME
    if not file.is_file():
        return any(True for _ in _configured_files(path, configs, []))
    # Others call their files so, too: rows that say otherwise decide.
    rows = head_rows(read_head(file))
    return bool(configs) or not rows or _logs_prime_rl(rows)


def _logs_prime_rl(rows: list[Json]) -> bool:
    keys = {key for row in rows for key in row}
    return "producer" in keys or guess_framework(keys) == "prime_rl"


def has_prime_rl_config(path: Path) -> bool:
    """Whether the folder has prime-rl's configs: it is a run folder, with or without metrics."""
    return bool(_read_configs(path, []))


def read_prime_rl_run(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run whose folder, or one of whose metrics files, is `path`.

    A named file is read alone; the config is that of the folder it lies in. Of several attempts
    the newest config counts, and what else `trainer.loss` was is a problem.

    Raises:
        UsageError: `path` is a folder without metrics and without configs of prime-rl.
    """
    problems: list[str] = []
    root = path if path.is_dir() else _root_of(path)
    configs = _read_configs(root, problems)
    if path.is_dir():
        standard = [root / name for name in (_FILE_NAME, _MONITOR_FILE)]
        configured = _configured_files(root, configs, problems)
        paths = distinct([*(p for p in standard if p.is_file()), *configured])
        if not paths and not configs:
            raise UsageError(
                f"`{path}` is no run folder of prime-rl: it has no `{_FILE_NAME}`, no "
                f"`{_MONITOR_FILE}` and no configs",
                "name the folder `<output_dir>/<run.name>`",
            )
        if not paths:
            problems.append(f"no metrics file: neither `{_FILE_NAME}` nor `{_MONITOR_FILE}`")
    else:
        paths = [path]
    problems.extend(_loss_changes(configs))
    files = _in_order([_read_file(p, wanted) for p in paths])
    newest = configs[-1] if configs else None
    max_steps = _max_steps(newest)
    keys = frozenset().union(*(file.keys for file in files))
    return SourceRun(
        label=(root if root.name else root.resolve()).name,
        framework="prime_rl" if configs else guess_framework(keys) or "prime_rl",
        files=tuple(files),
        attempt_groups=tuple(range(1, len(files) + 1)),
        config=dict(newest.parts) if newest and newest.parts else None,
        state="finished" if _is_finished(files, max_steps) else "unknown",
        max_steps=max_steps,
        problems=tuple(problems),
    )


def _root_of(file: Path) -> Path:
    """Return the run folder that a metrics file lies in."""
    folder = file.parent
    is_monitor = folder.name == "file" and folder.parent.name == "monitors"
    return folder.parent.parent if is_monitor else folder


def _read_file(path: Path, wanted: Wanted) -> MetricsFile:
    return sources.read_metrics(path, "prime_rl", wanted=wanted)


def _in_order(files: list[MetricsFile]) -> list[MetricsFile]:
    """Return the files by the time of their first rows; as they stand where rows have no time."""
    starts = []
    for file in files:
        times = [one.times for one in file.series.values()]
        if not times:
            starts.append(0.0)
            continue
        joined = np.concatenate(times)
        if not np.isfinite(joined).any():
            return files
        starts.append(float(np.nanmin(joined)))
    return [files[place] for place in sorted(range(len(files)), key=lambda place: starts[place])]


def _read_configs(root: Path, problems: list[str]) -> list[_Resolved]:
    """Return the resolved configs under `root`, oldest attempt first, `latest` last."""
    folder = root / "configs"
    numbered = sorted(
        (int(match[1]), entry)
        for entry in entries(folder)
        if (match := _ATTEMPT.fullmatch(entry.name))
    )
    folders = [folder, *(entry for _, entry in numbered)]
    latest = folder / "latest"
    if latest.is_symlink() and not _is_below(latest.resolve(), root.resolve()):
        if latest.exists():
            problems.append("`configs/latest` leads out of the run's folder: not read")
    elif latest.is_dir():
        folders = [f for f in folders if not f.exists() or not f.samefile(latest)]
        folders.append(latest)
    found = (_read_config(root, place, problems) for place in folders)
    return [config for config in found if config is not None] if folder.is_dir() else []


def _read_config(root: Path, folder: Path, problems: list[str]) -> _Resolved | None:
    read: dict[str, Json] = {}
    for name in (*_PARTS, "rl"):
        for path in (folder / "resolved" / f"{name}.json", folder / f"{name}.json"):
            if not path.is_file():
                continue
            content, problem = read_json_object(path)
            if content is None:
                problems.append(f"`{path.relative_to(root)}`: {problem}; it is left out")
            else:
                read[name] = content
            break
    whole = read.pop("rl", {})
    for name in _PARTS:
        if name not in read and isinstance(whole.get(name), dict):
            read[name] = whole[name]
    if not read and not whole:
        return None
    return _Resolved(str(folder.relative_to(root)), read, whole)


def _configured_files(root: Path, configs: list[_Resolved], problems: list[str]) -> Iterator[Path]:
    """Yield the metrics files that the configs name, where they lie in the run's folder.

    A config is data: it can't make the reader open what lies elsewhere.
    """
    seen = set()
    for config in configs:
        for tree in config.everywhere:
            for key in _PATH_KEYS:
                value = lookup(tree, key)
                if not isinstance(value, str) or not value or value in seen:
                    continue
                seen.add(value)
                path = _inside(root, value, tree)
                if path is None:
                    problems.append(
                        f"`{key}` is `{value}`, outside the run's folder: not read; name that "
                        "file itself if it belongs to the run"
                    )
                elif _is_file(path):
                    yield path


def _inside(root: Path, value: str, tree: Mapping[str, Any]) -> Path | None:
    """Return where `value` lies in `root`; None where it lies outside.

    A folder that was copied from the machine it was made on keeps that machine's absolute paths:
    they are taken relative to the `output_dir` that the config names.
    """
    base = os.path.abspath(root)  # noqa: PTH100 (resolve would follow links)
    output_dir = tree.get("output_dir")
    if Path(value).is_absolute() and isinstance(output_dir, str) and output_dir:
        relative = os.path.relpath(value, output_dir)
        if not relative.startswith(".."):
            value = relative
    path = Path(os.path.normpath(Path(base) / value))
    return path if _is_below(path, Path(base)) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that no file can have.
        return False


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _max_steps(config: _Resolved | None) -> int | None:
    for tree in config.everywhere if config else ():
        value = tree.get("max_steps")
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _is_finished(files: list[MetricsFile], max_steps: int | None) -> bool:
    """Whether the trainer made its last step. Steps may count from 0.

    The orchestrator logs a step when its batch is shipped, before the trainer has made it.
    """
    if max_steps is None:
        return False
    of_trainer = [
        one.steps
        for file in files
        for key, one in file.series.items()
        if key.startswith(TRAINER_PREFIXES) and len(one.steps)
    ]
    steps = of_trainer or [file.row_steps for file in files if len(file.row_steps)]
    if not steps:
        return False
    first = min(int(one.min()) for one in steps)
    last = max(int(one.max()) for one in steps)
    return last + (1 if first == 0 else 0) >= max_steps


def _loss_changes(configs: list[_Resolved]) -> list[str]:
    """Return one sentence per earlier attempt whose loss isn't the newest one's."""
    if not configs:
        return []
    newest = lookup(configs[-1].parts, "trainer.loss")
    return [
        f"`{config.name}` has another `trainer.loss` than `{configs[-1].name}`, which is shown: "
        f"{lookup(config.parts, 'trainer.loss')} became {newest}"
        for config in configs[:-1]
        if lookup(config.parts, "trainer.loss") != newest
    ]
