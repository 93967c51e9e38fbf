"""The counts of one pass, which add up over files, processes and tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from analysis.replay.bootstrap import FloatArray
from analysis.replay.requests import CurveRequest
from analysis.replay.result import DifferingToken
from analysis.replay.rules import Rule, make_rule
from analysis.replay.tokens import IntArray, TokenColumns, TokenFile

NUM_DIFFERING = 20
"""Differing tokens that are kept to be shown."""
_VERSION = 1


@dataclass(frozen=True)
class Question:
    """What tokens are counted for; only tallies of the same question merge.

    Attributes:
        rules, curves: as asked for; those that `columns` don't allow have no counts.
        decimals: decimal places that log-probabilities were rounded to.
    """

    rules: tuple[Rule, ...]
    curves: tuple[CurveRequest, ...]
    seed: int
    columns: TokenColumns
    decimals: int | None

    def counted_rules(self) -> tuple[Rule, ...]:
        """Return the rules that the columns allow."""
        return tuple(rule for rule in self.rules if not rule.refusal(self.columns))

    def counted_curves(self) -> tuple[CurveRequest, ...]:
        """Return the curves that the columns allow."""
        return tuple(curve for curve in self.curves if not curve.refusal(self.columns))


@dataclass(frozen=True)
class StepTally:
    """One step: tokens, masked tokens by rule [num_rules], sum of k3."""

    num_tokens: int
    num_masked: tuple[int, ...]
    kl: float


@dataclass(frozen=True)
class Tally:
    """Counts of some tokens.

    Attributes:
        loss: of the run that made the tokens; None if unknown, or if merged parts differ in it.
        check: label of the trainer's own rule; empty where its decisions can't be checked, which
            `notes` explains then.
        counts: name -> integers, exact. sums: name -> float64 sums; in another order of merging
            they differ by rounding.
        max_kl: None without tokens.
    """

    label: str
    question: Question
    loss: Mapping[str, Any] | None
    check: str
    files: tuple[TokenFile, ...]
    notes: tuple[str, ...]
    counts: Mapping[str, IntArray]
    sums: Mapping[str, FloatArray]
    max_kl: float | None
    steps: Mapping[int, StepTally]
    differing: tuple[DifferingToken, ...]

    @property
    def num_tokens(self) -> int:
        return int(self.counts["tokens"])

    def to_json(self) -> str:
        """Return it as one line of JSON, without loss."""
        record = {
            "version": _VERSION,
            "label": self.label,
            "rules": [[rule.type, dict(rule.knobs)] for rule in self.question.rules],
            "curves": [asdict(curve) for curve in self.question.curves],
            "seed": self.question.seed,
            "columns": asdict(self.question.columns),
            "decimals": self.question.decimals,
            "loss": self.loss,
            "check": self.check,
            "files": [asdict(file) for file in self.files],
            "notes": self.notes,
            "counts": {name: _to_list(value) for name, value in self.counts.items()},
            "sums": {name: _to_list(value) for name, value in self.sums.items()},
            "max_kl": self.max_kl,
            "steps": [[step, *asdict(one).values()] for step, one in self.steps.items()],
            "differing": [asdict(token) for token in self.differing],
        }
        return json.dumps(record, separators=(",", ":"))


def from_json(text: str) -> Tally:
    """Return the tally that `to_json` wrote.

    Raises:
        ValueError: it is none, or one of another version.
    """
    record = json.loads(text)
    if not isinstance(record, dict) or record.get("version") != _VERSION:
        raise ValueError(f"not a tally of version {_VERSION}")
    question = Question(
        rules=tuple(make_rule(type, knobs) for type, knobs in record["rules"]),
        curves=tuple(
            CurveRequest(**{**curve, "thresholds": tuple(curve["thresholds"])})
            for curve in record["curves"]
        ),
        seed=record["seed"],
        columns=TokenColumns(**record["columns"]),
        decimals=record["decimals"],
    )
    return Tally(
        label=record["label"],
        question=question,
        loss=record["loss"],
        check=record["check"],
        files=tuple(TokenFile(**file) for file in record["files"]),
        notes=tuple(record["notes"]),
        counts={
            name: np.array(flat, np.int64).reshape(shape)
            for name, (shape, flat) in record["counts"].items()
        },
        sums={
            name: np.array(flat, np.float64).reshape(shape)
            for name, (shape, flat) in record["sums"].items()
        },
        max_kl=record["max_kl"],
        steps={
            step: StepTally(num, tuple(masked), kl) for step, num, masked, kl in record["steps"]
        },
        differing=tuple(DifferingToken(**token) for token in record["differing"]),
    )


def merge(first: Tally, second: Tally) -> Tally:
    """Return the tally of both parts together: what one pass over both comes to.

    No sequence may be in both, and no two sequences may share a number (see `tally`).

    Undecidable tokens of each part are by its own rounding; the result names the coarsest.

    Raises:
        ValueError: they answer different questions, or one lacks columns that the other has.
    """
    for name in ("rules", "curves", "seed", "columns"):
        ours, theirs = getattr(first.question, name), getattr(second.question, name)
        if ours != theirs:
            raise ValueError(
                f"tallies of different {name} don't merge: {first.label} and {second.label}"
            )
    rounding = [one.question.decimals for one in (first, second)]
    decimals = min((one for one in rounding if one is not None), default=None)
    largest = [one.max_kl for one in (first, second) if one.max_kl is not None]
    steps = dict(first.steps)
    for step, more in second.steps.items():
        old = steps.get(step)
        steps[step] = more if old is None else _both_steps(old, more)
    is_same_loss = first.loss == second.loss
    checks = tuple(dict.fromkeys(one.check for one in (first, second) if one.check))
    return replace(
        first,
        question=replace(first.question, decimals=decimals),
        label=" + ".join(dict.fromkeys([first.label, second.label])),
        loss=first.loss if is_same_loss else None,
        check=" and ".join(checks),
        files=(*first.files, *second.files),
        notes=tuple(dict.fromkeys([*first.notes, *second.notes])),
        counts={name: value + second.counts[name] for name, value in first.counts.items()},
        sums={name: value + second.sums[name] for name, value in first.sums.items()},
        max_kl=max(largest, default=None),
        steps=steps,
        differing=(*first.differing, *second.differing)[:NUM_DIFFERING],
    )


def _both_steps(one: StepTally, other: StepTally) -> StepTally:
    masked = tuple(a + b for a, b in zip(one.num_masked, other.num_masked, strict=True))
    return StepTally(one.num_tokens + other.num_tokens, masked, one.kl + other.kl)


def _to_list(value: Any) -> list[Any]:
    """Return shape and numbers, as nested lists of no rows would lose their width."""
    return [list(value.shape), value.ravel().tolist()]
