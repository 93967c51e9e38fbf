"""Runs on a wandb server: `entity/project/run_id`, and those of a whole project."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.sources.cache import cache_dir
from analysis.sources.columns import guess_framework
from analysis.sources.contents import lookup
from analysis.sources.interface import SourceRun, Wanted, parse_step
from analysis.sources.max_steps import max_steps_of
from analysis.sources.wandb_api import (
    WandbServer,
    ask,
    config_of,
    find_server,
    json_object,
    split_address,
)
from analysis.sources.wandb_log import flatten
from analysis.sources.wandb_rows import (
    CALL_STEP,
    CALL_TIME,
    STEP_KEYS,
    build_series,
    is_metric,
)
from analysis.sources.wandb_runs import list_wandb_runs
from harness.errors import HarnessError, UsageError
from harness.records.files import write_atomic

__all__ = ["list_wandb_runs", "read_wandb_online"]

KIND = "wandb_online"

PAGE_STEPS = 1000
"""How many values of `_step` one question covers. The server thins out a range that holds more
rows than are asked for: as many are asked for as the range can hold."""

MAX_PAGES = 2000
"""More than these are hours of questions: a trainer that sets `_step` to, say, a token count."""

MAX_KEYS_ALONE = 40
"""From more keys than this on, whole rows are cheaper than one scan per key."""

_KEYS_PER_QUESTION = 10
_STATES = {
    "finished": "finished",
    "running": "running",
    "preempting": "running",
    "crashed": "failed",
    "failed": "failed",
    "killed": "failed",
    "preempted": "failed",
}

_RUN_QUERY = """
query Run($entity: String!, $project: String!, $run: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $run) {
      name displayName state config group tags commit heartbeatAt
      historyLineCount historyKeys summaryMetrics
    }
  }
}
"""
_ROWS_QUERY = """
query HistoryPage($entity: String!, $project: String!, $run: String!,
                  $minStep: Int64!, $maxStep: Int64!, $pageSize: Int!) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
  }
}
"""
_KEYS_QUERY = """
query HistoryOfKeys($entity: String!, $project: String!, $run: String!,
                    $specs: [JSONString!]!) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { sampledHistory(specs: $specs) }
  }
}
"""
Row = dict[str, Any]


@dataclass(frozen=True)
class _Run:
    """A run as the server describes it.

    Attributes:
        key_counts: by logged key, how often it was logged; None where the server doesn't say.
        numeric_keys: those of which at least one value is a number.
        last_step: the last `_step`; -1 where there is none.
    """

    entity: str
    project: str
    run_id: str
    display_name: str
    state: str
    config: Mapping[str, Any]
    commit: str
    changed_at: str
    num_rows: int
    last_step: int
    key_counts: Mapping[str, int] | None
    numeric_keys: frozenset[str]

    @property
    def address(self) -> str:
        return f"{self.entity}/{self.project}/{self.run_id}"

    @property
    def variables(self) -> dict[str, Any]:
        return {"entity": self.entity, "project": self.project, "run": self.run_id}


@dataclass
class _History:
    """Rows by `_step`, and the `_step` of those that came a second time."""

    rows: dict[int, Row] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)

    def add(self, row: Any) -> None:
        step = parse_step(row.get(CALL_STEP)) if isinstance(row, dict) else None
        if step is None:
            return
        merged = self.rows.setdefault(step, {})
        flat = {k: v for key, value in row.items() for k, v in flatten(key, value).items()}
        if any(is_metric(key) and key in merged for key in flat):
            self.repeated.add(step)
        merged.update(flat)


def read_wandb_online(
    address: str, *, wanted: Wanted, sleep: Callable[[float], None] = time.sleep
) -> SourceRun:
    """Return the run at `entity/project/run_id`, with every logged value of the wanted keys.

    Nothing is sampled. The server only gives rows that hold all the keys of a question, so that
    every key is asked for alone (or whole rows, where many are wanted), and the answers are joined
    by `_step`. What was read is kept in a cache until the run goes on.

    Args:
        sleep: waits between tries.

    Raises:
        UsageError: there is no such run, no API key, or no right to read it.
        HarnessError: the server can't be reached, does not answer in a bounded number of tries, or
            holds a run whose `_step` is too high to be paged through.
    """
    entity, project, run_id = split_address(address, 3, "entity/project/run_id")
    server = find_server(sleep=sleep)
    run = _ask_for_run(server, entity, project, run_id)
    counts = run.key_counts
    keys = None
    if counts is not None:
        keys = sorted({k for k in counts if is_metric(k) and wanted(k)} | (counts.keys() & _ALWAYS))
    content = _read_history(server, run, keys)
    stored = json.loads(content)
    rows: list[Row] = stored["rows"]

    file, step_problem = build_series(
        rows,
        wanted=wanted,
        path=Path(run.address),
        kind=KIND,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    problems = [step_problem, *_missing(run, rows, keys)]
    if stored["num_repeated"]:
        problems.append(
            f"rows that wandb gave twice: {stored['num_repeated']}; one of each was kept"
        )
    if file.provenance.num_gaps:
        problems.append(f"steps that have no row in wandb: {file.provenance.num_gaps}")
    max_steps = max_steps_of(run.config)
    steps = file.row_steps
    last = int(steps.max()) if len(steps) else -1
    num_made = last + int(len(steps) > 0 and steps.min() == 0)
    state = _STATES.get(run.state, "unknown")
    # Trainers count from 0 or from 1.
    if state != "finished" and max_steps and num_made >= max_steps:
        problems.append(
            f"wandb says `{run.state}`, though step {last} was logged and the run makes {max_steps}"
        )
    return SourceRun(
        label=run.display_name or run.run_id,
        framework=guess_framework(sorted(file.keys | run.numeric_keys)),
        files=(replace(file, keys=file.keys | run.numeric_keys),),
        attempt_groups=(1,),
        config=run.config or None,
        state=state,
        max_steps=max_steps,
        versions={"commit": run.commit} if run.commit else {},
        problems=tuple(problem for problem in problems if problem),
    )


_ALWAYS = frozenset({*STEP_KEYS, "attempt"})


def _ask_for_run(server: WandbServer, entity: str, project: str, run_id: str) -> _Run:
    variables = {"entity": entity, "project": project, "run": run_id}
    node = lookup(ask(server, _RUN_QUERY, variables), "project.run")
    if not isinstance(node, dict):
        raise UsageError(
            f"wandb at `{server.host}` has no run `{entity}/{project}/{run_id}`",
            "the last part is the run's id, not its display name",
        )
    history = json_object(node.get("historyKeys"))
    listed = history.get("keys")
    counts = None
    numeric = []
    if isinstance(listed, dict) and listed:
        types = {key: _type_counts(entry) for key, entry in listed.items()}
        counts = {key: sum(found.values()) for key, found in types.items()}
        numeric = [key for key, found in types.items() if "number" in found and is_metric(key)]
    steps = (history.get("lastStep"), json_object(node.get("summaryMetrics")).get(CALL_STEP))
    return _Run(
        entity,
        project,
        run_id,
        display_name=str(node.get("displayName") or ""),
        state=str(node.get("state") or ""),
        config=config_of(node),
        commit=str(node.get("commit") or ""),
        changed_at=str(node.get("heartbeatAt") or ""),
        num_rows=parse_step(node.get("historyLineCount") or 0) or 0,
        last_step=max(-1 if step is None else parse_step(step) or 0 for step in steps),
        key_counts=counts,
        numeric_keys=frozenset(numeric),
    )


def _read_history(server: WandbServer, run: _Run, keys: Sequence[str] | None) -> bytes:
    """Return the run's history for `keys` as JSON: from the cache, or from the server."""
    version = [run.last_step, run.changed_at, run.num_rows]
    name = json.dumps([server.base_url, run.address, version, keys], sort_keys=True)
    folder = cache_dir()
    path = folder / f"wandb-{hashlib.sha256(name.encode()).hexdigest()}.json" if folder else None
    if path is not None:
        try:
            content = path.read_bytes()
            if isinstance(json.loads(content)["rows"], list):
                return content
        except (OSError, ValueError, KeyError, TypeError):
            pass  # Not there yet, or not whole: it is read again.
    history = _scan(server, run, keys)
    rows = [history.rows[step] for step in sorted(history.rows)]
    content = json.dumps({"num_repeated": len(history.repeated), "rows": rows}).encode()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
        except OSError:
            pass  # A cache that can't be written costs time, no result.
    return content


def _scan(server: WandbServer, run: _Run, keys: Sequence[str] | None) -> _History:
    """Ask for the whole history, a range of `_step` at a time."""
    history = _History()
    pages = range(0, run.last_step + 1, PAGE_STEPS)
    if len(pages) > MAX_PAGES:
        raise HarnessError(
            f"`{run.address}` counts `_step` up to {run.last_step}: too many pages to ask for",
            "export its history as CSV and read that, or the folder that wandb left where it ran",
        )
    for first in pages:
        end = min(first + PAGE_STEPS, run.last_step + 1)
        if keys is None or len(keys) > MAX_KEYS_ALONE:
            page = {"minStep": first, "maxStep": end, "pageSize": PAGE_STEPS}
            answer = ask(server, _ROWS_QUERY, {**run.variables, **page})
            for text in lookup(answer, "project.run.history") or []:
                row = json.loads(text) if isinstance(text, str) else text
                kept = row if keys is None else {k: row[k] for k in _columns(keys) if k in row}
                history.add(kept)
            continue
        for some in _batches(keys):
            specs = [
                json.dumps(
                    {
                        "keys": [key, CALL_STEP, CALL_TIME],
                        "minStep": first,
                        "maxStep": end,
                        "samples": PAGE_STEPS,
                    }
                )
                for key in some
            ]
            answer = ask(server, _KEYS_QUERY, {**run.variables, "specs": specs})
            for rows in lookup(answer, "project.run.sampledHistory") or []:
                for row in rows:
                    history.add(row)
    return history


def _missing(run: _Run, rows: Sequence[Row], keys: Sequence[str] | None) -> list[str]:
    """Return one sentence where fewer values came than the server counts."""
    if keys is None:
        short = run.num_rows - len(rows)
        return [f"wandb counts {run.num_rows} rows and gave {len(rows)}"] if short > 0 else []
    counts = run.key_counts or {}
    got = {key: sum(key in row for row in rows) for key in keys}
    # A key that was logged as a dict has counts of its own, and no cells under its name.
    short_keys = [
        key for key in keys if got[key] < counts[key] and (got[key] or key in run.numeric_keys)
    ]
    if not short_keys:
        return []
    key = short_keys[0]
    more = f" (and {len(short_keys) - 1} more keys)" if len(short_keys) > 1 else ""
    return [f"wandb counts {counts[key]} values of `{key}` and gave {got[key]}{more}"]


def _type_counts(entry: Any) -> dict[str, int]:
    found = entry.get("typeCounts") if isinstance(entry, dict) else None
    return {
        str(one.get("type")): parse_step(one.get("count") or 0) or 0
        for one in found or []
        if isinstance(one, dict)
    }


def _columns(keys: Sequence[str]) -> Sequence[str]:
    return [*keys, CALL_STEP, CALL_TIME]


def _batches(keys: Sequence[str]) -> list[list[str]]:
    rest = iter(keys)
    return list(iter(lambda: list(itertools.islice(rest, _KEYS_PER_QUESTION)), []))
