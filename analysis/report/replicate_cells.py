"""How tables show what replicates and their arms differ by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.metrics import metric_spec
from analysis.report.cells import Cell, make_cell
from analysis.report.numbers import NONE, format_effect

REPLICATE_NOTE = (
    " A/A: what a replicate of either arm and its arm differ by, in the same test. Replicates stand"
    " in rows of their own, outside Holm's family and without a better or worse."
)
"""Below the table of comparisons."""


def replicate_cell(items: Sequence[Mapping[str, Any]]) -> Cell:
    """Return how a replicate differs from its arm in metrics, in place of verdicts."""
    lines = [f"A/A of {items[0]['replicate_of']}"]
    for item in items:
        if item["scale"] != "share" and item["effect"] is not None:
            effect = format_effect(item["scale"], item["effect"], item["low"], item["high"])
            lines.append(f"{metric_spec(item['name']).label} {effect}")
    return make_cell(*lines, tone="muted")


def beside_cell(item: Mapping[str, Any]) -> Cell:
    """Return the A/A differences of either arm of a comparison, marked where one covers it."""
    beside = item.get("replicates") or ()
    lines = [
        f"{aa['arm']} {format_effect(item['scale'], aa['effect'], aa['low'], aa['high'])}"
        for aa in beside
    ]
    tones = tuple("warn" if aa["covers"] else "" for aa in beside)
    return Cell(tuple(lines), tones=tones) if lines else make_cell(NONE)
