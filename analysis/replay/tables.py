"""The tables of a replay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analysis.replay.result import Bucket, Curve, ReplayResult, RuleCount, StepWindow
from analysis.replay.wording import (
    curve_titles,
    describe_self_check,
    format_count,
    format_fraction,
    format_interval,
    format_knob,
    format_knobs,
    format_near,
    format_share_of,
    replayed,
    short_labels,
)
from analysis.report.cells import Cell, Column, Table, make_cell
from analysis.report.numbers import NONE, format_number

ROUND_DIGITS = (1, 2, 3, 5)
"""Leading digits of the thresholds that the table of a curve shows."""


def rule_table(result: ReplayResult) -> Table:
    """Return one row per rule, refused ones with what they lack."""
    columns = (
        Column("rule"),
        Column("masked", is_number=True),
        Column("share", is_number=True),
        Column("interval", is_number=True, hint=_interval_hint(result)),
        Column(
            "undecidable",
            is_number=True,
            hint="tokens so near an edge of the rule that rounding of the recorded "
            "log-probabilities decides",
        ),
        Column(
            "with advantage",
            is_number=True,
            hint="masked, of the tokens whose advantage is not 0: the others have no gradient",
        ),
        Column("KL masked", is_number=True, hint="mean mismatch KL (k3) of masked tokens, in nats"),
        Column("KL kept", is_number=True, hint="the same of kept tokens"),
        Column(
            "q masked",
            is_number=True,
            hint="the masked tokens' share of the summed probability under the engine",
        ),
        Column("decides in"),
    )
    rows = tuple(_rule_row(rule) for rule in result.rules)
    return Table("rules", "What each rule would have masked", columns, rows)


def _rule_row(rule: RuleCount) -> tuple[Cell, ...]:
    if rule.refused:
        refused = make_cell(f"refused: {rule.refused}", tone="warn")
        return (make_cell(rule.label), *(make_cell(NONE) for _ in range(8)), refused)
    return (
        make_cell(rule.label),
        make_cell(format_count(rule.num_masked)),
        make_cell(format_fraction(rule.fraction)),
        make_cell(format_interval(rule.low, rule.high)),
        make_cell(format_count(rule.num_undecidable), tone="" if rule.num_undecidable else "muted"),
        make_cell(format_share_of(rule.num_masked_with_advantage, rule.num_with_advantage)),
        make_cell(format_number(rule.masked_kl)),
        make_cell(format_number(rule.kept_kl)),
        make_cell(format_fraction(rule.masked_probability)),
        make_cell(rule.dtype, tone="muted"),
    )


def _interval_hint(result: ReplayResult) -> str:
    if all(rule.low is None for rule in result.rules):
        return "none: that needs at least two sequences"
    return "95 % interval of the share, over sequences"


def example_table(result: ReplayResult) -> Table:
    """Return the worked examples, one row each."""
    columns = (
        Column("engine q", is_number=True),
        Column("trainer p", is_number=True),
        Column("ratio p/q", is_number=True),
        Column("moved", is_number=True),
        Column("masked by"),
        Column("kept by"),
    )
    shown = short_labels(result.rules)
    rows = []
    for example in result.examples:
        numbers = (
            _plain(example.inference),
            _plain(example.trainer),
            format_number(example.ratio),
            _plain(abs(example.trainer - example.inference)),
        )
        rows.append(
            (
                *(make_cell(number) for number in numbers),
                *(_labels_cell(example.decisions, decision, shown) for decision in (True, False)),
            )
        )
    undecided = sorted(
        {
            shown.get(label, label)
            for example in result.examples
            for label, decision in example.decisions.items()
            if decision is None
        }
    )
    note = ""
    if undecided:
        note = f"More than the two probabilities is needed by {', '.join(undecided)}."
    return Table("examples", "Worked examples", columns, tuple(rows), note)


def _plain(value: float) -> str:
    """Return `value` with 2 decimals where these say all of it."""
    text = f"{value:.2f}"
    return text if abs(float(text) - value) < 1e-9 else f"{value:.3g}"


def _labels_cell(
    decisions: Mapping[str, bool | None], wanted: bool, shown: Mapping[str, str]
) -> Cell:
    labels = [
        shown.get(label, label) for label, decision in decisions.items() if decision is wanted
    ]
    return make_cell(", ".join(labels) or NONE)


def agreement_table(result: ReplayResult) -> Table:
    """Return one row per pair of rules: tokens masked by both, by one alone, by neither."""
    columns = (
        Column("rule A"),
        Column("rule B"),
        Column("both", is_number=True),
        Column("only A", is_number=True),
        Column("only B", is_number=True),
        Column("neither", is_number=True),
    )
    rows = tuple(
        (
            make_cell(pair.first),
            make_cell(pair.second),
            *(
                make_cell(format_count(count))
                for count in (pair.both, pair.only_first, pair.only_second, pair.neither)
            ),
        )
        for pair in result.agreements
    )
    return Table("agreement", "Agreement between rules", columns, rows, is_folded=len(rows) > 6)


def bucket_table(result: ReplayResult) -> Table:
    """Return what each rule masks of rare and of likely tokens."""
    labels = _shown_labels(result)
    columns = (
        Column("probability q", hint="of the token under the engine"),
        *_part_columns(labels),
    )
    rows = tuple(
        (make_cell(_bucket_text(bucket)), *_part_cells(bucket, labels, result.num_tokens))
        for bucket in result.buckets
    )
    return Table("buckets", "By probability under the engine", columns, rows)


def step_table(result: ReplayResult) -> Table:
    """Return the same by windows of steps; folded where there are many."""
    labels = _shown_labels(result)
    columns = (Column("steps"), *_part_columns(labels))
    rows = tuple(
        (
            make_cell(
                str(window.first)
                if window.first == window.last
                else f"{window.first} to {window.last}"
            ),
            *_part_cells(window, labels, result.num_tokens),
        )
        for window in result.steps
    )
    return Table("steps", "By step", columns, rows, is_folded=len(rows) > 12)


def _shown_labels(result: ReplayResult) -> dict[str, str]:
    return short_labels(replayed(result.rules))


def _part_columns(labels: Mapping[str, str]) -> tuple[Column, ...]:
    return (
        Column("tokens", is_number=True),
        Column("mean KL", is_number=True, hint="mismatch KL (k3), in nats"),
        *(Column(label, is_number=True) for label in labels.values()),
    )


def _part_cells(
    part: Bucket | StepWindow, labels: Iterable[str], num_tokens: int
) -> tuple[Cell, ...]:
    of_all = format_fraction(part.num_tokens / num_tokens) if num_tokens else NONE
    cells = [
        Cell((format_count(part.num_tokens), of_all), tones=("", "muted")),
        make_cell(format_number(part.mean_kl)),
    ]
    for label in labels:
        count = part.num_masked.get(label)
        if count is None:
            cells.append(make_cell(NONE))
        elif not count:
            cells.append(make_cell("0", tone="muted"))
        else:
            share = format_fraction(count / part.num_tokens)
            cells.append(Cell((format_count(count), share), tones=("", "muted")))
    return tuple(cells)


def _bucket_text(bucket: Bucket) -> str:
    low = f"{bucket.low:g}"
    return f"up to {bucket.high:g}" if bucket.low <= 0 else f"{low} to {bucket.high:g}"


def curve_tables(result: ReplayResult) -> list[Table]:
    """Return a table per curve, of the counted thresholds nearest to round ones."""
    titles = curve_titles(result.curves)
    return [
        _curve_table(curve, result.num_tokens, name, title)
        for curve, (name, title) in zip(result.curves, titles.items(), strict=True)
    ]


def _curve_table(curve: Curve, num_tokens: int, name: str, title: str) -> Table:
    columns = (
        Column(curve.knob, is_number=True),
        Column("masked", is_number=True),
        Column("share", is_number=True),
        Column("interval", is_number=True),
    )
    rows = []
    for place in _near_round(curve.thresholds):
        count = curve.num_masked[place]
        ends = (curve.low[place], curve.high[place]) if curve.low else (None, None)
        rows.append(
            (
                make_cell(format_near(curve.thresholds[place])),
                make_cell(format_count(count)),
                make_cell(format_fraction(count / num_tokens if num_tokens else None)),
                make_cell(format_interval(*ends)),
            )
        )
    note = (
        f"{len(rows)} of the {len(curve.thresholds)} thresholds that were counted; all of them "
        "stand in curves.csv."
    )
    return Table(f"curve-{name}", title, columns, tuple(rows), note)


def _near_round(thresholds: Sequence[float]) -> list[int]:
    """Return the places of the ends and of the thresholds nearest to 1, 2, 3, 5 times 10^n."""
    values = np.array(thresholds)
    low, high = float(values[0]), float(values[-1])
    if low <= 0:
        low = float(values[values > 0].min(initial=high))
    places = {0, len(values) - 1}
    for exponent in range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1):
        for digit in ROUND_DIGITS:
            wanted = digit * 10.0**exponent
            if low <= wanted <= high:
                # As factors: thresholds of a curve lie evenly in the logarithm.
                factors = np.maximum(values, 1e-300) / wanted
                places.add(int(np.argmin(np.maximum(factors, 1 / factors))))
    return sorted(places)


def self_check_table(result: ReplayResult) -> Table:
    """Return the tokens whose stored decision the replay doesn't give; none where all agree."""
    check = result.self_check
    columns = (
        Column("step", is_number=True),
        Column("sequence", is_number=True),
        Column("trainer p", is_number=True),
        Column("engine q", is_number=True),
        Column("log p", is_number=True),
        Column("log q", is_number=True),
        Column("advantage", is_number=True),
        Column("the trainer"),
        Column("the replay"),
    )
    rows = tuple(
        (
            make_cell(NONE if token.step is None else str(token.step)),
            make_cell(NONE if token.sequence is None else str(token.sequence)),
            make_cell(format_number(math.exp(token.trainer_logprob), 6)),
            make_cell(format_number(math.exp(token.inference_logprob), 6)),
            make_cell(format_number(token.trainer_logprob, 9)),
            make_cell(format_number(token.inference_logprob, 9)),
            make_cell(format_number(token.advantage)),
            make_cell("masked" if token.stored else "kept"),
            make_cell("kept" if token.stored else "masked"),
        )
        for token in (check.differing if check else ())
    )
    return Table("self-check", "Self-check", columns, rows, describe_self_check(result))


def excluded_table(result: ReplayResult) -> Table:
    """Return how many tokens were left out, by reason."""
    rows = tuple(
        (make_cell(reason), make_cell(format_count(count)))
        for reason, count in sorted(result.excluded.items())
        if count
    )
    columns = (Column("reason"), Column("tokens", is_number=True))
    return Table("excluded", "Tokens left out", columns, rows)


def file_table(result: ReplayResult) -> Table:
    """Return what was read from every file."""
    columns = (
        Column("file"),
        Column("format"),
        Column("bytes", is_number=True),
        Column("tokens", is_number=True),
        Column("left out"),
        Column("bad lines", is_number=True),
        Column("problem"),
    )
    rows = tuple(
        (
            make_cell(file.path),
            make_cell(file.format),
            make_cell(format_count(file.size_bytes)),
            make_cell(format_count(file.num_tokens)),
            make_cell(
                *(f"{count:,} {reason}" for reason, count in sorted(file.excluded.items()) if count)
            ),
            make_cell(format_count(file.num_bad_lines)),
            make_cell(file.problem, tone="bad" if file.problem else ""),
        )
        for file in result.files
    )
    return Table("files", "Files", columns, rows, is_folded=len(rows) > 12)


def loss_text(result: ReplayResult) -> str:
    """Return the loss of the run that made the tokens, or that no one loss is known."""
    if result.loss is None:
        return "no one loss that is known"
    knobs = {key: value for key, value in result.loss.items() if key != "type"}
    name = format_knob(result.loss.get("type", "custom"))
    return f"{name} ({format_knobs(knobs)})" if knobs else name


def main_tables(result: ReplayResult) -> tuple[Table, ...]:
    """Return what answers the question: the rules, the examples, the self-check."""
    check = (self_check_table(result),) if result.self_check is not None else ()
    return (rule_table(result), example_table(result), *check)


def detail_tables(result: ReplayResult) -> tuple[Table, ...]:
    """Return the tables that look closer: curves, agreement, buckets, steps."""
    found = (
        *curve_tables(result),
        agreement_table(result),
        bucket_table(result),
        step_table(result),
    )
    return tuple(table for table in found if table.rows)


def source_tables(result: ReplayResult) -> tuple[Table, ...]:
    """Return what was read and what was left out."""
    return (excluded_table(result), file_table(result))
