"""What a power table promises, held against the report, simulations and an own enumeration."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from analysis.load import load_sweep
from analysis.power import (
    MAX_SEEDS,
    BaseShare,
    Design,
    Spread,
    collapse_power,
    metric_power,
    other_share,
)
from analysis.power_picture import plot_power
from analysis.power_report import (
    Answer,
    cells,
    columns,
    foot_lines,
    format_difference,
    head_lines,
    power_record,
)
from analysis.power_source import Cost, read_cost, read_share, read_spread, summarize_earlier
from analysis.results import analyze
from analysis.runs import Sweep
from analysis.statistics import detectable, paired_t, welch_t
from harness.errors import UsageError
from harness.records.files import to_json
from harness.records.model import AnalysisSpec
from tests.analysis.conftest import SPEC, Behaviour, MakeSweep

METRICS = ("solve_rate", "mismatch_kl")
PAIRED = Design(2, METRICS, "seed", 0.05)
UNPAIRED = Design(2, METRICS, "none", 0.05)
ARM_LEVELS = (0.52, 0.61, 0.58, 0.66, 0.55, 0.49)


def at(levels: tuple[float, ...], **more: int) -> Callable[[int], Behaviour]:
    return lambda seed: Behaviour(level=levels[seed], **more)  # type: ignore[arg-type]


def test_the_family_and_its_strictest_level_are_those_of_the_report(
    sweep_maker: MakeSweep,
) -> None:
    arms = {name: at(ARM_LEVELS) for name in ("none", "ipo", "icepop")}
    results = analyze(load_sweep(sweep_maker(arms, seeds=range(4))))
    design = Design(3, METRICS, "seed", 0.05)
    assert design.family == len(results.comparisons) == 8
    assert design.levels == (0.05, 0.05 / 8)


def test_the_row_of_a_sweep_s_own_seeds_is_the_mde_of_its_report(sweep_maker: MakeSweep) -> None:
    sweep = load_sweep(
        sweep_maker({"none": at(ARM_LEVELS), "ipo": at(ARM_LEVELS[::-1])}, seeds=range(6))
    )
    found = {item.name: item for item in analyze(sweep).comparisons}
    for name in METRICS:
        spread = read_spread([summarize_earlier(sweep)], name, PAIRED, SPEC)
        assert (spread.df, spread.source) == (5, "differences of equal seeds of synthetic_stand_in")
        [row] = metric_power(PAIRED, name, spread, [6], None).rows
        item = found[name]
        assert item.mde is not None
        seen = row.found[1]
        assert (seen.shift, seen.low, seen.high) == pytest.approx(
            (item.mde, item.mde_low, item.mde_high), rel=1e-9
        )


def test_the_row_of_shares_is_the_mde_of_the_report(sweep_maker: MakeSweep) -> None:
    collapsing = [Behaviour(collapses_at=60) if seed < 2 else Behaviour() for seed in range(8)]
    root = sweep_maker({"none": lambda seed: collapsing[seed], "ipo": Behaviour()}, seeds=range(8))
    sweep = load_sweep(root)
    [item] = [item for item in analyze(sweep).comparisons if item.name == "collapsed"]
    base = read_share([summarize_earlier(sweep)], "none", 0.05)
    assert base is not None
    assert (base.share, base.source) == (0.25, "2 of 8 runs of none of synthetic_stand_in")
    [row] = collapse_power(PAIRED, base, [8], None).rows
    seen = row.found[1]
    assert (seen.shift, seen.low, seen.high) == (item.mde, item.mde_low, item.mde_high)


@pytest.mark.parametrize("power", [0.8, 0.9])
def test_equal_spread_gives_the_same_difference_as_the_report_s_test(power: float) -> None:
    values = [0.1, 0.4, 0.2, 0.5]
    sd = float(np.std(values, ddof=1))
    paired, welch = paired_t(values, 0.05), welch_t(values, [v + 1 for v in values], 0.05)
    for design, test in ((PAIRED, paired), (UNPAIRED, welch)):
        [row] = metric_power(design, "solve_rate", Spread(sd, None), [4], None).rows
        for found, level in zip(row.found, design.levels, strict=True):
            assert found.shift == pytest.approx(detectable(test, level, level=0.95).shift)
            assert found.low == found.high == found.shift
    more = Design(2, METRICS, "seed", 0.05, power)
    [row] = metric_power(more, "solve_rate", Spread(1.0, None), [5], None).rows
    draws = np.random.default_rng(3).normal(row.found[0].shift, 1.0, size=(20_000, 5))
    p = stats.ttest_1samp(draws, 0.0, axis=1).pvalue
    assert np.mean(p < 0.05) == pytest.approx(power, abs=0.0115)  # 4 standard errors


def test_welch_finds_the_stated_ratio_with_the_stated_power() -> None:
    [row] = metric_power(UNPAIRED, "mismatch_kl", Spread(0.4, None), [6], None).rows
    generator = np.random.default_rng(11)
    logs = generator.normal(0.0, 0.4, size=(2, 6, 20_000))
    logs[0] += math.log(row.found[1].shift)
    p = stats.ttest_ind(logs[0], logs[1], equal_var=False).pvalue
    assert np.mean(p < UNPAIRED.levels[1]) == pytest.approx(0.8, abs=0.0115)


def fisher_by_fractions(k_arm: int, k_base: int, n: int) -> Fraction:
    """Return the two-sided p by adding up the tables that are as rare, in whole numbers."""
    total = k_arm + k_base
    ways = {
        k: math.comb(n, k) * math.comb(n, total - k)
        for k in range(max(0, total - n), min(n, total) + 1)
    }
    rare = sum(number for number in ways.values() if number <= ways[k_arm])
    return Fraction(rare, math.comb(2 * n, total))


def power_by_fractions(n: int, arm: float, base: float, alpha: float) -> float:
    def chance(k: int, p: float) -> float:
        return math.comb(n, k) * p**k * (1 - p) ** (n - k)

    return sum(
        chance(a, arm) * chance(b, base)
        for a in range(n + 1)
        for b in range(n + 1)
        if fisher_by_fractions(a, b, n) < alpha
    )


@pytest.mark.parametrize(("n", "share"), [(5, 0.0), (8, 0.25), (12, 0.9)])
def test_shares_are_found_with_the_power_of_an_own_enumeration(n: int, share: float) -> None:
    base = BaseShare(share, share, share)
    [row] = collapse_power(UNPAIRED, base, [n], None).rows
    for found, level in zip(row.found, UNPAIRED.levels, strict=True):
        if not math.isfinite(found.shift):
            furthest = 1.0 if share <= 0.5 else 0.0
            assert power_by_fractions(n, furthest, share, level) < 0.8
            continue
        side = 1 if share <= 0.5 else -1
        assert power_by_fractions(n, share + side * found.shift, share, level) >= 0.8
        assert power_by_fractions(n, share + side * (found.shift - 0.001), share, level) < 0.8


def test_needed_seeds_are_the_fewest_that_find_the_difference() -> None:
    for design in (PAIRED, UNPAIRED):
        table = metric_power(design, "solve_rate", Spread(0.1, None), range(2, 60), 0.1)
        for place, needed in enumerate(table.needed):
            enough = [row.n for row in table.rows if row.found[place].shift <= 0.1 and row.n >= 3]
            assert needed.n == needed.low == needed.high == enough[0]


def test_the_interval_of_needed_seeds_is_that_of_the_noise() -> None:
    # chi2(0.025, 5) = 0.831212 and chi2(0.975, 5) = 12.832502 (tables).
    estimated = metric_power(PAIRED, "mismatch_kl", Spread(0.5, 5), [4], 2.0)
    for place, needed in enumerate(estimated.needed):
        for end, quantile in ((needed.low, 12.832502), (needed.high, 0.831212)):
            sd = 0.5 * math.sqrt(5 / quantile)
            known = metric_power(PAIRED, "mismatch_kl", Spread(sd, None), [4], 2.0)
            assert end == known.needed[place].n
    assert metric_power(PAIRED, "mismatch_kl", Spread(0.5, 5), [4], 0.5).needed == estimated.needed


def test_a_difference_beyond_all_seeds_is_said_to_be_so() -> None:
    found = metric_power(PAIRED, "solve_rate", Spread(1.0, None), [3], 1e-3)
    assert [needed.n for needed in found.needed] == [None, None]
    answer = Answer("s", "none", 3, PAIRED, (found,))
    assert foot_lines(answer)[0] == (
        "a difference of 0.00100 in solve rate needs: more than 10,000 seeds per arm at 0.05,"
        " more than 10,000 seeds per arm at 0.0125"
    )
    assert MAX_SEEDS == 10_000


def test_needed_seeds_of_shares_have_the_power_and_one_less_has_not() -> None:
    base = BaseShare(0.25, 0.25, 0.25)
    table = collapse_power(UNPAIRED, base, [4], 0.5)
    for needed, level in zip(table.needed, UNPAIRED.levels, strict=True):
        assert needed.n is not None
        assert power_by_fractions(needed.n, 0.75, 0.25, level) >= 0.8
        assert power_by_fractions(needed.n - 1, 0.75, 0.25, level) < 0.8


@pytest.mark.parametrize(
    ("share", "difference", "other"),
    [(0.0, 1.0, 1.0), (0.5, 0.5, 1.0), (0.75, 0.5, 0.25), (0.3, 0.8, None), (0.7, 0.8, None)],
)
def test_shares_differ_upwards_from_a_half_and_downwards_above(
    share: float, difference: float, other: float | None
) -> None:
    assert other_share(share, difference) == other


def test_so_few_seeds_decide_nothing_whatever_comes_out() -> None:
    # All against none has p = 2 / C(2n, n): 1/10, 1/35, 1/126 for 3, 4, 5 per arm.
    shares = collapse_power(UNPAIRED, BaseShare(0.0, 0.0, 0.0), [2, 3, 4, 5], None).rows
    assert [row.can_decide for row in shares] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]
    means = metric_power(UNPAIRED, "solve_rate", Spread(0.1, None), [2, 3], None).rows
    assert [row.can_decide for row in means] == [(False, False), (True, True)]
    answer = Answer(
        "s",
        "none",
        3,
        UNPAIRED,
        (collapse_power(UNPAIRED, BaseShare(0.0, 0.0, 0.0), [3, 4], None),),
    )
    assert [row for _, row in cells(answer)] == [
        ["3", "6", "too few", "too few"],
        ["4", "8", "0.95", "too few"],
    ]
    assert "shares need 4 at 0.05 and 5 at 0.0125" in foot_lines(answer)[0]


def spread_of(
    sweep: Path | Sweep, name: str = "solve_rate", design: Design = UNPAIRED
) -> tuple[float, int | None, str]:
    loaded = load_sweep(sweep) if isinstance(sweep, Path) else sweep
    found = read_spread([summarize_earlier(loaded)], name, design, SPEC)
    return found.sd, found.df, found.source


def test_collapsed_runs_are_left_out_of_the_noise_and_counted(sweep_maker: MakeSweep) -> None:
    def none(seed: int) -> Behaviour:
        return Behaviour(collapses_at=60 if seed == 4 else None, level=ARM_LEVELS[seed])

    sd, df, source = spread_of(sweep_maker({"none": none, "ipo": Behaviour()}, seeds=range(5)))
    assert (df, source) == (3 + 4, "seeds of an arm of synthetic_stand_in without 1 that collapsed")
    assert 0 < sd < 0.1


def test_an_explosion_splits_mismatch_kl_unless_every_run_of_the_arm_explodes(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker(
        {
            "none": lambda seed: Behaviour(explodes_at=40 if seed == 0 else None),
            "ipo": Behaviour(explodes_at=40),
        },
        seeds=range(4),
    )
    sd, df, source = spread_of(root, "mismatch_kl")
    assert (df, source) == (2 + 3, "seeds of an arm of synthetic_stand_in without 1 that exploded")
    assert sd < 0.3  # with the exploded one it would be that of a factor of 200
    assert spread_of(root)[1:] == (6, "seeds of an arm of synthetic_stand_in")


def test_unpaired_runs_tell_a_paired_test_the_noise_of_unrelated_runs(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker(
        {"none": at(ARM_LEVELS), "ipo": at(ARM_LEVELS)}, seeds=range(6), pairing="none"
    )
    within, df, _ = spread_of(root)
    sd, paired_df, source = spread_of(root, design=PAIRED)
    assert sd == pytest.approx(within * math.sqrt(2))
    assert paired_df == df
    assert source.startswith("differences, taken as those of unrelated seeds of an arm, of")


def test_runs_that_tell_nothing_are_refused_by_one_line(sweep_maker: MakeSweep) -> None:
    alone = load_sweep(sweep_maker({"none": Behaviour(), "ipo": Behaviour()}, seeds=[0]))
    with pytest.raises(UsageError, match="no arm has two finished runs with a value"):
        spread_of(alone)
    with pytest.raises(UsageError, match="no run of `synthetic_stand_in` logs `pass_at_k`") as seen:
        spread_of(alone, "pass_at_k")
    assert "--sd pass_at_k=X" in seen.value.hint


def test_runs_without_a_difference_tell_no_noise(sweep_maker: MakeSweep) -> None:
    # A task that every run solves: the mean is cut at 1.
    root = sweep_maker({"none": Behaviour(level=9.0), "ipo": Behaviour(level=9.0)})
    with pytest.raises(UsageError, match="equal runs came out the same"):
        spread_of(root)
    with pytest.raises(UsageError, match="equal runs came out the same"):
        spread_of(root, design=PAIRED)


def test_a_run_costs_the_median_of_the_finished_ones(sweep_maker: MakeSweep) -> None:
    # Every attempt takes 60 s: one on 2 GPUs for most runs, two of them for a resumed one.
    def ipo(seed: int) -> Behaviour:
        return Behaviour(gpus=("0", "1"), resumes_at=50 if seed == 0 else None)

    both = {"none": Behaviour(gpus=("0", "1")), "ipo": ipo}
    earlier = [summarize_earlier(load_sweep(sweep_maker(both)))]
    cost = read_cost(earlier, 3)
    assert cost is not None
    assert cost.unit == "GPU-hours"
    assert cost.per_seed == pytest.approx(3 * 2 / 60)
    assert cost.source == (
        "the median of 6 finished runs of synthetic_stand_in, which made 120 steps"
    )


def test_without_gpus_a_run_costs_hours_of_wall_time(sweep_maker: MakeSweep) -> None:
    earlier = [summarize_earlier(load_sweep(sweep_maker({"none": Behaviour()})))]
    cost = read_cost(earlier, 2)
    assert cost is not None
    assert cost.unit == "hours"
    assert cost.per_seed == pytest.approx(2 / 60)
    assert "held no GPUs" in cost.source
    assert read_cost([], 2) is None


@pytest.fixture
def answer() -> Answer:
    design = Design(3, METRICS, "seed", 0.05)
    base = BaseShare(0.25, 0.06, 0.59, "2 of 8 runs of none of old")
    seeds = (2, 3, 4, 8, 16)
    tables = (
        metric_power(design, "solve_rate", Spread(0.05, 7, "differences of old"), seeds, 0.05),
        metric_power(design, "mismatch_kl", Spread(40.0, None, "stated"), seeds, 2.0),
        collapse_power(design, base, seeds, 0.5),
    )
    return Answer("loss$es", "none", 4, design, tables, Cost(7.5, "GPU-hours", "stated"))


def test_every_line_of_the_answer(answer: Answer) -> None:
    assert head_lines(answer) == [
        "loss$es: 2 arms against none, paired t, alpha 0.05, power 0.8",
        "Holm over 8 comparisons (2 arms x 4: solve rate, mismatch KL, collapse, explosion):"
        " at the strictest 0.00625, where nothing else shows",
        "noise of solve rate: sd 0.0500 [0.0331, 0.102], df 7; differences of old",
        "noise of mismatch KL: sd of logs 40.0; stated",
        "share that collapses: 0.25 [0.06, 0.59]; 2 of 8 runs of none of old",
        "one seed of all 3 arms: 7.50 GPU-hours; stated",
    ]
    assert len(columns(answer)) == 9
    assert [row[:3] for _, row in cells(answer)][3:] == [["8", "24", "60.0"], ["16", "48", "120"]]
    assert cells(answer)[0][1][3:] == ["too few"] * 6


def test_a_difference_that_can_t_be_is_not_shown_as_a_number() -> None:
    assert format_difference("solve_rate", 1.2) == "beyond 1"
    assert format_difference("collapsed", math.inf) == "none"
    assert format_difference("mismatch_kl", math.inf) == "\N{EN DASH}"
    assert format_difference("mismatch_kl", 2.0) == "\N{MULTIPLICATION SIGN}2.00"


def test_the_record_is_json_whatever_the_numbers(answer: Answer) -> None:
    record = power_record(answer)
    assert to_json(record)
    assert [table["name"] for table in record["tables"]] == [*METRICS, "collapsed"]
    assert record["tables"][2]["rows"][0]["found"][0]["difference"] == "inf"
    assert record["tables"][0]["rows"][3]["cost"] == 60.0
    needed = record["tables"][0]["needed"][0]
    assert needed["cost"] == 7.5 * needed["seeds"]


def test_the_picture_shows_every_table_and_is_the_same_each_time(answer: Answer) -> None:
    png, svg = plot_power(answer)
    assert (png, svg) == plot_power(answer)
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.size[0] == 1382
    assert svg.startswith(b"<?xml")


def test_a_single_number_of_seeds_can_be_drawn(answer: Answer) -> None:
    spread = Spread(0.05, None)
    alone = Answer("s", "none", 3, PAIRED, (metric_power(PAIRED, "entropy", spread, [2], None),))
    assert plot_power(alone)[0]


def test_an_arm_that_the_spec_window_cuts_short_is_judged_over_its_last_steps(
    sweep_maker: MakeSweep,
) -> None:
    sweep = load_sweep(sweep_maker({"none": at(ARM_LEVELS), "ipo": at(ARM_LEVELS)}))
    earlier = [summarize_earlier(sweep)]
    whole = read_spread(earlier, "solve_rate", UNPAIRED, AnalysisSpec(last_steps=1000))
    last = read_spread(earlier, "solve_rate", UNPAIRED, AnalysisSpec(last_steps=1))
    assert whole.df == last.df == 4
    assert whole.sd != last.sd
