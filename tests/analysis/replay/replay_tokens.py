"""Tokens for the tests of the replay: in memory, and adversarial ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.replay.block import part
from analysis.replay.tokens import Float32Array, TokenChunk, TokenColumns, TokenFile


@dataclass
class MadeSource:
    """A token source in memory that hands its tokens out in chunks of `chunk_tokens`."""

    chunk: TokenChunk
    chunk_tokens: int = 1000
    decimals: int | None = None
    loss: Mapping[str, Any] | None = None
    label: str = "made"
    num_tokens: int | None = None
    named_files: tuple[TokenFile, ...] = ()
    named_problems: tuple[str, ...] = ()
    columns: TokenColumns = field(init=False)

    def __post_init__(self) -> None:
        self.columns = TokenColumns(
            advantages=self.chunk.advantages is not None,
            sequences=self.chunk.sequences is not None,
            steps=self.chunk.steps is not None,
            stored_masks=self.chunk.stored_masks is not None,
        )

    def chunks(self) -> Iterator[TokenChunk]:
        for start in range(0, len(self.chunk), self.chunk_tokens):
            yield part(self.chunk, start, start + self.chunk_tokens)

    def files(self) -> tuple[TokenFile, ...]:
        return self.named_files

    def problems(self) -> tuple[str, ...]:
        return self.named_problems


def random_tokens(
    num_tokens: int, seed: int = 0, *, num_sequences: int | None = None
) -> TokenChunk:
    """Return tokens with every column; some moved far, as a mixture of experts' do."""
    generator = np.random.default_rng(seed)
    inference = -generator.exponential(0.7, num_tokens)
    noise = generator.normal(0, 0.05, num_tokens)
    noise[generator.random(num_tokens) < 0.05] *= 30
    trainer = np.minimum(inference + noise, 0)
    advantages = np.round(generator.normal(0, 1, num_tokens), 0)
    num_sequences = num_sequences or max(1, num_tokens // 50)
    ends = np.sort(generator.integers(0, num_tokens + 1, num_sequences - 1))
    sequences = np.searchsorted(ends, np.arange(num_tokens), side="right")
    return TokenChunk(
        trainer.astype(np.float32),
        inference.astype(np.float32),
        advantages.astype(np.float32),
        sequences.astype(np.int64),
        (sequences // 4).astype(np.int64),
    )


def adversarial_tokens() -> tuple[Float32Array, Float32Array]:
    """Return pairs at and beside edges: p and q near 0 and 1, equal, and log-ratios to +-90."""
    ends = [0.0, -1e-45, -1e-38, -1e-10, -6e-8, -1.2e-7, -1e-6, -1e-4, -16.0, -87.3, -90.0, -104.0]
    inner = np.log([0.999, 0.9, 0.6, 0.55, 0.5, 0.3, 0.2, 0.06, 0.05, 0.01, 1e-4, 1e-6]).tolist()
    ones = np.array([*ends, *inner], np.float32)
    trainer, inference = (grid.ravel() for grid in np.meshgrid(ones, ones))
    # Pairs whose difference of probabilities or ratio is a usual threshold, and their neighbours.
    near_trainer, near_inference = [trainer], [inference]
    q = np.linspace(0.01, 0.95, 40)
    for delta in (0.01, 0.1, 0.15, 0.3):
        near_inference.append(np.log(q).astype(np.float32))
        near_trainer.append(np.log(np.minimum(q + delta, 1)).astype(np.float32))
    for ratio in (0.2, 0.5, 0.8, 1.2, 2.0, 5.0):
        near_inference.append(np.log(q / 6).astype(np.float32))
        near_trainer.append(np.log(q / 6).astype(np.float32) + np.float32(np.log(ratio)))
    trainer, inference = np.concatenate(near_trainer), np.concatenate(near_inference)
    steps = [np.float32(0), np.float32(-np.inf), np.float32(np.inf)]
    trainer = np.concatenate([np.nextafter(trainer, to) if to else trainer for to in steps])
    inference = np.tile(inference, len(steps))
    return np.minimum(trainer, np.float32(0)), inference
