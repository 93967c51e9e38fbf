from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from analysis.replay import tables
from analysis.replay.frames import build_tables, to_csv
from analysis.replay.recommend import recommend
from analysis.replay.result import Bucket, Curve, ReplayResult, RuleCount
from analysis.replay.wording import (
    describe_findings,
    describe_self_check,
    format_fraction,
    format_threshold,
    short_labels,
)
from analysis.report.cells import Table
from analysis.report.numbers import NONE
from tests.analysis.replay.made_results import differing_check, made_result

IPO = RuleCount(
    label="ipo:eps=0.3",
    type="ipo",
    knobs={"eps": 0.3},
    num_tokens=2_160_000,
    num_masked=72,
    num_undecidable=3,
    num_with_advantage=1_000_000,
    num_masked_with_advantage=40,
    low=0.00002,
    high=0.00005,
    masked_kl=1.25,
    kept_kl=0.000321,
    masked_probability=0.0000125,
)
GSPO = RuleCount("gspo:x=1", "gspo", {}, refused="`gspo` needs sequences (column `sequences`)")


def empty(**changes: Any) -> ReplayResult:
    """Return a result of no tokens, but for `changes`."""
    fields: dict[str, Any] = {field.name: () for field in dataclasses.fields(ReplayResult)}
    nothing = ("loss", "decimals", "num_sequences", "max_kl", "density", "self_check")
    zeros = ("num_tokens", "num_identical", "total_kl", "seed", "num_replicates")
    fields |= {**dict.fromkeys(nothing), **dict.fromkeys(zeros, 0), "excluded": {}, "label": "x"}
    return ReplayResult(**{**fields, **changes})


def lines(table: Table) -> list[list[str]]:
    return [["; ".join(cell.lines) for cell in row] for row in table.rows]


def test_a_rule_s_row_says_counts_interval_and_what_is_undecidable() -> None:
    [row] = lines(tables.rule_table(empty(rules=(IPO,), num_tokens=2_160_000)))
    assert row == [
        "ipo:eps=0.3",
        "72",
        "0.00333 %",
        "[0.00200, 0.00500 %]",
        "3",
        "40 of 1,000,000",
        "1.25",
        "3.21e-4",
        "0.00125 %",
        "float32",
    ]


def test_a_refused_rule_says_what_it_lacks_and_shows_no_zeros() -> None:
    [row] = lines(tables.rule_table(empty(rules=(GSPO,))))
    assert row[0] == "gspo:x=1"
    assert set(row[1:9]) == {NONE}
    assert row[9] == "refused: `gspo` needs sequences (column `sequences`)"
    rules = build_tables(empty(rules=(GSPO,))).rules
    assert rules["num_masked"].isna().all()


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (None, NONE),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.5, "50.0 %"),
        (72 / 2_160_000, "0.00333 %"),
        (1 / 1_800_000, "0.0000556 %"),
        (1e-10, "0.0000000100 %"),
    ],
)
def test_small_shares_are_written_without_powers_of_ten(fraction: float, text: str) -> None:
    assert format_fraction(fraction) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.30000001192092896, "0.3"),  # 0.3 as float32
        (1.0, "1"),
        (0.2154434621334076, "0.21544346"),
    ],
)
def test_a_threshold_is_written_so_that_it_reads_back_as_the_same_float32(
    value: float, text: str
) -> None:
    assert format_threshold(value) == text


def test_labels_are_short_where_a_rule_s_type_tells_it_apart() -> None:
    other = dataclasses.replace(IPO, label="ipo:eps=0.2")
    assert short_labels((IPO, other, GSPO)) == {
        "ipo:eps=0.3": "ipo:eps=0.3",
        "ipo:eps=0.2": "ipo:eps=0.2",
        "gspo:x=1": "gspo",
    }


def test_the_page_s_examples_are_rows() -> None:
    first, second = lines(tables.example_table(made_result()))
    assert first == [
        "0.01",
        "0.06",
        "6.00",
        "0.05",
        "icepop, ipo_band",
        "ipo:eps=0.3, ipo:eps=0.2, ipo:eps=0.1, kpop",
    ]
    assert second == [
        "0.90",
        "0.20",
        "0.222",
        "0.70",
        "ipo:eps=0.3, ipo:eps=0.2, ipo:eps=0.1, kpop, ipo_band",
        "icepop",
    ]


def test_a_bucket_shows_counts_and_shares_of_its_own_tokens() -> None:
    bucket = Bucket(0.0, 0.1, 200, {"ipo:eps=0.3": 3}, 0.5)
    result = empty(rules=(IPO,), buckets=(bucket,), num_tokens=1000)
    table = tables.bucket_table(result)
    assert [column.label for column in table.columns] == [
        "probability q",
        "tokens",
        "mean KL",
        "ipo",
    ]
    assert lines(table) == [["up to 0.1", "200; 20.0 %", "0.500", "3; 1.50 %"]]


def test_a_curve_s_table_shows_the_thresholds_nearest_to_round_ones() -> None:
    thresholds = (0.01, 0.0206, 0.031, 0.07, 0.1, 0.21, 0.31, 0.48, 1.0)
    counts = (80, 70, 60, 50, 40, 30, 20, 10, 0)
    curve = Curve("ipo", "eps", {}, thresholds, counts)
    [table] = tables.curve_tables(empty(curves=(curve,), num_tokens=100))
    shown = lines(table)
    assert [row[0] for row in shown] == [
        *("0.01", "0.0206", "0.031", "0.07"),
        *("0.1", "0.21", "0.31", "0.48", "1"),
    ]
    assert shown[4] == ["0.1", "40", "40.0 %", NONE]


def test_a_curve_that_starts_at_0_has_a_table() -> None:
    curve = Curve("ipo", "eps", {}, (0.0, 0.5, 1.0), (9, 2, 0))
    [table] = tables.curve_tables(empty(curves=(curve,), num_tokens=10))
    assert [row[0] for row in lines(table)] == ["0", "0.5", "1"]


def test_two_curves_over_the_same_knob_have_names_of_their_own() -> None:
    curves = tuple(
        Curve("icepop", "ratio_high", {"ratio_low": low}, (2.0, 3.0), (5, 4)) for low in (0.2, 0.5)
    )
    found = tables.curve_tables(empty(curves=curves, num_tokens=10))
    assert [(table.name, table.title) for table in found] == [
        ("curve-icepop_ratio_high", "Masked by icepop (ratio_low=0.2) over ratio_high"),
        ("curve-icepop_ratio_high_2", "Masked by icepop (ratio_low=0.5) over ratio_high"),
    ]


def test_a_self_check_says_that_all_are_reproduced_or_shows_what_differs() -> None:
    same = made_result(4000)
    assert describe_self_check(same) == (
        "The trainer's own 4,000 decisions are all reproduced by ipo:eps=0.3."
    )
    differing = made_result(self_check=differing_check())
    assert describe_self_check(differing).startswith("1 of the trainer's own 1,000 decisions")
    [row] = lines(tables.self_check_table(differing))
    assert row[:4] == ["12", "7", "0.904837", "0.135335"]
    assert row[-2:] == ["kept", "masked"]


def test_what_was_left_out_is_said_by_reason_and_by_file() -> None:
    result = made_result()
    assert lines(tables.excluded_table(result)) == [["null", "1"], ["outside the loss mask", "12"]]
    assert "Left out: 1 null, 12 outside the loss mask. 1 line is no record." in (
        describe_findings(result)
    )
    assert lines(tables.file_table(result))[1][3:6] == [
        "7",
        "1 null; 12 outside the loss mask",
        "1",
    ]


def test_the_findings_end_with_what_a_replay_does_not_say() -> None:
    for result in (made_result(), empty()):
        assert describe_findings(result)[-1] == (
            "A replay says what a rule would have masked on tokens made under another rule, "
            "not what a run under it would do."
        )


def eps_curve(*counts: int, high: tuple[float, ...] = ()) -> ReplayResult:
    thresholds = (0.1, 0.2, 0.30000001192092896, 0.4)
    low = (0.0,) * len(high)
    return empty(num_tokens=1000, curves=(Curve("ipo", "eps", {}, thresholds, counts, low, high),))


def test_the_smallest_threshold_within_the_share_is_recommended_with_reasons() -> None:
    result = eps_curve(20, 2, 1, 0, high=(0.03, 0.004, 0.002, 0.001))
    [found] = recommend(result, max_share=0.002, moved=0.3)
    assert found.threshold == 0.2
    assert found.reasons == (
        "It masks 2 tokens, 0.200 %: at most 0.2 %.",
        "The next smaller threshold counted, 0.1, masks 2.00 %.",
        "It masks every token whose probability moved by more than 0.3, as it is no larger than "
        "that.",
        "Over sequences, the share's interval reaches 0.400 %.",
    )


def test_a_threshold_that_equals_the_change_as_float32_masks_its_tail() -> None:
    [found] = recommend(eps_curve(20, 20, 1, 0), max_share=0.001, moved=0.3)
    assert found.threshold == 0.30000001192092896


def test_no_threshold_is_recommended_where_the_conditions_contradict_each_other() -> None:
    [found] = recommend(eps_curve(20, 20, 20, 1), max_share=0.001, moved=0.3)
    assert found.threshold is None
    assert found.reasons == (
        "The smallest counted threshold that masks at most 0.1 % is 0.4 (0.100 %): it keeps tokens "
        "whose probability moved by more than 0.3.",
        "At 0.3, the largest one that masks that tail, 2.00 % are masked.",
    )


@pytest.mark.parametrize(
    ("moved", "last"),
    [
        (0.35, "At 0.3, the largest one that masks that tail, 2.00 % are masked."),
        (0.05, "No threshold as small as 0.05 was counted: let the curve begin there."),
    ],
)
def test_of_a_change_that_is_no_threshold_no_more_is_said_than_was_counted(
    moved: float, last: str
) -> None:
    [found] = recommend(eps_curve(20, 20, 20, 1), max_share=0.001, moved=moved)
    assert found.reasons == (
        "The smallest counted threshold that masks at most 0.1 % is 0.4 (0.100 %): it may keep "
        f"tokens whose probability moved by more than {moved}.",
        last,
    )


def test_nothing_is_recommended_from_identical_columns() -> None:
    assert recommend(dataclasses.replace(eps_curve(0, 0, 0, 0), num_identical=1000)) == ()


def test_no_threshold_is_recommended_where_all_mask_too_much() -> None:
    [found] = recommend(eps_curve(20, 20, 20, 20), max_share=0.001, moved=0.05)
    assert found.threshold is None
    assert found.reasons == (
        "Every counted threshold masks more than 0.1 %; the largest, 0.4, masks 2.00 %.",
    )


def test_pandas_tables_hold_every_count_as_an_integer() -> None:
    result = made_result()
    found = build_tables(result)
    assert found.rules["num_masked"].tolist() == [rule.num_masked for rule in result.rules]
    assert str(found.rules["num_masked"].dtype) == "Int64"
    assert found.curves["num_masked"].tolist() == list(result.curves[0].num_masked)
    assert found.curves["threshold"].tolist() == list(result.curves[0].thresholds)
    assert len(found.agreements) == 15
    assert found.agreements["first"][0] == "ipo:eps=0.3"
    assert len(found.buckets) == len(result.buckets) * len(result.rules)
    assert str(found.examples["is_masked"].dtype) == "boolean"
    assert found.files["num_excluded"].tolist() == [0, 13]


def test_an_empty_result_has_all_columns_and_a_csv_with_a_heading() -> None:
    found = build_tables(empty())
    assert to_csv(found.buckets) == "low,high,num_tokens,mean_kl,rule,num_masked,fraction\n"
    assert list(found.steps.columns)[:2] == ["first", "last"]
