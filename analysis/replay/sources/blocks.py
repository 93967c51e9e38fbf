"""From what stands in a file to tokens that count: every token that doesn't has one reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.replay.tokens import BoolArray, Float32Array, IntArray

FloatArray = npt.NDArray[np.floating[Any]]
Int8Array = npt.NDArray[np.int8]

OUTSIDE = "outside the loss mask"
NULL = "null"
NOT_FINITE = "not finite"
IMPOSSIBLE = "impossible"
UNMARKED = "step without completion marker"
SUPERSEDED = "superseded by a resume"
NO_ADVANTAGE = "no advantage"
NO_STORED_MASK = "no stored decision"
NO_SEQUENCE = "no sequence"
NO_STEP = "no step"
MISFIT = "annotation that doesn't fit its trace"

ROUNDING = 1e-5
"""How far above log p = 0 (or p = 1) rounding may carry a value: some 20 float32 steps of a
log-softmax over logits of 10."""

MAX_NAMED_LINES = 8
"""Bad lines that are named, of those that are counted."""

NO_DECISION = -1
"""In `stored_masks` of a block: the records don't say."""

_MIN_DISTINCT = 8
_DECIMALS = range(2, 7)


@dataclass
class Tally:
    """What is counted while one file is read.

    Attributes:
        excluded: reason -> tokens.
        bad_lines: the first few of `num_bad_lines`, from 1.
        num_clamped: log-probabilities above 0 by rounding, which are taken as 0.
        num_tokens: tokens that count.
        problem: why there is nothing from this file.
    """

    excluded: Counter[str] = field(default_factory=Counter)
    bad_lines: list[int] = field(default_factory=list)
    num_bad_lines: int = 0
    num_clamped: int = 0
    num_tokens: int = 0
    problem: str = ""

    def exclude(self, reason: str, number: int) -> None:
        if number:
            self.excluded[reason] += number

    def bad_line(self, number: int) -> None:
        self.num_bad_lines += 1
        if len(self.bad_lines) < MAX_NAMED_LINES:
            self.bad_lines.append(number)


@dataclass(frozen=True)
class RawTokens:
    """Tokens as a file has them; all [num_tokens], a number that is null is NaN.

    Attributes:
        trainer, inference: log-probabilities, or probabilities where the reader was told so.
        nulls: tokens one of whose two values is null; None where none is.
        sequences: from 0 on within the file, growing.
        stored_masks: 1, 0 or NO_DECISION.
        lacking: reason -> tokens that lack something else that they need to count.
    """

    trainer: FloatArray
    inference: FloatArray
    nulls: BoolArray | None = None
    loss_mask: BoolArray | None = None
    advantages: FloatArray | None = None
    sequences: IntArray | None = None
    steps: IntArray | None = None
    stored_masks: Int8Array | None = None
    lacking: Mapping[str, BoolArray] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Tokens inside the loss mask with possible log-probabilities, [num_tokens].

    `advantages` may be NaN and `stored_masks` NO_DECISION: whether such tokens count depends on
    what the other files of the source have.
    """

    trainer: Float32Array
    inference: Float32Array
    advantages: Float32Array | None = None
    sequences: IntArray | None = None
    steps: IntArray | None = None
    stored_masks: Int8Array | None = None

    def __len__(self) -> int:
        return len(self.trainer)

    def apply(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Block:
        """Return the block with `change` applied to every column that is there."""
        columns: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        changed: dict[str, Any] = {
            name: one if one is None else change(one) for name, one in columns.items()
        }
        return Block(**changed)


def sift(raw: RawTokens, tally: Tally, *, probabilities: bool = False) -> Block:
    """Return the tokens of `raw` that count; the others are counted by reason in `tally`.

    A token that fails in several ways counts under the first of: outside the loss mask, null, not
    finite, impossible, what it lacks. A log-probability that rounding left above 0 is taken as 0.
    """
    trainer, inference = raw.trainer, raw.inference
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if probabilities:
            trainer, inference = _log(trainer), _log(inference)
        trainer = trainer.astype(np.float32, copy=False)
        inference = inference.astype(np.float32, copy=False)
    kept = _is_possible(trainer) & _is_possible(inference)
    if raw.loss_mask is not None:
        kept &= raw.loss_mask
    for lacks in raw.lacking.values():
        kept &= ~lacks
    block = Block(
        trainer,
        inference,
        None if raw.advantages is None else raw.advantages.astype(np.float32, copy=False),
        raw.sequences,
        raw.steps,
        raw.stored_masks,
    )
    if not kept.all():
        _count(raw, trainer, inference, tally)
        block = block.apply(lambda one: one[kept])
    return _clamp(block, tally)


def _log(probabilities: FloatArray) -> FloatArray:
    """Return log p; a value that is no probability becomes one that is no log-probability."""
    wide = probabilities.astype(np.float64)
    logs = np.log(np.where(wide < 0, 1.0, wide))
    return np.where(wide < 0, np.float64(1.0), logs)


def _is_possible(logprobs: Float32Array) -> BoolArray:
    # Comparisons with NaN are False.
    return (logprobs <= np.float32(ROUNDING)) & (logprobs > -np.inf)


def _count(raw: RawTokens, trainer: Float32Array, inference: Float32Array, tally: Tally) -> None:
    left = np.ones(len(trainer), dtype=np.bool_)
    reasons: list[tuple[str, BoolArray | None]] = [
        (OUTSIDE, None if raw.loss_mask is None else ~raw.loss_mask),
        (NULL, raw.nulls),
        (NOT_FINITE, ~(np.isfinite(trainer) & np.isfinite(inference))),
        (IMPOSSIBLE, ~(_is_possible(trainer) & _is_possible(inference))),
        *raw.lacking.items(),
    ]
    for reason, hit in reasons:
        if hit is not None:
            tally.exclude(reason, int(np.count_nonzero(left & hit)))
            left &= ~hit


def _clamp(block: Block, tally: Tally) -> Block:
    if not len(block) or max(block.trainer.max(), block.inference.max()) <= 0:
        return block
    above = np.count_nonzero(block.trainer > 0) + np.count_nonzero(block.inference > 0)
    tally.num_clamped += int(above)
    zero = np.float32(0)
    return replace(
        block,
        trainer=np.minimum(block.trainer, zero),
        inference=np.minimum(block.inference, zero),
    )


def find_decimals(blocks: list[Block]) -> int | None:
    """Return to how many decimals all log-probabilities are rounded, or None.

    None, too, where there are so few different values that it may be chance.
    """
    parts = [one for block in blocks for one in (block.trainer, block.inference)]
    if not parts:
        return None
    values = np.unique(np.concatenate(parts))
    values = values[values != 0]
    if len(values) < _MIN_DISTINCT:
        return None
    return next((number for number in _DECIMALS if is_rounded(values, number)), None)


def is_rounded(values: FloatArray, decimals: int) -> bool:
    """Whether each of the values is the float32 nearest to a number with so few decimals."""
    nearest = np.round(values.astype(np.float64), decimals).astype(np.float32)
    return bool(np.array_equal(nearest, values.astype(np.float32)))


def narrow_type(blocks: list[Block]) -> str:
    """Return the 16-bit type that all log-probabilities are numbers of; empty where none.

    Empty, too, where there are so few different values that it may be chance.
    """
    parts = [one for block in blocks for one in (block.trainer, block.inference)]
    values = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.float32)
    if len(values) < _MIN_DISTINCT:
        return ""
    # The coarser one first: near 0, its numbers are float16 numbers, too.
    if not (values.view(np.uint32) & np.uint32(0xFFFF)).any():
        return "bfloat16"
    with np.errstate(over="ignore", under="ignore"):
        is_half = np.array_equal(values.astype(np.float16).astype(np.float32), values)
    return "float16" if is_half else ""


def looks_like_probabilities(values: FloatArray) -> bool:
    """Whether all finite values lie in (0, 1]: log-probabilities never do."""
    finite = values[np.isfinite(values)]
    return bool(len(finite)) and bool(finite.min() > 0) and bool(finite.max() <= 1)
