from __future__ import annotations

import pytest
import torch

from harness.trainers.builtin.config import TASK_TYPES
from harness.trainers.builtin.tasks import make_task
from harness.trainers.builtin.tasks.cumsum import CumsumConfig, make_cumsum
from harness.trainers.builtin.tasks.dedup import DedupConfig, make_dedup
from harness.trainers.builtin.tasks.reverse import ReverseConfig, make_reverse

END = 5  # of a dedup task with symbols 0-3 and separator 4


def test_reverse_answers_backwards() -> None:
    task = make_reverse(ReverseConfig(length=4, num_symbols=9))
    assert task.answer(torch.tensor([[7, 1, 1, 8], [0, 2, 4, 6]])).tolist() == [
        [8, 1, 1, 7],
        [6, 4, 2, 0],
    ]


def test_reverse_sizes() -> None:
    task = make_reverse(ReverseConfig(length=8, num_symbols=16))
    assert (task.separator, task.vocabulary_size, task.num_positions) == (16, 17, 16)
    assert task.end_token is None


def test_cumsum_answers_with_running_sums_modulo_ten() -> None:
    task = make_cumsum(CumsumConfig(length=5))
    assert task.answer(torch.tensor([[7, 5, 9, 0, 9]])).tolist() == [[7, 2, 1, 1, 0]]


def test_cumsum_takes_another_modulus() -> None:
    task = make_cumsum(CumsumConfig(length=3, modulus=3))
    assert task.answer(torch.tensor([[2, 2, 2]])).tolist() == [[2, 1, 0]]
    assert task.vocabulary_size == 4


def test_dedup_answers_with_first_occurrences_and_end_tokens() -> None:
    task = make_dedup(DedupConfig(length=4, num_symbols=4))
    prompts = torch.tensor([[2, 0, 2, 1], [3, 3, 3, 3], [3, 2, 1, 0]])
    assert task.answer(prompts).tolist() == [
        [2, 0, 1, END, END],
        [3, END, END, END, END],
        [3, 2, 1, 0, END],
    ]


def test_response_mask_ends_with_the_first_end_token() -> None:
    task = make_dedup(DedupConfig(length=3, num_symbols=4))
    responses = torch.tensor([[1, END, END, END], [END, 0, END, 1], [0, 1, 2, 3]])
    assert task.response_mask(responses).tolist() == [
        [True, True, False, False],
        [True, False, False, False],
        [True, True, True, True],
    ]


def test_response_mask_of_a_fixed_length_task_holds_every_token() -> None:
    task = make_reverse(ReverseConfig(length=2, num_symbols=3))
    assert task.response_mask(torch.tensor([[0, 2], [3, 3]])).tolist() == [[True, True]] * 2


def test_reward_is_one_only_for_the_whole_right_answer() -> None:
    task = make_reverse(ReverseConfig(length=3, num_symbols=5))
    prompts = torch.tensor([[1, 2, 3]] * 3)
    responses = torch.tensor([[3, 2, 1], [3, 2, 2], [1, 2, 3]])
    assert task.rewards(prompts, responses).tolist() == [1.0, 0.0, 0.0]


def test_reward_needs_the_end_token() -> None:
    task = make_dedup(DedupConfig(length=3, num_symbols=4))
    prompts = torch.tensor([[1, 1, 2]] * 4)
    right, too_long, too_short, endless = (
        [1, 2, END, END],
        [1, 2, 3, END],
        [1, END, END, END],
        [1, 2, 2, 2],
    )
    rewards = task.rewards(prompts, torch.tensor([right, too_long, too_short, endless]))
    assert rewards.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", sorted(TASK_TYPES))
def test_every_registered_task_solves_itself(name: str) -> None:
    task = make_task(TASK_TYPES[name]())
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, task.num_symbols, (50, task.prompt_length), generator=generator)
    answers = task.answer(prompts)
    assert answers.shape == (50, task.response_length)
    assert task.rewards(prompts, answers).tolist() == [1.0] * 50
    assert int(answers.max()) < task.vocabulary_size
