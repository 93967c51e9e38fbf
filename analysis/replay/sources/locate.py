"""From the paths that a user named to one source of tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.replay.sources.columns import NO_COLUMNS, check_mapping
from analysis.replay.sources.export import export_files, export_part, is_export_row
from analysis.replay.sources.harness_runs import find_runs, is_record, run_parts, tokens_of
from analysis.replay.sources.npz import MAGIC as NPZ_MAGIC
from analysis.replay.sources.npz import npz_part
from analysis.replay.sources.parquet import MAGIC as PARQUET_MAGIC
from analysis.replay.sources.parquet import parquet_part, read_metadata
from analysis.replay.sources.prime_rl_config import find_loss
from analysis.replay.sources.source import Part, PartsSource
from analysis.replay.sources.streams import ZSTD_MAGIC
from analysis.replay.sources.texts import csv_part, jsonl_part
from analysis.replay.sources.traces import STEPS_NOTE, traces_folder, traces_part
from analysis.sources.contents import entries, head_rows, is_text, read_head
from harness.errors import UsageError
from harness.near import near_miss

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".npz")
_KNOWN = (
    "a run or a sweep of this project, a run folder of prime-rl with `token_exports` or traces, or "
    "Parquet, JSONL, CSV or NPZ files"
)
MAPPED_RECORDS = (
    "columns are mapped, so token records of runs are read as any other table: steps that a resume "
    "made anew count twice, and no loss is known"
)
_MAX_LISTED = 5
_MAX_LINE_BYTES = 1 << 30


@dataclass
class _Found:
    """What was found under the paths so far."""

    parts: list[Part] = field(default_factory=list)
    losses: list[Mapping[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    without: list[Path] = field(default_factory=list)
    uses_columns: bool = False

    def add_loss(self, loss: Mapping[str, Any] | None) -> None:
        if loss is not None and loss not in self.losses:
            self.losses.append(loss)


@dataclass(frozen=True)
class _Options:
    columns: Mapping[str, str]
    unstable_ok: bool
    probabilities: bool | None


def open_tokens(
    paths: Sequence[str],
    *,
    columns: Mapping[str, str] = NO_COLUMNS,
    unstable_ok: bool = False,
    probabilities: bool | None = None,
) -> PartsSource:
    """Return the token records under `paths` as one source.

    A path is a run folder or a sweep of this project (or `runs/<arm>` of one), a run folder of
    prime-rl, or a file: this project's Parquet, prime-rl's export, or any Parquet, JSONL, CSV or
    NPZ. What it is, is found out from its content; a file that two paths lead to is read once.
    Files are opened here, and read by `chunks`.

    A table has one row per token, or one per sequence with lists. Its rows must stand sorted so
    that a sequence's tokens are together. Nothing is imputed: tokens that don't count are counted
    by reason in `files`.

    Args:
        columns: role -> column of tables; roles are `trainer`, `inference` (log-probabilities) or
            `trainer_prob`, `inference_prob`, and `advantage`, `loss_mask`, `sequence`, `step`,
            `is_masked`. Roles that aren't mapped are found by their usual names.
        unstable_ok: read prime-rl's exports of steps without completion marker, too.
        probabilities: whether tables hold probabilities; None where their columns' names or the
            mapping say. They are never guessed to be probabilities.

    Raises:
        UsageError: nothing is there, it is of no known kind, or columns are missing or of another
            type. `chunks` raises it, too: for a row of another type, and where no token counts.
    """
    check_mapping(columns, probabilities)
    if not paths:
        raise UsageError("no token records are named", f"name {_KNOWN}")
    options = _Options(columns, unstable_ok, probabilities)
    found = _Found()
    for named in _together([_expanded(text) for text in paths]):
        try:
            if named[0].is_dir():
                _add_folder(named[0], options, found)
            else:
                _add_files(named, options, found)
        except OSError as error:
            where = error.filename or named[0]
            raise UsageError(
                f"`{where}` can't be read: {error.strerror or error}", "make it readable"
            ) from error
    return _source(paths, options, found)


def _expanded(text: str) -> Path:
    path = Path(text).expanduser() if text.startswith("~/") else Path(text)
    try:
        if not path.exists():
            raise _missing(path)
    except OSError as error:
        raise UsageError(
            f"`{path}` can't be read: {error.strerror or error}", "make it readable"
        ) from error
    return path


def _together(paths: Sequence[Path]) -> list[list[Path]]:
    """Return each folder alone, and files that follow each other: some may be of one run."""
    found: list[list[Path]] = []
    for path in paths:
        if found and not path.is_dir() and not found[-1][0].is_dir():
            found[-1].append(path)
        else:
            found.append([path])
    return found


def runs_or_files(paths: Sequence[str]) -> list[list[str]]:
    """Return what `paths` hold as pieces that can be read apart, in their order: a run, a file, or
    the files that were named of one run.

    A piece is never split: sequences, resumes and completion markers are within one. What two paths
    lead to is in one piece.
    """
    pieces: dict[str, list[str]] = {}
    for text in paths:
        path = _expanded(text)
        folders = {run: tokens_of(run)[0] for run in find_runs(path)} if path.is_dir() else {}
        runs = {run: folder for run, folder in folders.items() if folder.exists()}
        for run, folder in runs.items():
            pieces.setdefault(os.path.realpath(folder), []).append(str(run))
        if not runs:
            whole = path.parent if _is_of_run(path) else path
            pieces.setdefault(os.path.realpath(whole), []).append(str(path))
    return [list(dict.fromkeys(piece)) for piece in pieces.values()]


def _is_of_run(path: Path) -> bool:
    if path.is_dir() or not read_head(path).startswith(PARQUET_MAGIC):
        return False
    return is_record(read_metadata(path))


def _source(paths: Sequence[str], options: _Options, found: _Found) -> PartsSource:
    parts: list[Part] = []
    seen: set[tuple[int, int]] = set()
    for part in found.parts:
        status = part.path.stat()
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            parts.append(part)
    problems = list(dict.fromkeys(found.problems))
    if options.columns and not found.uses_columns:
        problems.append("the column mapping isn't used: these records name their columns")
    if options.probabilities and not found.uses_columns:
        problems.append("probabilities were asked for, but these records hold log-probabilities")
    if found.without:
        named = ", ".join(f"`{path}`" for path in found.without[:_MAX_LISTED])
        more = len(found.without) - _MAX_LISTED
        problems.append(f"no token records in {named}" + (f" and {more} more" if more > 0 else ""))
    if len(found.losses) > 1:
        types = ", ".join(sorted({str(loss.get("type")) for loss in found.losses}))
        problems.append(
            f"the runs were trained by {len(found.losses)} different losses ({types}): name one "
            "arm, as `runs/<arm>`, to check its own decisions"
        )
    loss = found.losses[0] if len(found.losses) == 1 else None
    return PartsSource(", ".join(paths), parts, loss=loss, problems=problems)


def _add_folder(path: Path, options: _Options, found: _Found) -> None:
    runs = find_runs(path)
    if runs:
        for run in runs:
            _add_run(run, options, found)
        if not found.parts:
            raise UsageError(
                f"`{path}` holds no token records",
                "set `trainer.tokens.every` to record the tokens of every so manieth step",
            )
        return
    before = len(found.parts)
    _add_prime_rl(path, options, found)
    if len(found.parts) > before:
        return
    files = [entry for entry in entries(path) if entry.suffix in _SUFFIXES and entry.is_file()]
    if not files:
        raise UsageError(f"`{path}` holds no token records", f"name {_KNOWN}")
    _add_files(files, options, found)


def _add_run(run: Path, options: _Options, found: _Found) -> None:
    folder, kind = tokens_of(run)
    before = len(found.parts)
    if kind in ("", "harness_parquet"):
        files = [entry for entry in entries(folder) if entry.suffix == ".parquet"]
        parts, losses = run_parts(files)
        found.parts.extend(parts)
        for loss in losses:
            found.add_loss(loss)
    else:
        _add_prime_rl(folder, options, found)
    if len(found.parts) == before and kind == "":
        # A program of the user's may leave them without saying so.
        _add_prime_rl(run, options, found)
    if len(found.parts) == before:
        found.without.append(run)


def _add_prime_rl(path: Path, options: _Options, found: _Found) -> None:
    exported = export_files(path)
    for file in exported:
        found.parts.append(export_part(file, unstable_ok=options.unstable_ok))
    traces = traces_folder(path)
    if traces is not None:
        found.parts.append(traces_part(traces))
        found.problems.append(STEPS_NOTE)
    if exported or traces is not None:
        found.add_loss(find_loss(path))


def _add_files(files: Sequence[Path], options: _Options, found: _Found) -> None:
    """Add files of any kind; records of one run are taken together."""
    of_runs: dict[str, list[Path]] = {}
    for path in files:
        head = read_head(path)
        if head.startswith(PARQUET_MAGIC):
            part, metadata = parquet_part(path, options.columns, options.probabilities)
            if is_record(metadata) and not options.columns:
                of_runs.setdefault(os.path.realpath(path.parent), []).append(path)
                continue
            found.parts.append(part)
            found.uses_columns = True
            if is_record(metadata):
                found.problems.append(MAPPED_RECORDS)
        else:
            _add_other(path, head, options, found)
    for paths in of_runs.values():
        parts, losses = run_parts(paths)
        found.parts.extend(parts)
        for loss in losses:
            found.add_loss(loss)


def _add_other(path: Path, head: bytes, options: _Options, found: _Found) -> None:
    columns, probabilities = options.columns, options.probabilities
    if head.startswith(NPZ_MAGIC):
        found.parts.append(npz_part(path, columns, probabilities))
        found.uses_columns = True
        return
    if head.startswith(ZSTD_MAGIC):
        raise UsageError(
            f"`{path}` is a chunk of a stream, which means nothing alone",
            "name the run's folder: samples and annotations are joined",
        )
    if not head.strip():
        raise UsageError(f"`{path}` is empty", "name records of tokens, or leave it out")
    if not is_text(head):
        raise UsageError(f"`{path}` is a binary file of no kind that is known", f"name {_KNOWN}")
    if head.lstrip().startswith(b"{") and b"\n" not in head:
        # A long sequence.
        head = _first_line(path)
    rows = head_rows(head)
    if rows and ("branches" in rows[0] and "trace_id" in rows[0]):
        raise UsageError(
            f"`{path}` holds annotations, which mean nothing without their traces",
            "name the run's folder: samples and annotations are joined",
        )
    if rows and is_export_row(rows[0]):
        found.parts.append(export_part(path, unstable_ok=options.unstable_ok))
        found.add_loss(find_loss(path.parent))
        return
    found.uses_columns = True
    if head.lstrip().startswith((b"{", b"[")):
        if not rows:
            raise UsageError(
                f"`{path}` is JSON, but holds no record on a line of its own",
                "write one object per line: a token, or a sequence with lists",
            )
        found.parts.append(jsonl_part(path, head, columns, probabilities))
    else:
        found.parts.append(csv_part(path, head, columns, probabilities))


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(_MAX_LINE_BYTES)


def _missing(path: Path) -> UsageError:
    if path.is_symlink():
        return UsageError(
            f"`{path}` is a link to `{path.readlink()}`, which doesn't exist", "mend the link"
        )
    if not path.parent.is_dir():
        missing = [path, *path.parents]
        gap = next(one for one in reversed(missing) if not one.exists())
        return UsageError(f"`{path}` doesn't exist", f"the first folder that is missing: `{gap}`")
    near = near_miss(path.name, [entry.name for entry in entries(path.parent)])
    hint = f"did you mean `{path.parent / near}`?" if near else f"name {_KNOWN}"
    return UsageError(f"`{path}` doesn't exist", hint)
