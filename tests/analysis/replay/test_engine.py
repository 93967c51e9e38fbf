"""One pass over a source gives what plain numpy gives on all tokens at once."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest

from analysis.replay.block import Block, cut, part
from analysis.replay.edges import decide
from analysis.replay.engine import replay, tally
from analysis.replay.outcome import IDENTICAL, result_of
from analysis.replay.requests import parse_curve
from analysis.replay.result import ReplayResult
from analysis.replay.rules import RULES, make_rule, parse_rule
from analysis.replay.tally import from_json, merge
from analysis.replay.tokens import IntArray, TokenChunk, TokenFile
from harness.losses.quantities import mismatch_k3
from tests.analysis.replay.replay_tokens import MadeSource, random_tokens

ALL_RULES = [make_rule(type, {}) for type in RULES]
CURVES = [
    parse_curve("ipo:eps=0.01..1:40"),
    parse_curve("icepop:ratio_high=1.1..50,ratio_low=1/ratio_high:30"),
    parse_curve("seq_tis:max_importance_ratio=1..20:10"),
]
TOKENS = random_tokens(6000, seed=1, num_sequences=70)


def assert_near(one: float | None, other: float | None) -> None:
    """Compare sums that may have been added in another order."""
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one == pytest.approx(other, rel=1e-12)


def assert_same(one: ReplayResult, other: ReplayResult) -> None:
    """Compare everything: integers exactly, sums of floats up to the order of adding."""
    for field in fields(ReplayResult):
        if field.name not in ("rules", "buckets", "steps", "total_kl", "label", "files"):
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert_near(one.total_kl, other.total_kl)
    for a, b in zip(one.rules, other.rules, strict=True):
        means = ("masked_kl", "kept_kl", "masked_probability")
        for name in means:
            assert_near(getattr(a, name), getattr(b, name))
        cleared = dict.fromkeys(means, None)
        assert replace(a, **cleared) == replace(b, **cleared)  # type: ignore[arg-type]
    for bucket, like in zip(one.buckets, other.buckets, strict=True):
        assert_near(bucket.mean_kl, like.mean_kl)
        assert replace(bucket, mean_kl=None) == replace(like, mean_kl=None)
    for window, same in zip(one.steps, other.steps, strict=True):
        assert_near(window.mean_kl, same.mean_kl)
        assert replace(window, mean_kl=None) == replace(same, mean_kl=None)


def test_counts_are_those_of_plain_numpy_on_all_tokens() -> None:
    found = replay(MadeSource(TOKENS, chunk_tokens=777), ALL_RULES, CURVES)
    block = Block(TOKENS)
    q = np.exp(TOKENS.inference_logprobs)
    kl = mismatch_k3(TOKENS.trainer_logprobs, TOKENS.inference_logprobs).astype(np.float64)
    assert (found.num_tokens, found.num_sequences) == (6000, len(block.runs))
    assert found.total_kl == pytest.approx(kl.sum(), rel=1e-12)
    assert found.max_kl == float(kl.max())
    assert len(found.rules) == len(RULES)
    for rule, count in zip(ALL_RULES, found.rules, strict=True):
        mask = decide(rule, block)
        assert (count.label, count.num_masked) == (rule.label, int(np.count_nonzero(mask)))
        assert count.num_with_advantage == np.count_nonzero(block.advantages)
        assert count.num_masked_with_advantage == np.count_nonzero(mask & (block.advantages != 0))
        assert_near(count.masked_kl, kl[mask].mean() if mask.any() else None)
        assert_near(count.kept_kl, kl[~mask].mean())
        assert count.masked_probability == pytest.approx(q[mask].sum() / q.sum(), rel=1e-5)


def test_curves_count_what_each_threshold_masks() -> None:
    found = replay(MadeSource(TOKENS, chunk_tokens=777), [], CURVES)
    for request, curve in zip(CURVES, found.curves, strict=True):
        masks = [decide(request.at(at), Block(TOKENS)) for at in curve.thresholds]
        assert curve.num_masked == tuple(int(np.count_nonzero(mask)) for mask in masks)


def test_agreement_of_each_pair_adds_up_to_all_tokens() -> None:
    rules = ALL_RULES[:4]
    found = replay(MadeSource(TOKENS), rules, [])
    masks = {rule.label: decide(rule, Block(TOKENS)) for rule in rules}
    assert len(found.agreements) == 6
    for pair in found.agreements:
        a, b = masks[pair.first], masks[pair.second]
        assert (pair.both, pair.only_first, pair.only_second, pair.neither) == tuple(
            int(np.count_nonzero(both)) for both in (a & b, a & ~b, ~a & b, ~a & ~b)
        )


def test_buckets_and_density_hold_each_token_once() -> None:
    rule = parse_rule("ipo:eps=0.3")
    found = replay(MadeSource(TOKENS), [rule], [])
    q, p = np.exp(TOKENS.inference_logprobs), np.exp(TOKENS.trainer_logprobs)
    mask = decide(rule, Block(TOKENS))
    for bucket in found.buckets:
        low, high = np.float32(bucket.low), np.float32(bucket.high)
        inside = (q > low if bucket.low else q >= 0) & (q <= high)
        assert bucket.num_tokens == np.count_nonzero(inside)
        assert bucket.num_masked == {rule.label: np.count_nonzero(inside & mask)}
    assert sum(bucket.num_tokens for bucket in found.buckets) == 6000
    assert found.density is not None
    edges = np.linspace(0, 1, found.density.num_bins + 1)
    expected, _, _ = np.histogram2d(q, p, bins=[edges, edges])
    # A float32 on an edge of bins may fall to either side of it.
    assert np.abs(np.array(found.density.counts) - expected).sum() <= 4
    assert np.sum(found.density.counts) == 6000


def test_windows_are_of_the_asked_width_or_round_and_at_most_twenty() -> None:
    rule = parse_rule("kpop:phi=0.1")
    steps = np.arange(6000) // 60 + 100
    tokens = replace(TOKENS, steps=steps)
    found = replay(MadeSource(tokens, chunk_tokens=999), [rule], [], window_steps=30)
    assert [(one.first, one.last) for one in found.steps] == [
        (100, 129),
        (130, 159),
        (160, 189),
        (190, 199),
    ]
    mask = decide(rule, Block(tokens))
    assert [one.num_masked[rule.label] for one in found.steps] == [
        int(np.count_nonzero(mask[(steps >= one.first) & (steps <= one.last)]))
        for one in found.steps
    ]
    by_itself = replay(MadeSource(tokens), [rule], []).steps
    assert (len(by_itself), by_itself[0].last) == (20, 104)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 50, 333, 6000])
def test_where_chunks_end_changes_nothing(chunk_tokens: int) -> None:
    tokens = random_tokens(700, seed=4, num_sequences=9)
    whole = replay(MadeSource(tokens, chunk_tokens=700), ALL_RULES, CURVES)
    cut_up = replay(MadeSource(tokens, chunk_tokens=chunk_tokens), ALL_RULES, CURVES)
    assert_same(whole, cut_up)
    by_token = [rule for rule in ALL_RULES if not rule.spec.is_sequence_rule]
    assert_same(
        replay(MadeSource(tokens, chunk_tokens=700), by_token, CURVES[:2]),
        replay(MadeSource(tokens, chunk_tokens=chunk_tokens), by_token, CURVES[:2]),
    )


@pytest.mark.parametrize("num_first", [1, 20, 69])
def test_merged_parts_are_one_pass_over_all(num_first: int) -> None:
    sequences = TOKENS.sequences
    assert sequences is not None
    boundary = int(np.searchsorted(sequences, num_first))
    parts = []
    for start, end in ((0, boundary), (boundary, len(TOKENS))):
        tokens = part(TOKENS, start, end)
        first = int(sequences[start])
        source = MadeSource(
            replace(tokens, sequences=sequences[start:end] - first), chunk_tokens=100
        )
        counted = tally(source, ALL_RULES, CURVES, first_sequence=first)
        parts.append(from_json(counted.to_json()))
    assert_same(result_of(merge(*parts)), replay(MadeSource(TOKENS), ALL_RULES, CURVES))
    assert_same(result_of(merge(*parts[::-1])), replay(MadeSource(TOKENS), ALL_RULES, CURVES))


def test_a_tally_survives_json_and_refuses_to_merge_with_another_question() -> None:
    one = tally(MadeSource(TokenChunk(TOKENS.trainer_logprobs, TOKENS.inference_logprobs)), [], [])
    again = from_json(one.to_json())
    assert again.to_json() == one.to_json()
    assert result_of(merge(one, again)).num_tokens == 12_000
    other = tally(MadeSource(TOKENS), [parse_rule("ipo")], [])
    with pytest.raises(ValueError, match="tallies of different rules don't merge: made and made"):
        merge(one, other)
    with pytest.raises(ValueError, match="tallies of different columns"):
        merge(one, tally(MadeSource(TOKENS), [], []))
    with pytest.raises(ValueError, match="not a tally of version 1"):
        from_json('{"version": 0}')


def test_merged_parts_of_different_rounding_name_the_coarsest() -> None:
    parts = [
        tally(MadeSource(TOKENS, decimals=decimals), [parse_rule("ipo:eps=0.1")], [])
        for decimals in (None, 4, 2)
    ]
    whole = result_of(merge(merge(parts[0], parts[1]), parts[2]))
    assert whole.decimals == 2
    assert whole.rules[0].num_undecidable == sum(int(one.counts["undecidable"][0]) for one in parts)


def test_a_rule_without_its_columns_is_refused_and_counted_nowhere() -> None:
    source = MadeSource(TokenChunk(TOKENS.trainer_logprobs, TOKENS.inference_logprobs))
    found = replay(source, [parse_rule("ipo"), parse_rule("ppo"), parse_rule("gspo")], CURVES)
    ipo, ppo, gspo = found.rules
    assert (ipo.refused, ipo.num_tokens, ipo.low, ipo.num_with_advantage) == ("", 6000, None, None)
    assert "column `advantages`" in ppo.refused
    assert "column `advantages`" in gspo.refused
    assert (ppo.num_tokens, ppo.fraction) == (0, None)
    assert [curve.type for curve in found.curves] == ["ipo", "icepop"]
    assert found.curves[0].low == ()
    assert [row.num_masked.keys() for row in found.buckets[:1]] == [{ipo.label: 0}.keys()]
    assert any(warning.startswith("curve seq_tis:") for warning in found.warnings)
    assert any("there are no intervals" in warning for warning in found.warnings)


def test_stored_decisions_of_the_same_loss_are_all_reproduced() -> None:
    stored = decide(parse_rule("ipo:eps=0.2"), Block(TOKENS))
    loss = {"type": "ipo", "eps": 0.2, "max_importance_ratio": 1e4, "adv_tau": 1.0}
    check = replay(MadeSource(replace(TOKENS, stored_masks=stored), loss=loss), [], []).self_check
    assert check is not None
    assert (check.rule, check.num_stored, check.num_reproduced) == ("ipo:eps=0.2", 6000, 6000)
    assert check.differing == ()


def test_stored_decisions_that_differ_are_shown_token_by_token() -> None:
    stored = decide(parse_rule("ipo:eps=0.2"), Block(TOKENS)).copy()
    stored[100:150] ^= True
    loss = {"type": "ipo", "eps": 0.2}
    check = replay(MadeSource(replace(TOKENS, stored_masks=stored), loss=loss), [], []).self_check
    assert check is not None
    assert (check.num_reproduced, len(check.differing)) == (5950, 20)
    token, sequences = check.differing[0], TOKENS.sequences
    assert sequences is not None
    assert (token.sequence, token.stored) == (int(sequences[100]), bool(stored[100]))
    assert token.trainer_logprob == float(TOKENS.trainer_logprobs[100])


def test_decisions_of_sequence_rules_are_checked_on_whole_sequences() -> None:
    stored = decide(make_rule("gspo", {}), Block(TOKENS))
    loss = {"type": "gspo", "ratio_low": 0.9997, "ratio_high": 1.0004}
    source = MadeSource(replace(TOKENS, stored_masks=stored), chunk_tokens=11, loss=loss)
    check = replay(source, [], []).self_check
    assert check is not None
    assert check.num_reproduced == 6000


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (None, "no one loss is known under which"),
        ({"type": "default"}, "there is no mask rule for loss type `default`"),
        ({"type": "ipo"}, "the record of loss `ipo` doesn't say its knob `eps`"),
    ],
)
def test_stored_decisions_of_an_unknown_loss_are_not_checked(
    loss: dict[str, object] | None, reason: str
) -> None:
    stored = np.zeros(6000, np.bool_)
    found = replay(MadeSource(replace(TOKENS, stored_masks=stored), loss=loss), [], [])
    assert found.self_check is None
    assert any(reason in warning for warning in found.warnings)


def test_a_loss_that_only_weighs_masks_nothing() -> None:
    stored = np.zeros(6000, np.bool_)
    source = MadeSource(replace(TOKENS, stored_masks=stored), loss={"type": "cispo"})
    check = replay(source, [], []).self_check
    assert check is not None
    assert (check.rule, check.num_reproduced) == ("cispo", 6000)


def test_the_pages_examples_are_decided_by_each_rule() -> None:
    rules = [parse_rule("ipo:eps=0.3"), parse_rule("icepop"), parse_rule("icepop:ratio_low=0.5")]
    found = replay(MadeSource(TOKENS), [*rules, parse_rule("ppo")], [])
    ipo, band, narrow, ppo = (rule.label for rule in found.rules)
    by_pair = {(one.inference, one.trainer): one.decisions for one in found.examples}
    assert by_pair[0.01, 0.06] == {ipo: False, band: True, narrow: True, ppo: None}
    assert by_pair[0.90, 0.20] == {ipo: True, band: False, narrow: True, ppo: None}


def test_identical_columns_are_warned_of() -> None:
    same = TokenChunk(TOKENS.trainer_logprobs, TOKENS.trainer_logprobs)
    found = replay(MadeSource(same), [parse_rule("ipo")], [])
    assert found.num_identical == 6000
    assert IDENTICAL in found.warnings
    assert IDENTICAL not in replay(MadeSource(TOKENS), [], []).warnings


def test_no_token_at_all_is_a_result_with_a_warning() -> None:
    empty = TokenChunk(np.zeros(0, np.float32), np.zeros(0, np.float32))
    found = replay(MadeSource(empty), ALL_RULES, CURVES)
    assert (found.num_tokens, found.max_kl, found.rules[0].fraction) == (0, None, None)
    assert found.warnings[0] == "there is no token that counts"
    with_columns = replay(MadeSource(random_tokens(0)), ALL_RULES, CURVES)
    assert (with_columns.num_sequences, with_columns.rules[0].low) == (0, None)


def test_one_token_has_counts_and_no_interval() -> None:
    found = replay(MadeSource(random_tokens(1)), ALL_RULES, CURVES)
    assert (found.num_tokens, found.num_sequences, found.rules[0].low) == (1, 1, None)
    assert found.curves[0].low == ()


def test_ratios_beyond_floats_are_counted_and_keep_the_other_sums() -> None:
    trainer = np.array([0.0, -0.1, -90.0], np.float32)
    inference = np.array([-90.0, -0.2, 0.0], np.float32)
    found = replay(MadeSource(TokenChunk(trainer, inference)), [parse_rule("icepop")], [])
    [rule] = found.rules
    assert rule.num_masked == 2
    assert rule.kept_kl == pytest.approx(math.expm1(0.1) - 0.1, rel=1e-4)
    assert found.max_kl == pytest.approx(1e30, rel=1e-6)


def test_files_problems_and_exclusions_are_handed_on() -> None:
    files = tuple(
        TokenFile(name, "parquet", 10, 3, {"null": 1, "not finite": 2}) for name in ("a", "b")
    )
    source = MadeSource(TOKENS, named_files=files, named_problems=("step 3 is not complete",))
    found = replay(source, [], [])
    assert found.files == files
    assert found.excluded == {"null": 2, "not finite": 4}
    assert "step 3 is not complete" in found.warnings


def test_progress_counts_tokens_and_equal_rules_are_counted_once() -> None:
    told: list[int] = []
    twice = [parse_rule("ipo"), parse_rule("ipo:eps=0.3")]
    found = replay(MadeSource(TOKENS, chunk_tokens=2500), twice, [], progress=told.append)
    assert told == [2500, 5000, 6000]
    assert len(found.rules) == 1


def test_a_recommendation_comes_with_a_curve_of_eps() -> None:
    found = replay(MadeSource(TOKENS), [], CURVES[:1], max_share=0.05, moved=0.5)
    [one] = found.recommendations
    assert one.threshold is not None
    assert one.threshold <= 0.5
    shares = dict(zip(found.curves[0].thresholds, found.curves[0].num_masked, strict=True))
    assert shares[one.threshold] / 6000 <= 0.05


def test_blocks_of_whole_sequences_hold_them_whole() -> None:
    source = MadeSource(random_tokens(200_000, seed=8, num_sequences=30), chunk_tokens=9_999)
    seen: set[int] = set()
    num_tokens = 0
    for chunk in cut(source.chunks(), is_whole=True):
        assert chunk.sequences is not None
        here = set(np.unique(chunk.sequences).tolist())
        assert not here & seen
        seen |= here
        num_tokens += len(chunk)
    assert num_tokens == 200_000


def test_memory_does_not_grow_with_the_tokens() -> None:
    assert TOKENS.sequences is not None
    numbers: IntArray = TOKENS.sequences

    class Repeated(MadeSource):
        """Hands the same tokens out again and again, as other sequences."""

        num_times = 0

        def chunks(self) -> Iterator[TokenChunk]:
            for turn in range(self.num_times):
                yield replace(TOKENS, sequences=numbers + 1000 * turn)

    peaks = []
    for num_times in (5, 5, 40):
        source = Repeated(TOKENS)
        source.num_times = num_times
        tracemalloc.start()
        replay(source, ALL_RULES, CURVES)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] * 1.5
