"""Readers of metrics files by format name. A new format is one module and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.sources.cache import cached
from analysis.sources.csv_table import read_csv
from analysis.sources.interface import (
    NO_ATTEMPT,
    FileProvenance,
    KeySeries,
    MetricsFile,
    Reader,
    Wanted,
    empty_file,
)
from analysis.sources.jsonl import read_jsonl
from analysis.sources.prime_rl import read_prime_rl

__all__ = [
    "FORMATS",
    "NO_ATTEMPT",
    "FileProvenance",
    "KeySeries",
    "MetricsFile",
    "Wanted",
    "empty_file",
    "read_metrics",
]

FORMATS: Mapping[str, Reader] = {
    "prime_rl": read_prime_rl,
    "jsonl": read_jsonl,
    "csv": read_csv,
}


def read_metrics(path: Path, kind: str, *, wanted: Wanted, step_key: str = "step") -> MetricsFile:
    """Return what the file at `path`, of format `kind`, holds for the wanted keys.

    Never raises for what a run left behind: a missing, unreadable or foreign file comes back
    empty, with the reason in its provenance.
    """
    reader = FORMATS.get(kind)
    if reader is None:
        known = ", ".join(FORMATS)
        return empty_file(path, kind, f"no reader for format `{kind}` (known: {known})")
    try:
        return cached(
            lambda: reader(path, wanted=wanted, step_key=step_key),
            path,
            kind,
            step_key=step_key,
            wanted=wanted,
        )
    except FileNotFoundError:
        return empty_file(path, kind, "missing")
    except OSError as error:
        return empty_file(path, kind, f"can't be read: {error.strerror or error}")
