"""Replays masks over recorded tokens: one pass over a source, exact counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from analysis.replay.block import Block, cut
from analysis.replay.counter import Counter
from analysis.replay.outcome import result_of
from analysis.replay.own_rule import OwnRule, own_rule
from analysis.replay.recommend import DEFAULT_MAX_SHARE, DEFAULT_MOVED
from analysis.replay.requests import CurveRequest
from analysis.replay.result import ReplayResult
from analysis.replay.rules import Rule
from analysis.replay.tally import Question, Tally
from analysis.replay.tokens import TokenChunk, TokenSource
from harness.errors import UsageError

SEED = 20_260_901
"""Seed of the bootstrap where none is given."""

_FREED_BYTES = 1 << 24


def replay(
    source: TokenSource,
    rules: Sequence[Rule],
    curves: Sequence[CurveRequest] = (),
    *,
    seed: int = SEED,
    window_steps: int | None = None,
    max_share: float = DEFAULT_MAX_SHARE,
    moved: float = DEFAULT_MOVED,
    progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Return what `rules` would have masked of the tokens of `source`, and what `curves` say.

    One pass; memory doesn't grow with the number of tokens, but for one entry per trainer step, and
    with the longest sequence where a rule decides on sequences. Counts are exact. It says what a
    rule would have masked on tokens made under another rule, not what a run under it would do.

    Args:
        seed: of the bootstrap over sequences.
        window_steps: trainer steps per window; None takes a round number that gives at most 20.
        max_share, moved: conditions of the recommendation (`analysis.replay.recommend`).
        progress: is told after each chunk how many tokens were counted so far.
    """
    found = tally(source, rules, curves, seed=seed, progress=progress)
    return result_of(found, window_steps=window_steps, max_share=max_share, moved=moved)


def tally(
    source: TokenSource,
    rules: Sequence[Rule],
    curves: Sequence[CurveRequest] = (),
    *,
    seed: int = SEED,
    first_sequence: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Tally:
    """Return the counts of `source`, to be merged with those of other parts of the data.

    Args:
        first_sequence: is added to the source's numbers of sequences. The bootstrap draws by
            number, so parts to be merged must not share any.
    """
    columns = source.columns
    question = Question(_unlike(rules), tuple(curves), seed, columns, source.decimals)
    own, note = _own_rule(source)
    counter = Counter(question, own)
    decided = [
        *counter.rules,
        *(one.request.at(one.request.thresholds[0]) for one in counter.curves),
    ]
    if own is not None and own.rule is not None:
        decided.append(own.rule)
    is_whole = any(rule.spec.is_sequence_rule for rule in decided)
    # glibc gives the top of its heap back once 128 KiB of it are free, and each block would fault
    # all of its pages in again, which takes most of the time. To free one large piece raises that
    # limit; elsewhere it does nothing. The piece itself is never touched.
    piece = np.empty(_FREED_BYTES, np.uint8)
    del piece
    with np.errstate(over="ignore", under="ignore"):
        for chunk in cut(_watched(source.chunks(), progress), is_whole=is_whole):
            counter.add(Block(_numbered(chunk, first_sequence)))
    counter.finish()
    return Tally(
        label=source.label,
        question=question,
        loss=source.loss,
        check=own.label if own is not None else "",
        files=source.files(),
        notes=(*source.problems(), *([note] if note else [])),
        counts=counter.counts,
        sums=counter.sums,
        max_kl=counter.max_kl,
        steps=counter.steps,
        differing=tuple(counter.differing),
    )


def _own_rule(source: TokenSource) -> tuple[OwnRule | None, str]:
    """Return the trainer's own rule, or why its stored decisions can't be checked."""
    if not source.columns.stored_masks:
        return None, ""
    if source.loss is None:
        return None, (
            "the records hold the trainer's own decisions, but no one loss is known under which "
            "they were made: they were not checked"
        )
    try:
        return own_rule(source.loss, source.columns), ""
    except UsageError as error:
        return None, f"the trainer's own decisions were not checked: {error.message}"


def _watched(
    chunks: Iterable[TokenChunk], progress: Callable[[int], None] | None
) -> Iterator[TokenChunk]:
    num_tokens = 0
    for chunk in chunks:
        yield chunk
        num_tokens += len(chunk)
        if progress is not None:
            progress(num_tokens)


def _numbered(chunk: TokenChunk, first: int) -> TokenChunk:
    if not first or chunk.sequences is None:
        return chunk
    return replace(chunk, sequences=chunk.sequences + first)


def _unlike(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return each rule once: tables name rules by their label."""
    return tuple({rule.label: rule for rule in rules}.values())
