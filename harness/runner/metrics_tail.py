"""Follows a growing metrics file: the newest step, KL, solve rate and token count.

Only new bytes are read. A last line without its line break is kept back until the rest of it has
been written; a line that isn't a row is skipped.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from harness.records.attempt_folders import attempt_folders

CANONICAL_NAMES = ("step", "tokens", "mismatch_kl", "solve_rate")

_PRIME_RL_KEYS = {
    "step": re.compile(r"step"),
    "tokens": re.compile(r"progress/tokens"),
    "mismatch_kl": re.compile(r"mismatch_kl/all/mean"),
    "solve_rate": re.compile(r"train/(.+/)?all/agent/reward/mean"),
}
_FRAMEWORK_KEYS = {
    "verl": {"mismatch_kl": re.compile(r"rollout_corr/k3_kl")},
    "trainer_state": {"tokens": re.compile(r"num_tokens")},
}
"""Format -> keys that its framework has in place of prime-rl's."""
_VERL = "verl"
_VERL_DEPTHS = ("*.jsonl", "*/*.jsonl")
_RUN_FOLDERS = {"prime_rl_run": ("metrics.jsonl", "monitors/file/metrics.jsonl")}
"""Formats whose path is a folder -> where in it the metrics stand, by version."""
_TRAINER_KEYS = ("mismatch_kl/", "loss/", "optim/", "perf/", "entropy/")
_HISTORY_BYTES = 1 << 16
_READ_BYTES = 1 << 24


@dataclass
class Latest:
    """The newest value of each; None where none was logged."""

    step: int | None = None
    tokens: int | None = None
    mismatch_kl: float | None = None
    solve_rate: float | None = None


class MetricsTail:
    """The newest values of one attempt, which appends to what earlier attempts have logged.

    `latest.step` is the highest step among the rows of this attempt; before its first row it is
    the step of the last row that stood there already. `first_step` is the first that this attempt
    logged; None before. In a run folder of prime-rl only the trainer's rows tell the step: its
    orchestrator is ahead. A version that counts from 0 is counted from 1. verl's files may lie in
    a folder per attempt.

    Args:
        attempt: rows that carry a lower `attempt` are another's and don't count.
        metrics_keys: canonical name -> key, where the file uses names of its own. Without an
            entry prime-rl's key counts, then the canonical name itself.
    """

    def __init__(
        self, path: Path, metrics_format: str, metrics_keys: Mapping[str, str], attempt: int
    ) -> None:
        self._path = path
        self._candidates = tuple(path / name for name in _RUN_FOLDERS.get(metrics_format, ()))
        self._offset_of_steps = 0
        self._attempt = attempt
        self._is_csv = metrics_format == "csv"
        self._is_verl = metrics_format == _VERL
        self._patterns = {**_PRIME_RL_KEYS, **_FRAMEWORK_KEYS.get(metrics_format, {})}
        self._keys = dict(metrics_keys)
        self._header: list[str] | None = None
        self._offset = 0
        self._inode: int | None = None
        self._kept = b""
        self._has_own_rows = False
        self._seen_at: dict[str, int] = {}
        self.latest = Latest()
        self.first_step: int | None = None
        self._read_history()

    def poll(self) -> Latest:
        """Read what was added since the last call and return the newest values.

        A file that became shorter or was replaced is read from its beginning.
        """
        try:
            with self._find_file().open("rb") as file:
                stat = _stat_of(file)
                if stat[0] != self._inode or stat[1] < self._offset:
                    self._inode, self._offset, self._kept, self._header = stat[0], 0, b"", None
                file.seek(self._offset)
                while chunk := file.read(_READ_BYTES):
                    self._offset += len(chunk)
                    self._take(chunk)
        except OSError:
            pass  # not there yet, or its file system is away for the moment
        return self.latest

    def _find_file(self) -> Path:
        """Return the metrics file: of several in a run folder the one that grew last."""
        if self._is_verl:
            return self._find_verl_file()
        there = [path for path in self._candidates if path.is_file()]
        return max(there, key=lambda path: path.stat().st_mtime, default=self._path)

    def _find_verl_file(self) -> Path:
        """Return the newest attempt's file; before it is there, that of the attempt before."""
        folders = attempt_folders(self._path)
        own = [folder for number, folder in folders.items() if number <= self._attempt]
        for folder in [*reversed(own), self._path]:
            files = [path for depth in _VERL_DEPTHS for path in folder.glob(depth)]
            if files:
                return max(files, key=lambda path: path.stat().st_mtime)
        return self._path

    def _read_history(self) -> None:
        try:
            with self._find_file().open("rb") as file:
                self._inode, size = _stat_of(file)
                if self._candidates:
                    self._count_from_one(file.read(_HISTORY_BYTES))
                if self._is_csv:
                    self._header = _parse_csv(file.readline().rstrip(b"\r\n"))
                file.seek(max(0, size - _HISTORY_BYTES))
                data = file.read(size)
                self._offset = file.tell()
        except OSError:
            return
        for line in data.split(b"\n")[:-1]:
            row = self._parse(line)
            if row is not None:
                self._update(row, is_own=False)

    def _count_from_one(self, beginning: bytes) -> None:
        rows = (self._parse(line) for line in beginning.split(b"\n")[:-1])
        for row in rows:
            if row is not None:
                self._step_of(row)

    def _take(self, chunk: bytes) -> None:
        *lines, self._kept = (self._kept + chunk).split(b"\n")
        for line in lines:
            if self._is_csv and self._header is None:
                self._header = _parse_csv(line)
                continue
            row = self._parse(line)
            if row is not None and not _is_earlier(row.get("attempt"), self._attempt):
                self._update(row, is_own=True)

    def _parse(self, line: bytes) -> Mapping[str, Any] | None:
        if self._is_csv:
            cells, header = _parse_csv(line.rstrip(b"\r")), self._header
            if not header or len(cells) != len(header):
                return None
            return {name: _number_or_text(cell) for name, cell in zip(header, cells, strict=True)}
        try:
            row = json.loads(line)
        except ValueError:
            return None
        if not isinstance(row, dict):
            return None
        if self._is_verl:
            data = row.get("data")
            return {**data, "step": row.get("step")} if isinstance(data, dict) else None
        return row

    def _update(self, row: Mapping[str, Any], *, is_own: bool) -> None:
        step = self._step_of(row)
        if step is not None:
            if is_own and self._has_own_rows and self.latest.step is not None:
                step = max(step, self.latest.step)
            if is_own and not self._has_own_rows:
                self._has_own_rows, self.first_step = True, step
            self.latest.step = step
        tokens = _as_int(self._find(row, "tokens"))
        self.latest.tokens = self.latest.tokens if tokens is None else tokens
        for name in ("mismatch_kl", "solve_rate"):
            value = self._find(row, name)
            if value is not None:
                setattr(self.latest, name, value)
                self._seen_at[name] = self.latest.step or 0
        kl_step = self._seen_at.get("mismatch_kl")
        if self._candidates and kl_step is not None and (self.latest.step or 0) > kl_step + 1:
            self.latest.mismatch_kl = None  # prime-rl leaves out what isn't finite

    def _step_of(self, row: Mapping[str, Any]) -> int | None:
        step = _as_int(self._find(row, "step"))
        if step is None or not self._candidates:
            return step
        if not any(key.startswith(_TRAINER_KEYS) for key in row):
            return None
        if step == 0:
            self._offset_of_steps = 1
        return step + self._offset_of_steps

    def _find(self, row: Mapping[str, Any], name: str) -> float | None:
        """Return the mean over the matching keys (one per task) that hold finite numbers."""
        if name in self._keys:
            return _mean([row.get(self._keys[name])])
        pattern = self._patterns[name]
        value = _mean(v for key, v in row.items() if pattern.fullmatch(key))
        return _mean([row.get(name)]) if value is None else value


def _stat_of(file: BinaryIO) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_ino, stat.st_size


def _parse_csv(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", errors="replace")]), [])
    except csv.Error:
        return []


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _mean(values: Iterable[Any]) -> float | None:
    numbers = [number for value in values if (number := _finite(value)) is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _finite(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _as_int(value: float | None) -> int | None:
    return int(value) if value is not None and value == int(value) and value >= 0 else None


def _is_earlier(attempt: Any, current: int) -> bool:
    return isinstance(attempt, (int, float)) and attempt < current
