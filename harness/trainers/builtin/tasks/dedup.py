"""Task `dedup`: the prompt without repetitions, then an end token. Variable length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.config.fields import choice, number
from harness.trainers.builtin.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DedupConfig:
    type: str = choice("dedup", "dedup")
    length: int = number(6, ge=1, le=256)
    """Symbols per prompt; the answer has at most as many and one end token."""
    num_symbols: int = number(8, ge=2, le=4096)
    """Size of the alphabet. The smaller, the more repetitions."""


def make_dedup(config: DedupConfig) -> Task:
    """Return the task; the answer to b, a, b, c is b, a, c, end."""
    end_token = config.num_symbols + 1

    def answer(prompts: Tensor) -> Tensor:
        is_equal = prompts[:, :, None] == prompts[:, None, :]
        is_repeated = is_equal.tril(diagonal=-1).any(dim=2)
        # A stable sort by "repeated" brings first occurrences to the front in their order.
        order = is_repeated.long().argsort(dim=1, stable=True)
        firsts = prompts.gather(1, order).masked_fill(is_repeated.gather(1, order), end_token)
        answers = prompts.new_full((prompts.shape[0], config.length + 1), end_token)
        answers[:, :-1] = firsts
        return answers

    return Task(
        num_symbols=config.num_symbols,
        prompt_length=config.length,
        response_length=config.length + 1,
        has_end_token=True,
        answer=answer,
    )
