"""A replay as pandas tables, and as CSV."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.replay.result import ReplayResult
from analysis.replay.wording import format_knobs


@dataclass(frozen=True)
class ReplayTables:
    """A replay as tables, and the result that they show.

    Attributes:
        rules: one row per rule: `label, type, knobs, dtype, refused, num_tokens, num_masked,
            fraction, low, high, num_undecidable, num_with_advantage, num_masked_with_advantage,
            masked_kl, kept_kl, masked_probability`.
        curves: one row per threshold: `type, knob, fixed, threshold, num_masked, fraction, low,
            high`.
        agreements: one row per pair: `first, second, both, only_first, only_second, neither`.
        buckets: one row per bucket of probability and rule: `low, high, num_tokens, mean_kl, rule,
            num_masked, fraction`.
        steps: the same by windows of steps, with `first, last` in place of `low, high`.
        examples: one row per example and rule: `inference, trainer, ratio, rule, is_masked`.
        files: one row per file: `path, format, size_bytes, num_tokens, num_excluded,
            num_bad_lines, problem`.
    """

    result: ReplayResult
    rules: pd.DataFrame
    curves: pd.DataFrame
    agreements: pd.DataFrame
    buckets: pd.DataFrame
    steps: pd.DataFrame
    examples: pd.DataFrame
    files: pd.DataFrame


def build_tables(result: ReplayResult) -> ReplayTables:
    """Return `result` as tables. Counts are integers (nullable), what there isn't is missing."""
    return ReplayTables(
        result,
        rules=_rules(result),
        curves=_curves(result),
        agreements=_frame(
            ("first", "second", "both", "only_first", "only_second", "neither"),
            [dataclasses.asdict(pair) for pair in result.agreements],
        ),
        buckets=_parts(result, "buckets", ("low", "high")),
        steps=_parts(result, "steps", ("first", "last")),
        examples=_examples(result),
        files=_files(result),
    )


def to_csv(frame: pd.DataFrame) -> str:
    """Return `frame` as CSV; an empty cell is a value that there isn't."""
    return frame.to_csv(index=False, lineterminator="\n")


def _rules(result: ReplayResult) -> pd.DataFrame:
    columns = (
        "label",
        "type",
        "knobs",
        "dtype",
        "refused",
        "num_tokens",
        "num_masked",
        "fraction",
        "low",
        "high",
        "num_undecidable",
        "num_with_advantage",
        "num_masked_with_advantage",
        "masked_kl",
        "kept_kl",
        "masked_probability",
    )
    rows = []
    for rule in result.rules:
        values = {name: getattr(rule, name) for name in columns}
        if rule.refused:  # its zeros are no counts
            values |= {name: None for name in columns if name.startswith("num_")}
        rows.append({**values, "knobs": format_knobs(rule.knobs)})
    return _frame(columns, rows)


def _curves(result: ReplayResult) -> pd.DataFrame:
    rows = []
    for curve in result.curves:
        for place, threshold in enumerate(curve.thresholds):
            count = curve.num_masked[place]
            rows.append(
                {
                    "type": curve.type,
                    "knob": curve.knob,
                    "fixed": format_knobs(curve.fixed),
                    "threshold": threshold,
                    "num_masked": count,
                    "fraction": count / result.num_tokens if result.num_tokens else None,
                    "low": curve.low[place] if curve.low else None,
                    "high": curve.high[place] if curve.high else None,
                }
            )
    columns = ("type", "knob", "fixed", "threshold", "num_masked", "fraction", "low", "high")
    return _frame(columns, rows)


def _parts(result: ReplayResult, name: str, ends: tuple[str, str]) -> pd.DataFrame:
    rows = [
        {
            **{end: getattr(part, end) for end in ends},
            "num_tokens": part.num_tokens,
            "mean_kl": part.mean_kl,
            "rule": label,
            "num_masked": count,
            "fraction": count / part.num_tokens if part.num_tokens else None,
        }
        for part in getattr(result, name)
        for label, count in part.num_masked.items()
    ]
    columns = (*ends, "num_tokens", "mean_kl", "rule", "num_masked", "fraction")
    return _frame(columns, rows)


def _examples(result: ReplayResult) -> pd.DataFrame:
    rows = [
        {
            "inference": example.inference,
            "trainer": example.trainer,
            "ratio": example.ratio,
            "rule": label,
            "is_masked": decision,
        }
        for example in result.examples
        for label, decision in example.decisions.items()
    ]
    frame = _frame(("inference", "trainer", "ratio", "rule", "is_masked"), rows)
    return frame.astype({"is_masked": "boolean"})


def _files(result: ReplayResult) -> pd.DataFrame:
    columns = ("path", "format", "size_bytes", "num_tokens", "num_excluded")
    rows = [
        {
            **{name: getattr(file, name) for name in (*columns[:-1], "num_bad_lines", "problem")},
            "num_excluded": sum(file.excluded.values()),
        }
        for file in result.files
    ]
    return _frame((*columns, "num_bad_lines", "problem"), rows)


_COUNTS = ("both", "only_first", "only_second", "neither", "size_bytes", "first", "last")


def _frame(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return `rows` with exactly these columns, counts as nullable integers."""
    frame = pd.DataFrame(rows, columns=list(columns))
    texts = {"first", "second"} if "second" in columns else set()
    for name in columns:
        if name.startswith("num_") or (name in _COUNTS and name not in texts):
            frame[name] = frame[name].astype("Int64")
        elif frame[name].dtype == object and name in _FLOATS:
            frame[name] = frame[name].astype("float64")
    return frame


_FLOATS = ("fraction", "low", "high", "masked_kl", "kept_kl", "masked_probability", "mean_kl")
