"""What every reader of token records gives: chunks of tokens that count, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CHUNK_TOKENS = 1 << 18
"""About how many tokens a chunk holds: small enough for the processor's cache."""


@dataclass(frozen=True)
class TokenChunk:
    """Tokens inside the loss mask, with finite and possible log-probabilities; all [num_tokens].

    A column that a source lacks is None, in all of its chunks.

    Attributes:
        trainer_logprobs, inference_logprobs: log p under the policy that is trained, log q under
            the engine that sampled; nats, at most 0.
        advantages: in units of reward.
        sequences: number of the token's sequence; the tokens of a sequence stand together, may go
            on in the next chunk, and no other sequence of the source has its number.
        steps: trainer step that the token was trained in.
        stored_masks: whether the trainer's own loss masked the token; only where the records say.
    """

    trainer_logprobs: Float32Array
    inference_logprobs: Float32Array
    advantages: Float32Array | None = None
    sequences: IntArray | None = None
    steps: IntArray | None = None
    stored_masks: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.trainer_logprobs)


@dataclass(frozen=True)
class TokenFile:
    """What was read from one file; counts of rows are of tokens.

    Attributes:
        excluded: reason -> tokens that don't count (`outside the loss mask`, `null`, `not finite`,
            `impossible`, `superseded by a resume`, ...).
        num_bad_lines: lines that are no record; a torn last line is one.
        problem: why there is nothing at all from this file; empty otherwise.
    """

    path: str
    format: str
    size_bytes: int
    num_tokens: int
    excluded: Mapping[str, int] = field(default_factory=dict)
    num_bad_lines: int = 0
    problem: str = ""


@dataclass(frozen=True)
class TokenColumns:
    """Which optional columns a source has."""

    advantages: bool = False
    sequences: bool = False
    steps: bool = False
    stored_masks: bool = False


class TokenSource(Protocol):
    """Token records of one run, of several, or of loose files, read once from the start.

    Attributes:
        label: what the user named it by.
        columns: what the chunks hold.
        decimals: decimal places that log-probabilities were rounded to before they were stored;
            None where they were not.
        loss: resolved loss of the run that made the tokens, with its knobs; None where nothing
            says, or runs of different losses stand together.
        num_tokens: about how many there are, for a progress bar; None where that isn't known
            before reading.
    """

    label: str
    columns: TokenColumns
    decimals: int | None
    loss: Mapping[str, Any] | None
    num_tokens: int | None

    def chunks(self) -> Iterator[TokenChunk]:
        """Yield all tokens that count, in the order of the files. Memory doesn't grow with them."""
        ...

    def files(self) -> tuple[TokenFile, ...]:
        """Return what was read so far, file by file; complete once `chunks` is exhausted."""
        ...

    def problems(self) -> tuple[str, ...]:
        """Return what is odd about the source, one sentence each; complete after `chunks`."""
        ...
