"""What a verifiable task is to the trainer. Needs no torch: tasks work on tensors by methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Task:
    """A question made of symbols and the one right answer to it.

    Token ids: 0 .. num_symbols - 1 are symbols, num_symbols is the separator that ends a prompt,
    num_symbols + 1 (only where `has_end_token`) ends a response.

    Attributes:
        num_symbols: prompts are drawn uniformly from this many symbols.
        prompt_length: symbols per prompt, without the separator.
        response_length: tokens of the longest response, the end token included.
        has_end_token: whether responses vary in length and finish with an end token.
        answer: from prompts [n, prompt_length] (int64) to right answers [n, response_length].
            What follows an end token is filled up with end tokens.
    """

    num_symbols: int
    prompt_length: int
    response_length: int
    has_end_token: bool
    answer: Callable[[Tensor], Tensor]

    @property
    def separator(self) -> int:
        return self.num_symbols

    @property
    def end_token(self) -> int | None:
        return self.num_symbols + 1 if self.has_end_token else None

    @property
    def vocabulary_size(self) -> int:
        return self.num_symbols + (2 if self.has_end_token else 1)

    @property
    def num_positions(self) -> int:
        """Longest sequence that the model reads: prompt, separator, all but the last response."""
        return self.prompt_length + self.response_length

    def rewards(self, prompts: Tensor, responses: Tensor) -> Tensor:
        """Return 1.0 per sequence whose whole response is the right answer, else 0.0 (float32).

        Args:
            prompts: [n, prompt_length], int64.
            responses: [n, response_length], int64, filled up with end tokens after the first.
        """
        is_right: Tensor = (responses == self.answer(prompts)).all(dim=1)
        return is_right.float()

    def response_mask(self, responses: Tensor) -> Tensor:
        """Return which tokens belong to the response: up to and including the first end token.

        Args:
            responses: [n, response_length], int64. Returns bool of the same shape.
        """
        if self.end_token is None:
            return responses >= 0
        is_end = (responses == self.end_token).long()
        num_ends_before: Tensor = is_end.cumsum(dim=1) - is_end
        return num_ends_before == 0
