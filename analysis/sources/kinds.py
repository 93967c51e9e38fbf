"""The kinds of runs that can be read, and which of them a file or folder is.

A new kind is one module and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from analysis.sources.columns import NOT_METRICS
from analysis.sources.contents import distinct, entries, is_text, read_head
from analysis.sources.harness_run import is_harness_run, read_harness_run, refuse_sweep
from analysis.sources.interface import SourceReader, SourceRun, Wanted
from analysis.sources.prime_rl_run import (
    has_prime_rl_config,
    is_prime_rl_run,
    read_prime_rl_run,
)
from analysis.sources.tables import (
    TableReader,
    is_csv,
    is_jsonl,
    is_parquet,
    read_csv_run,
    read_jsonl_run,
    read_parquet_run,
)
from analysis.sources.trainer_state import is_trainer_state, read_trainer_state
from analysis.sources.verl import is_verl_file, read_verl
from harness.errors import UsageError

Recogniser = Callable[[Path, bytes | None], bool]
"""Whether a path is of a kind, given the first bytes of a file, or None for a folder."""

_MAX_LISTED = 8
_MAX_EXAMINED = 300
"""Entries of a folder that are looked into: a run has few, and data sets have many."""
_MAX_DEPTH = 2
"""Folders below a named one in which a run is looked for, such as `<project>/<experiment>`."""


@dataclass(frozen=True)
class Kind:
    """How runs of one kind are recognised and read.

    Attributes:
        what: what such a run is, for hints.
        suffixes: of files that are of this kind unless their content says otherwise.
        is_binary: whether its files are no text.
    """

    what: str
    recognises: Recogniser
    read: TableReader
    suffixes: tuple[str, ...] = ()
    is_binary: bool = False


def _naming_its_steps(name: str, reader: SourceReader) -> TableReader:
    """Return `reader` for runs that no column mapping is needed for; one is named as not used."""

    def read(path: Path, *, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun:
        run = reader(path, wanted=wanted)
        unused = tuple(
            f"`{key}` is mapped to `{columns[key]}`, but a run of kind `{name}` names it itself: "
            "not used"
            for key in NOT_METRICS
            if key in columns
        )
        return replace(run, problems=(*run.problems, *unused)) if unused else run

    return read


def _is_wandb_offline(path: Path, head: bytes | None) -> bool:
    from analysis.sources.wandb_offline import find_wandb_logs  # noqa: PLC0415 (only if needed)

    return head.startswith(b":W&B") if head is not None else bool(find_wandb_logs(path))


def _read_wandb_offline(path: Path, *, wanted: Wanted) -> SourceRun:
    from analysis.sources.wandb_offline import read_wandb_offline  # noqa: PLC0415 (only if needed)

    return read_wandb_offline(path, wanted=wanted)


def _is_tensorboard(path: Path, head: bytes | None) -> bool:
    if head is not None:
        return "tfevents" in path.name
    return any("tfevents" in entry.name for entry in entries(path))


def _read_tensorboard(path: Path, *, wanted: Wanted) -> SourceRun:
    from analysis.sources.tensorboard import read_tensorboard  # noqa: PLC0415 (an optional extra)

    return read_tensorboard(path, wanted=wanted)


KINDS: Mapping[str, Kind] = {
    # A folder may hold a tracker's copy beside the trainer's own files: those come first.
    "harness": Kind(
        "a run folder of this project",
        is_harness_run,
        _naming_its_steps("harness", read_harness_run),
    ),
    "prime_rl": Kind(
        "a run folder of prime-rl",
        is_prime_rl_run,
        _naming_its_steps("prime_rl", read_prime_rl_run),
    ),
    "trl": Kind(
        "an output folder of TRL, with `trainer_state.json`",
        is_trainer_state,
        _naming_its_steps("trl", read_trainer_state),
    ),
    "verl": Kind("verl's file logger", is_verl_file, _naming_its_steps("verl", read_verl)),
    "wandb_offline": Kind(
        "a folder of wandb's offline logs",
        _is_wandb_offline,
        _naming_its_steps("wandb_offline", _read_wandb_offline),
        (".wandb",),
        is_binary=True,
    ),
    "tb": Kind(
        "a folder of TensorBoard's event files",
        _is_tensorboard,
        _naming_its_steps("tb", _read_tensorboard),
        is_binary=True,
    ),
    "parquet": Kind("a Parquet table", is_parquet, read_parquet_run, (".parquet",), is_binary=True),
    "jsonl": Kind("JSON lines", is_jsonl, read_jsonl_run, (".jsonl", ".ndjson")),
    "csv": Kind("a CSV table", is_csv, read_csv_run, (".csv", ".tsv")),
}
"""Every kind by the prefix that names it, in the order in which they are looked for."""

_PACKED = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip"))


def find_run(path: Path, kind: str = "") -> tuple[str, Path]:
    """Return the kind of run at `path`, and where it lies: there, or as the only one below it.

    Args:
        kind: what the user says it is; empty to find it out.

    Raises:
        UsageError: no kind fits, or the folder holds several runs.
        OSError: it can't be read.
    """
    if path.is_dir():
        return _find_named(path, kind) if kind else _find_in_folder(path)
    if not path.is_file():
        raise UsageError(f"`{path}` is neither a file nor a folder", "name the run's folder")
    if kind:
        return kind, path
    head = read_head(path)
    found = _kind_of_file(path, head)
    if found is None:
        raise _unknown_file(path, head)
    return found, path


def _find_named(folder: Path, kind: str) -> tuple[str, Path]:
    if KINDS[kind].recognises(folder, None):
        return kind, folder
    level = _examined([folder])
    for _ in range(_MAX_DEPTH):
        found = [entry for entry in level if _is_of_kind(entry, kind)]
        if len(found) == 1:
            return kind, found[0]
        if found:
            raise _several(folder, found)
        level = _examined(level)
    # A reader knows best what a folder lacks.
    return kind, folder


def _find_in_folder(folder: Path) -> tuple[str, Path]:
    kind = _kind_of_folder(folder)
    if kind is not None:
        return kind, folder
    refuse_sweep(folder)
    if has_prime_rl_config(folder):
        return "prime_rl", folder
    level = _examined([folder])
    for _ in range(_MAX_DEPTH):
        kinds = [(_kind_of_entry(entry), entry) for entry in level]
        found = [(inner, entry) for inner, entry in kinds if inner is not None]
        if len(found) == 1:
            return found[0]
        if found:
            raise _several(folder, [entry for _, entry in found])
        level = _examined(level)
    names = [entry.name for entry in entries(folder)]
    raise UsageError(
        f"`{folder}` holds no run that is known (looked for {_whats()})",
        f"it holds {_listed(names)}" if names else "the folder is empty",
    )


def _examined(folders: list[Path]) -> list[Path]:
    """Return what lies in the folders, as far as it is looked into."""
    inside = (entry for folder in folders for entry in entries(folder))
    return distinct(islice(inside, _MAX_EXAMINED))


def _several(folder: Path, runs: list[Path]) -> UsageError:
    return UsageError(
        f"`{folder}` holds {len(runs)} runs: "
        f"{_listed([str(run.relative_to(folder)) for run in runs])}",
        f"name one of them, as in `{runs[0]}`, or join what one run left with `+`",
    )


def _is_of_kind(path: Path, kind: str) -> bool:
    try:
        head = None if path.is_dir() else read_head(path) if path.is_file() else b""
        return KINDS[kind].recognises(path, head)
    except OSError:
        return False


def _kind_of_entry(path: Path) -> str | None:
    try:
        if path.is_dir():
            return _kind_of_folder(path) or ("prime_rl" if has_prime_rl_config(path) else None)
        return _kind_of_file(path, read_head(path)) if path.is_file() else None
    except OSError:
        return None


def _kind_of_folder(folder: Path) -> str | None:
    return next((name for name, kind in KINDS.items() if kind.recognises(folder, None)), None)


def _kind_of_file(path: Path, head: bytes) -> str | None:
    for name, kind in KINDS.items():
        if kind.recognises(path, head):
            return name
    # Torn or empty: the name tells, unless it promises text and the content is none.
    for name, kind in KINDS.items():
        if path.suffix in kind.suffixes and (kind.is_binary or is_text(head)):
            return name
    return None


def _unknown_file(path: Path, head: bytes) -> UsageError:
    packed = next((name for magic, name in _PACKED if head.startswith(magic)), None)
    if packed is not None:
        return UsageError(f"`{path}` is packed with {packed}", "unpack it first")
    if not head:
        return UsageError(f"`{path}` is empty", "name the file that the run logged to")
    if not is_text(head):
        return UsageError(
            f"`{path}` is a binary file of no kind that is known", f"known are {_whats()}"
        )
    if head.lstrip()[:1] in (b"{", b"["):
        return UsageError(
            f"`{path}` is JSON, but holds no row on a line of its own",
            "write one object per line, each with a `step`",
        )
    return UsageError(
        f"`{path}` is text of no kind that is known (looked for {_whats()})",
        f"say what it is, as in `csv:{path}`; kinds: {', '.join(KINDS)}",
    )


def _whats() -> str:
    return ", ".join(kind.what for kind in KINDS.values())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_MAX_LISTED]) + more
