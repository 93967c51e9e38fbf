"""Task `cumsum`: the running sum of the prompt's digits, modulo their number. Fixed length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.config.fields import choice, number
from harness.trainers.builtin.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CumsumConfig:
    type: str = choice("cumsum", "cumsum")
    length: int = number(6, ge=1, le=256)
    """Digits per prompt, and of the answer."""
    modulus: int = number(10, ge=2, le=4096)
    """Digits are 0 .. modulus - 1; sums are taken modulo it."""


def make_cumsum(config: CumsumConfig) -> Task:
    """Return the task; modulo 10 the answer to 7, 5, 9 is 7, 2, 1."""

    def answer(prompts: Tensor) -> Tensor:
        return prompts.cumsum(dim=1) % config.modulus

    return Task(
        num_symbols=config.modulus,
        prompt_length=config.length,
        response_length=config.length,
        has_end_token=False,
        answer=answer,
    )
