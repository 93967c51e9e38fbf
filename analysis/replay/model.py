"""replay.json: everything that a replay came to; the other files are renderings of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from analysis.replay.result import Density, ReplayResult
from analysis.replay.wording import CAVEAT, describe_findings
from harness.records.files import finite_or_text

SCHEMA_VERSION = 1


def build_record(result: ReplayResult) -> dict[str, Any]:
    """Return the content of replay.json; the same result gives the same record.

    Of the density only bins that hold tokens are there: `inference_bins`, `trainer_bins` and
    `counts` side by side, bin i reaching from i / num_bins to (i + 1) / num_bins.
    """
    fields = {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
        if field.name != "density"
    }
    for rule, record in zip(result.rules, fields["rules"], strict=True):
        record["fraction"] = rule.fraction
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "replay",
        "caveat": CAVEAT,
        "findings": describe_findings(result),
        **fields,
        "density": None if result.density is None else _sparse(result.density),
    }


def render_json(record: Mapping[str, Any]) -> str:
    """Return `record` as JSON with sorted keys; lists without anything inside stand on a line."""
    return f"{_rendered(record, '')}\n"


def _sparse(density: Density) -> dict[str, Any]:
    filled = [
        (row, column, count)
        for row, counts in enumerate(density.counts)
        for column, count in enumerate(counts)
        if count
    ]
    names = ("inference_bins", "trainer_bins", "counts")
    return {
        "num_bins": density.num_bins,
        **{name: [bins[place] for bins in filled] for place, name in enumerate(names)},
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return finite_or_text(value)
    return value


def _rendered(value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, Mapping) and value:
        items = (f"{deeper}{_line(key)}: {_rendered(value[key], deeper)}" for key in sorted(value))
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        lines = (f"{deeper}{_rendered(item, deeper)}" for item in value)
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
