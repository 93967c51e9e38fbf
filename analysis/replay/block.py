"""Tokens cut to a size that the processor's cache holds, with what rules compute of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from analysis.replay.tokens import BoolArray, Float32Array, IntArray, TokenChunk
from harness.losses import quantities

BLOCK_TOKENS = 1 << 15
"""Tokens that are worked on at once, unless one sequence has more and a rule needs all of it."""

SequenceFunction = Callable[..., Any]


@dataclass(frozen=True)
class Runs:
    """The stretches of equal sequence number of a block.

    Attributes:
        numbers: sequence of each stretch, [num_runs].
        starts: its first token, [num_runs]; `lengths` its tokens.
        local: which stretch each token is of, [num_tokens].
    """

    numbers: IntArray
    starts: IntArray
    lengths: IntArray
    local: IntArray

    def __len__(self) -> int:
        return len(self.numbers)


class Block:
    """Some tokens, and each quantity of them computed once, when it is first asked for.

    Quantities are float32, [num_tokens].
    """

    def __init__(self, chunk: TokenChunk) -> None:
        self.chunk = chunk
        self.trainer = chunk.trainer_logprobs
        self.inference = chunk.inference_logprobs
        self._quantities: dict[tuple[Any, ...], Float32Array] = {}

    def __len__(self) -> int:
        return len(self.trainer)

    @property
    def advantages(self) -> Float32Array:
        if self.chunk.advantages is None:
            raise ValueError("the tokens have no advantages")
        return self.chunk.advantages

    def quantity(self, name: str, **knobs: float) -> Float32Array:
        """Return `QUANTITIES[name]` of each token."""
        key = (name, *knobs.items())
        if key not in self._quantities:
            self._quantities[key] = QUANTITIES[name](self, **knobs)
        return self._quantities[key]

    @cached_property
    def probabilities(self) -> Float32Array:
        """q, the probability under the engine."""
        return np.exp(self.inference)

    @cached_property
    def trainer_probabilities(self) -> Float32Array:
        return np.exp(self.trainer)

    @cached_property
    def runs(self) -> Runs:
        """Raises ValueError where tokens have no sequences."""
        sequences = self.chunk.sequences
        if sequences is None:
            raise ValueError("the tokens have no sequences")
        changes = np.flatnonzero(sequences[1:] != sequences[:-1]) + 1
        starts = np.concatenate([[0], changes]) if len(sequences) else changes
        lengths = np.diff(starts, append=len(sequences))
        local = np.repeat(np.arange(len(starts)), lengths)
        return Runs(sequences[starts], starts, lengths, local)

    def over_sequences(self, function: SequenceFunction, *columns: Any) -> Any:
        """Return `function` of whole sequences, spread over their tokens, [num_tokens].

        It is given `columns`, [num_sequences, length], and a loss mask of the same shape, as the
        rules of `harness.losses.masks` want them, and answers in that shape or [..., 1]. Each
        sequence is padded to the next power of two of its own length, so that what floats sum up
        to doesn't depend on the sequences beside it.
        """
        runs = self.runs
        padded = 1 << np.ceil(np.log2(runs.lengths)).astype(np.int64)
        result = None
        for length in np.unique(padded):
            chosen = np.flatnonzero(padded == length)
            place = np.arange(length)
            is_token = place < runs.lengths[chosen, None]
            at = np.where(is_token, runs.starts[chosen, None] + place, runs.starts[chosen, None])
            found = function(*(column[at] for column in columns), is_token)
            if result is None:
                result = np.empty(len(self), found.dtype)
            result[at[is_token]] = np.broadcast_to(found, at.shape)[is_token]
        return np.empty(0, np.float32) if result is None else result


def _moved_kl(block: Block) -> Float32Array:
    """`dppo_kl` of tokens whose probability moved with the advantage, else -inf."""
    log_ratio = block.quantity("log_ratio")
    moved = np.where(block.advantages > 0, log_ratio > 0, log_ratio < 0)
    divergence = quantities.dppo_kl(block.trainer, block.inference)
    return np.where(moved, divergence, np.float32(-np.inf))


QUANTITIES: dict[str, Callable[..., Any]] = {
    "log_ratio": lambda block: block.trainer - block.inference,
    "prob_delta": lambda block: quantities.prob_delta(block.trainer, block.inference),
    "abs_delta": lambda block: abs(block.quantity("prob_delta")),
    "binary_kl": lambda block, clamp: quantities.larger_binary_kl(
        block.trainer, block.inference, clamp=clamp
    ),
    "moved_kl": _moved_kl,
    "k1": lambda block: quantities.mismatch_k1(block.trainer, block.inference),
    "k2": lambda block: quantities.mismatch_k2(block.trainer, block.inference),
    "k3": lambda block: quantities.mismatch_k3(block.trainer, block.inference),
    "sum_log_ratio": lambda block: block.over_sequences(
        quantities.sequence_log_ratio_sum, block.trainer, block.inference
    ),
    "mean_log_ratio": lambda block: block.over_sequences(
        quantities.sequence_log_ratio, block.trainer, block.inference
    ),
}
"""What rules compare with their thresholds, by the functions that training computes it with."""


def cut(chunks: Iterable[TokenChunk], *, is_whole: bool) -> Iterator[TokenChunk]:
    """Yield the tokens of `chunks` in blocks of about `BLOCK_TOKENS`, in order.

    Where `is_whole`, no block ends within a sequence; memory then grows with the longest sequence.
    """
    if not is_whole:
        for chunk in chunks:
            for start in range(0, len(chunk), BLOCK_TOKENS):
                yield part(chunk, start, start + BLOCK_TOKENS)
        return
    waiting: list[TokenChunk] = []
    for chunk in chunks:
        sequences = chunk.sequences
        if sequences is None:
            raise ValueError("the tokens have no sequences")
        if not len(chunk):
            continue
        last = int(np.flatnonzero(sequences != sequences[-1])[-1:].sum()) + 1
        goes_on = bool((sequences == sequences[-1]).all())
        if goes_on and waiting and _last_sequence(waiting) == sequences[-1]:
            waiting.append(chunk)
            continue
        if goes_on:
            last = 0
        yield from _whole_blocks(_joined([*waiting, part(chunk, 0, last)]))
        waiting = [part(chunk, last, len(chunk))]
    if waiting:
        yield from _whole_blocks(_joined(waiting))


def part(chunk: TokenChunk, start: int, end: int) -> TokenChunk:
    """Return the tokens from `start` up to `end`, as views."""
    columns: dict[str, Any] = {}
    for field in fields(chunk):
        column = getattr(chunk, field.name)
        columns[field.name] = None if column is None else column[start:end]
    return TokenChunk(**columns)


def _whole_blocks(chunk: TokenChunk) -> Iterator[TokenChunk]:
    """Yield blocks of whole sequences of a chunk that holds nothing else."""
    if not len(chunk):
        return
    sequences = chunk.sequences
    assert sequences is not None
    ends = np.append(np.flatnonzero(sequences[1:] != sequences[:-1]) + 1, len(chunk))
    start = 0
    while start < len(chunk):
        place = int(np.searchsorted(ends, start + BLOCK_TOKENS, side="right")) - 1
        if place < 0 or ends[place] <= start:
            place += 1
        yield part(chunk, start, int(ends[place]))
        start = int(ends[place])


def _last_sequence(chunks: list[TokenChunk]) -> int:
    sequences = chunks[-1].sequences
    assert sequences is not None
    return int(sequences[-1])


def _joined(chunks: list[TokenChunk]) -> TokenChunk:
    chunks = [chunk for chunk in chunks if len(chunk)] or chunks[:1]
    if len(chunks) == 1:
        return chunks[0]
    columns: dict[str, Any] = {}
    for field in fields(TokenChunk):
        parts = [getattr(chunk, field.name) for chunk in chunks]
        columns[field.name] = None if parts[0] is None else np.concatenate(parts)
    return TokenChunk(**columns)


def as_mask(block: Block, values: Any) -> BoolArray:
    """Return a rule's answer as booleans, [num_tokens]."""
    mask: BoolArray = np.broadcast_to(np.asarray(values, dtype=np.bool_), (len(block),))
    return mask
