"""Counts one part of the token records, as a job of its own: python -m analysis.replay.part

    python -m analysis.replay.part PART.json OUT_DIR

PART.json is what `part_record` made. Writes `tally.json` into OUT_DIR, and one row of metrics, by
which whoever started it sees that it has ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.replay.tally import Tally, from_json, merge
from harness.errors import HarnessError
from harness.records.files import read_json, write_atomic

TALLY_FILE = "tally.json"
METRICS_FILE = "metrics.jsonl"
SEQUENCES_PER_PART = 1 << 40
"""Parts number their sequences this far apart, as the bootstrap draws by number."""


def part_record(
    place: int,
    paths: Sequence[str],
    *,
    rules: Sequence[str],
    curves: Sequence[str],
    columns: Mapping[str, str],
    probabilities: bool | None,
    unstable_ok: bool,
) -> dict[str, Any]:
    """Return what the part at `place` needs to know, as JSON values."""
    return {
        "paths": list(paths),
        "rules": list(rules),
        "curves": list(curves),
        "columns": dict(columns),
        "probabilities": probabilities,
        "unstable_ok": unstable_ok,
        "first_sequence": place * SEQUENCES_PER_PART,
    }


def count_part(record: Mapping[str, Any]) -> Tally:
    """Return the counts of one part.

    Raises:
        UsageError: a rule or a curve is none, or a path holds no token records.
    """
    from analysis.replay.engine import tally  # noqa: PLC0415  (numpy loads only here)
    from analysis.replay.requests import parse_curve  # noqa: PLC0415
    from analysis.replay.rules import parse_rule  # noqa: PLC0415
    from analysis.replay.sources import open_tokens  # noqa: PLC0415

    source = open_tokens(
        record["paths"],
        columns=record["columns"],
        unstable_ok=record["unstable_ok"],
        probabilities=record["probabilities"],
    )
    return tally(
        source,
        [parse_rule(text) for text in record["rules"]],
        [parse_curve(text) for text in record["curves"]],
        first_sequence=record["first_sequence"],
    )


def merge_parts(files: Sequence[Path]) -> Tally:
    """Return the counts of all parts together, in the order of `files`.

    Raises:
        HarnessError: a file is no tally, or they don't fit together.
    """
    whole: Tally | None = None
    for path in files:
        try:
            part = from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HarnessError(
                f"`{path}`: {error}", "delete the folder of that part and start it again"
            ) from error
        try:
            whole = part if whole is None else merge(whole, part)
        except ValueError as error:
            raise HarnessError(
                str(error),
                "replay them apart, or without --on: one pass uses the columns that all have",
            ) from error
    assert whole is not None
    return whole


def main(arguments: Sequence[str]) -> int:
    """Count the part that a command line names; return the exit code."""
    part_file, folder = Path(arguments[0]), Path(arguments[1])
    try:
        found = count_part(read_json(part_file))
    except HarnessError as error:
        # On one line: of a run that failed, the last line is what is shown.
        hint = f" ({error.hint})" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr)
        return error.exit_code
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / TALLY_FILE, found.to_json())
    row = {"step": 1, "time": time.time(), "progress/tokens": int(found.counts["tokens"])}
    with (folder / METRICS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
