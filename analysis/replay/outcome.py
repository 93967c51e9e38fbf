"""From the counts of a pass to what is shown: fractions, means, intervals, windows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.replay.block import Block
from analysis.replay.bootstrap import (
    MIN_SEQUENCES,
    NUM_REPLICATES,
    percentile_interval,
    ratio_intervals,
)
from analysis.replay.counter import BUCKET_EDGES, NUM_BUCKETS, NUM_DENSITY_BINS
from analysis.replay.edges import decide
from analysis.replay.recommend import DEFAULT_MAX_SHARE, DEFAULT_MOVED, recommend
from analysis.replay.result import (
    Agreement,
    Bucket,
    Curve,
    Density,
    Example,
    ReplayResult,
    RuleCount,
    SelfCheck,
    StepWindow,
)
from analysis.replay.rules import Rule
from analysis.replay.tally import Tally
from analysis.replay.tokens import TokenChunk

MAX_WINDOWS = 20
EXAMPLES = (
    *((0.01, 0.06), (0.06, 0.01), (0.90, 0.20), (0.20, 0.90)),
    *((0.50, 0.55), (0.60, 0.999), (0.999, 0.60), (1e-6, 1e-4), (0.05, 0.30)),
)
"""(q, p): the first and the third are the page's, 0.01 to 0.06 and 0.90 to 0.20."""

IDENTICAL = (
    "the trainer's and the engine's log-probabilities are identical in every token: usually one "
    "column was copied from the other, or the trainer was given its own log-probabilities in place "
    "of the engine's"
)


def result_of(
    tally: Tally,
    *,
    window_steps: int | None = None,
    max_share: float = DEFAULT_MAX_SHARE,
    moved: float = DEFAULT_MOVED,
) -> ReplayResult:
    """Return what the counts of `tally` come to; arguments as of `analysis.replay.engine`."""
    counts, question = tally.counts, tally.question
    num_tokens = int(counts["tokens"])
    rules = question.counted_rules()
    labels = [rule.label for rule in rules]
    result = ReplayResult(
        label=tally.label,
        files=tally.files,
        loss=tally.loss,
        decimals=question.decimals,
        num_tokens=num_tokens,
        num_sequences=int(counts["sequences"]) if question.columns.sequences else None,
        num_identical=int(counts["identical"]),
        total_kl=float(tally.sums["kl"]),
        max_kl=tally.max_kl,
        rules=_rules(tally),
        curves=_curves(tally),
        agreements=_agreements(tally, labels),
        buckets=_buckets(tally, labels),
        steps=_windows(tally, labels, window_steps),
        examples=_examples(rules),
        density=Density(NUM_DENSITY_BINS, tuple(tuple(row) for row in counts["density"].tolist())),
        self_check=_self_check(tally),
        excluded=_excluded(tally),
        seed=question.seed,
        num_replicates=NUM_REPLICATES if question.columns.sequences else 0,
        warnings=_warnings(tally),
    )
    return replace(result, recommendations=recommend(result, max_share=max_share, moved=moved))


def _rules(tally: Tally) -> tuple[RuleCount, ...]:
    counts, sums, columns = tally.counts, tally.sums, tally.question.columns
    num_tokens = int(counts["tokens"])
    found, place = [], 0
    for rule in tally.question.rules:
        needs = ("trainer_logprobs", "inference_logprobs", *rule.spec.needs)
        count = RuleCount(rule.label, rule.type, rule.knobs, needs=needs)
        refusal = rule.refusal(columns)
        if refusal:
            found.append(replace(count, refused=refusal))
            continue
        num_masked = int(counts["masked"][place])
        interval = None
        if columns.sequences and counts["sequences"] >= MIN_SEQUENCES:
            interval = percentile_interval(
                counts["replicate_masked"][place], counts["replicate_tokens"]
            )
        has = columns.advantages
        found.append(
            replace(
                count,
                num_tokens=num_tokens,
                num_masked=num_masked,
                num_undecidable=int(counts["undecidable"][place]),
                num_with_advantage=int(counts["with_advantage"]) if has else None,
                num_masked_with_advantage=(
                    int(counts["masked_with_advantage"][place]) if has else None
                ),
                low=None if interval is None else interval[0],
                high=None if interval is None else interval[1],
                masked_kl=_mean(sums["masked_kl"][place], num_masked),
                kept_kl=_mean(sums["kept_kl"][place], num_tokens - num_masked),
                masked_probability=_mean(
                    sums["masked_probability"][place], float(sums["probability"])
                ),
            )
        )
        place += 1
    return tuple(found)


def _curves(tally: Tally) -> tuple[Curve, ...]:
    counts, found = tally.counts, []
    for place, request in enumerate(tally.question.counted_curves()):
        masked = counts[f"curve {place}"]
        low: tuple[float, ...] = ()
        high: tuple[float, ...] = ()
        if tally.question.columns.sequences:
            low, high = ratio_intervals(
                masked,
                counts[f"squared {place}"],
                counts[f"crossed {place}"],
                num_tokens=int(counts["tokens"]),
                squared_tokens=int(counts["squared_tokens"]),
                num_sequences=int(counts["sequences"]),
            )
        found.append(
            Curve(
                request.type,
                request.knob,
                request.fixed,
                request.thresholds,
                tuple(masked.tolist()),
                low,
                high,
            )
        )
    return tuple(found)


def _agreements(tally: Tally, labels: list[str]) -> tuple[Agreement, ...]:
    both, num_tokens = tally.counts["both"].tolist(), int(tally.counts["tokens"])
    found = []
    for first in range(len(labels)):
        for second in range(first + 1, len(labels)):
            common = both[first][second]
            only_first = both[first][first] - common
            only_second = both[second][second] - common
            neither = num_tokens - common - only_first - only_second
            found.append(
                Agreement(labels[first], labels[second], common, only_first, only_second, neither)
            )
    return tuple(found)


def _buckets(tally: Tally, labels: list[str]) -> tuple[Bucket, ...]:
    tokens = tally.counts["bucket_tokens"].tolist()
    masked = tally.counts["bucket_masked"].tolist()
    kl = tally.sums["bucket_kl"].tolist()
    return tuple(
        Bucket(
            BUCKET_EDGES[place],
            BUCKET_EDGES[place + 1],
            tokens[place],
            {label: row[place] for label, row in zip(labels, masked, strict=True)},
            _mean(kl[place], tokens[place]),
        )
        for place in range(NUM_BUCKETS)
    )


def _windows(tally: Tally, labels: list[str], width: int | None) -> tuple[StepWindow, ...]:
    if not tally.steps:
        return ()
    first, last = min(tally.steps), max(tally.steps)
    width = width or _round_width((last - first + 1) / MAX_WINDOWS)
    by_window: dict[int, list[int]] = {}
    for step in sorted(tally.steps):
        by_window.setdefault((step - first) // width, []).append(step)
    found = []
    for window, steps in by_window.items():
        ones = [tally.steps[step] for step in steps]
        num_tokens = sum(one.num_tokens for one in ones)
        start = first + window * width
        found.append(
            StepWindow(
                start,
                min(start + width - 1, last),
                num_tokens,
                {
                    label: sum(one.num_masked[place] for one in ones)
                    for place, label in enumerate(labels)
                },
                _mean(math.fsum(one.kl for one in ones), num_tokens),
            )
        )
    return tuple(found)


def _round_width(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, ... that is at least `least`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _examples(rules: tuple[Rule, ...]) -> tuple[Example, ...]:
    inference, trainer = (
        np.log(np.array(column)).astype(np.float32) for column in zip(*EXAMPLES, strict=True)
    )
    block = Block(TokenChunk(trainer, inference))
    decisions = {
        rule.label: None if rule.spec.needs else decide(rule, block).tolist() for rule in rules
    }
    return tuple(
        Example(
            q,
            p,
            p / q,
            {
                label: None if values is None else values[place]
                for label, values in decisions.items()
            },
        )
        for place, (q, p) in enumerate(EXAMPLES)
    )


def _self_check(tally: Tally) -> SelfCheck | None:
    num_stored = int(tally.counts["stored"])
    if not tally.check or not num_stored:
        return None
    return SelfCheck(
        rule=tally.check,
        num_stored=num_stored,
        num_reproduced=int(tally.counts["reproduced"]),
        num_undecidable=int(tally.counts["differing_undecidable"]),
        differing=tally.differing,
    )


def _excluded(tally: Tally) -> dict[str, int]:
    total: dict[str, int] = {}
    for file in tally.files:
        for reason, num in file.excluded.items():
            total[reason] = total.get(reason, 0) + num
    return total


def _warnings(tally: Tally) -> tuple[str, ...]:
    question, counts = tally.question, tally.counts
    found = list(tally.notes)
    num_tokens = int(counts["tokens"])
    if not num_tokens:
        found.append("there is no token that counts")
    elif counts["identical"] == num_tokens:
        found.append(IDENTICAL)
    if num_tokens and not question.columns.sequences:
        found.append(
            "the records don't say which token is of which sequence, so there are no intervals: "
            "tokens of a sequence aren't independent"
        )
    elif num_tokens and counts["sequences"] < MIN_SEQUENCES:
        found.append("all tokens are of one sequence, so there are no intervals")
    found.extend(
        f"curve {curve.label}: {curve.refusal(question.columns)}"
        for curve in question.curves
        if curve.refusal(question.columns)
    )
    return tuple(found)


def _mean(total: Any, num: float) -> float | None:
    return float(total) / num if num else None
