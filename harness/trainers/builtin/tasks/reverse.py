"""Task `reverse`: repeat the prompt backwards. Fixed length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.config.fields import choice, number
from harness.trainers.builtin.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ReverseConfig:
    type: str = choice("reverse", "reverse")
    length: int = number(8, ge=1, le=256)
    """Symbols per prompt, and of the answer."""
    num_symbols: int = number(16, ge=2, le=4096)
    """Size of the alphabet."""


def make_reverse(config: ReverseConfig) -> Task:
    """Return the task; the answer to a, b, c is c, b, a."""
    return Task(
        num_symbols=config.num_symbols,
        prompt_length=config.length,
        response_length=config.length,
        has_end_token=False,
        answer=_answer,
    )


def _answer(prompts: Tensor) -> Tensor:
    return prompts.flip(1)
