"""prime-rl's trace streams: what the engine sampled, joined with what the trainer noted later.

    <run>/monitors/file/traces/<stream>           episodes; nodes of traces with tokens and logprobs
    <run>/monitors/file/traces/annotations/<producer>
                                                  per trace and branch: trainer logprobs, advantages

A branch is the path from a root of a trace's nodes to a leaf; branches are counted by their
leaves. Lists of an annotation have one value per token of the branch, `logprobs` and `advantages`
of a node only one per sampled token.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.replay.sources.blocks import (
    MISFIT,
    NO_DECISION,
    OUTSIDE,
    SUPERSEDED,
    RawTokens,
    Tally,
)
from analysis.replay.sources.convert import ConvertedPart
from analysis.replay.sources.streams import chunks_of, records
from analysis.replay.tokens import CHUNK_TOKENS
from analysis.sources.contents import entries

FORMAT = "prime-rl traces"
ANNOTATIONS = "annotations"

STEPS_NOTE = (
    "steps are those that the rollouts were made for (`run.work.step`): traces don't say in which "
    "step a token was trained"
)

_FOLDERS = ("monitors/file/traces", "traces", ".")
_OF_NODES = ("mask", "logprobs", "advantages")
_FIELDS = ("trainer_logprobs", "advantages", "is_masked")
_NOT_STREAMS = (ANNOTATIONS, "live")
_SHARE_BYTES = 32 << 20
"""Packed bytes whose traces are joined at once, in memory."""
_MAX_SHARES = 256
_MAX_STEP = 1 << 62
_MAX_WHOLE = 1 << 1023
"""Whole numbers from here on may have no float."""

Json = dict[str, Any]


def traces_folder(path: Path) -> Path | None:
    """Return the folder of streams of a run, or of `path` itself; None where there is none."""
    folders = (path / name for name in _FOLDERS)
    return next((one for one in folders if (one / ANNOTATIONS).is_dir()), None)


def traces_part(folder: Path) -> ConvertedPart:
    """Return the streams in `folder` as a part: a file alone means nothing."""
    episodes, annotations = _streams(folder)
    files = [*episodes, *annotations]
    return ConvertedPart(
        path=folder,
        format=FORMAT,
        files=tuple(files),
        reader=TracesReader(tuple(episodes), tuple(annotations)),
    )


def _streams(folder: Path) -> tuple[list[Path], list[Path]]:
    def is_stream(entry: Path) -> bool:
        is_index = "index" in entry.name
        return entry.is_dir() or (entry.name.endswith(".jsonl") and not is_index)

    episodes = [
        chunk
        for entry in entries(folder)
        if entry.name not in _NOT_STREAMS and is_stream(entry)
        for chunk in chunks_of(entry)
    ]
    annotations = [
        chunk
        for entry in entries(folder / ANNOTATIONS)
        if is_stream(entry)
        for chunk in chunks_of(entry)
    ]
    return episodes, annotations


@dataclass(frozen=True)
class TracesReader:
    """A `Reader`. Traces are split by their ids into shares that fit in memory."""

    episodes: tuple[Path, ...]
    annotations: tuple[Path, ...]

    def raw(self, tally: Tally) -> Iterator[RawTokens]:
        size = sum(path.stat().st_size for path in (*self.episodes, *self.annotations))
        num_shares = min(_MAX_SHARES, 1 + size // _SHARE_BYTES)
        sequence = 0
        with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
            shares = [Path(scratch) / str(number) for number in range(num_shares)]
            has_steps = self._split(shares, tally)
            for share in shares:
                for raw, number in _join(share, tally, sequence, has_steps):
                    sequence += number
                    yield raw

    def _split(self, shares: list[Path], tally: Tally) -> bool:
        """Write what is needed of every trace that was trained on to the share of its id.

        Returns whether all of their episodes name a step.
        """
        has_steps = True
        with ExitStack() as stack:
            files = [stack.enter_context(share.open("w")) for share in shares]

            def write(record: Json) -> None:
                place = zlib.crc32(record["id"].encode(errors="surrogatepass")) % len(files)
                files[place].write(json.dumps(record) + "\n")

            trained: set[int] = set()
            for record in records(self.annotations, tally):
                trace_id, branches = record.get("trace_id"), record.get("branches")
                if not isinstance(trace_id, str) or not isinstance(branches, list):
                    continue
                kept = [_needed(one) for one in branches if isinstance(one, dict)]
                kept = [one for one in kept if len(one) > 1]
                if kept:
                    write({"id": trace_id, "branches": kept})
                if any("trainer_logprobs" in one for one in kept):
                    trained.add(hash(trace_id))
            for record in records(self.episodes, tally):
                step = _step(record)
                for trace in _dicts(record.get("traces")):
                    trace_id = trace.get("id")
                    if isinstance(trace_id, str) and hash(trace_id) in trained:
                        nodes = [_node(node) for node in _dicts(trace.get("nodes"))]
                        has_steps = has_steps and step is not None
                        write({"id": trace_id, "nodes": nodes, "step": step})
        return has_steps


def _needed(branch: Json) -> Json:
    lists = {name: branch[name] for name in _FIELDS if isinstance(branch.get(name), list)}
    index = branch.get("index")
    return {"index": index if type(index) is int else None, **lists}


def _node(node: Json) -> Json:
    names = ("parent", *_OF_NODES)
    tokens = node.get("token_ids")
    length = len(tokens) if isinstance(tokens, list) else 0
    return {"length": length, **{name: node.get(name) for name in names}}


def _step(episode: Json) -> int | None:
    run = episode.get("run")
    work = run.get("work") if isinstance(run, dict) else None
    step = work.get("step") if isinstance(work, dict) else None
    return step if type(step) is int and abs(step) < _MAX_STEP else None


def _dicts(value: Any) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _join(
    share: Path, tally: Tally, first: int, has_steps: bool
) -> Iterator[tuple[RawTokens, int]]:
    """Yield the tokens of a share, and how many sequences they are."""
    traces: dict[str, Json] = {}
    streams: dict[tuple[str, Any], Json] = {}
    with share.open() as file:
        for line in file:
            record = json.loads(line)
            if "nodes" in record:
                # Written again after a resume: the later one is what the annotations mean.
                traces[record["id"]] = record
                continue
            for branch in record["branches"]:
                known = streams.setdefault((record["id"], branch["index"]), {})
                if "trainer_logprobs" in branch and "trainer_logprobs" in known:
                    tally.exclude(SUPERSEDED, _num_given(known["trainer_logprobs"]))
                known.update(branch)
    waiting: list[Json] = []
    num_tokens = 0
    sequence = first
    for (trace_id, index), stream in streams.items():
        values = stream.get("trainer_logprobs")
        if values is None:
            continue
        trace = traces.get(trace_id)
        columns = None if trace is None else _align(trace, index, stream, tally)
        if columns is None:
            tally.exclude(MISFIT, _num_given(values))
            continue
        waiting.append({**columns, "sequence": sequence})
        sequence += 1
        num_tokens += len(columns["trainer"])
        if num_tokens >= CHUNK_TOKENS:
            yield _tokens(waiting, has_steps), len(waiting)
            waiting, num_tokens = [], 0
    if waiting:
        yield _tokens(waiting, has_steps), len(waiting)


def _num_given(values: list[Any]) -> int:
    return sum(value is not None for value in values)


def _align(trace: Json, index: Any, stream: Mapping[str, Any], tally: Tally) -> Json | None:
    """Return the sampled tokens of a branch that were trained; None where the lists don't fit."""
    nodes = trace["nodes"]
    paths = _branch_paths(nodes)
    if type(index) is not int or not 0 <= index < len(paths):
        return None
    total = sum(nodes[place]["length"] for place in paths[index])
    trainer = stream["trainer_logprobs"]
    if len(trainer) > total or not _are_numbers(trainer):
        return None
    columns: Json = {"trainer": [], "inference": [], "advantages": [], "stored": []}
    given = {name: stream.get(name) or [] for name in ("advantages", "is_masked")}
    if any(len(one) not in (0, len(trainer)) for one in given.values()):
        return None
    if any(value is not None and type(value) is not bool for value in given["is_masked"]):
        return None
    of_nodes = (nodes[place][name] for place in paths[index] for name in _OF_NODES)
    if any(one is not None and not isinstance(one, list) for one in of_nodes):
        return None
    cursor = 0
    num_outside = 0
    for place in paths[index]:
        node = nodes[place]
        mask = node["mask"] or []
        sampled = [offset for offset, is_sampled in enumerate(mask) if is_sampled]
        compact = node["logprobs"] or []
        if len(mask) not in (0, node["length"]) or len(compact) != len(sampled):
            return None
        credit = node["advantages"] or []
        for number, offset in enumerate(sampled):
            at = cursor + offset
            value = trainer[at] if at < len(trainer) else None
            # Null stands where the trainer's own loss mask is false.
            if value is None:
                num_outside += 1
                continue
            columns["trainer"].append(value)
            columns["inference"].append(compact[number])
            of_node = credit[number] if len(credit) == len(sampled) else None
            columns["advantages"].append(
                given["advantages"][at] if given["advantages"] else of_node
            )
            columns["stored"].append(given["is_masked"][at] if given["is_masked"] else None)
        num_outside += node["length"] - len(sampled)
        cursor += node["length"]
    if not _are_numbers(columns["inference"]) or not _are_numbers(columns["advantages"]):
        return None
    tally.exclude(OUTSIDE, num_outside)
    return {**columns, "step": trace["step"]}


def _are_numbers(values: list[Any]) -> bool:
    return all(
        value is None or type(value) is float or (type(value) is int and abs(value) < _MAX_WHOLE)
        for value in values
    )


def _branch_paths(nodes: list[Json]) -> list[list[int]]:
    """Return the nodes from root to leaf, one path per leaf, in the order of the leaves."""

    def parent_of(place: int) -> int | None:
        parent = nodes[place]["parent"]
        return parent if type(parent) is int and 0 <= parent < len(nodes) else None

    parents = {parent_of(place) for place in range(len(nodes))}
    paths = []
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path: list[int] = []
        place: int | None = leaf
        while place is not None and place not in path:
            path.append(place)
            place = parent_of(place)
        paths.append(path[::-1])
    return paths


def _tokens(sequences: list[Json], has_steps: bool) -> RawTokens:
    lengths = np.array([len(one["trainer"]) for one in sequences], dtype=np.int64)

    def joined(name: str) -> Any:
        values = [value for one in sequences for value in one[name]]
        return np.array(values, dtype=np.float64)

    inference = joined("inference")
    stored = [
        NO_DECISION if value is None else int(bool(value))
        for one in sequences
        for value in one["stored"]
    ]
    steps = [one["step"] for one in sequences]
    return RawTokens(
        joined("trainer"),
        inference,
        np.isnan(inference),
        advantages=joined("advantages"),
        sequences=np.repeat(
            np.array([one["sequence"] for one in sequences], dtype=np.int64), lengths
        ),
        steps=np.repeat(np.array(steps, dtype=np.int64), lengths) if has_steps else None,
        stored_masks=np.array(stored, dtype=np.int8),
    )
