from __future__ import annotations

import math

import pytest
import torch

from harness.trainers.builtin.seeds import draw_gumbel, make_generator


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ((0, "prompts", 1), 8742707106828006474),
        ((3, "sampling", 250), 1442220238428898775),
        ((7, "drift", 0), 13641280596994505449),
    ],
)
def test_runs_of_arms_that_replicate_none_keep_their_streams(
    key: tuple[int, str, int], state: int
) -> None:
    # The first 8 bytes of sha256 of `0/prompts/1`: other ones would change every finished run.
    assert make_generator(*key).initial_seed() == make_generator(*key, replicate=0).initial_seed()
    assert make_generator(*key).initial_seed() % 2**64 == state


def test_each_replicate_has_streams_of_its_own() -> None:
    draws = [
        tuple(torch.rand(3, generator=make_generator(0, "prompts", 1, replicate=i)).tolist())
        for i in range(4)
    ]
    assert len(set(draws)) == 4
    again = torch.rand(3, generator=make_generator(0, "prompts", 1, replicate=2))
    assert tuple(again.tolist()) == draws[2]


def test_streams_differ_by_seed_purpose_and_step() -> None:
    keys = [(0, "prompts", 1), (1, "prompts", 1), (0, "sampling", 1), (0, "prompts", 2)]
    draws = {tuple(torch.rand(3, generator=make_generator(*key)).tolist()) for key in keys}
    assert len(draws) == 4


def test_a_stream_depends_on_nothing_else() -> None:
    first = torch.rand(3, generator=make_generator(5, "prompts", 7))
    torch.rand(100)
    make_generator(5, "prompts", 6)
    assert torch.equal(first, torch.rand(3, generator=make_generator(5, "prompts", 7)))


def test_noise_is_standard_gumbel() -> None:
    noise = draw_gumbel((200_000,), make_generator(0, "test")).double()
    assert noise.isfinite().all()
    # Mean Euler's gamma, variance pi^2 / 6; five standard errors.
    assert abs(float(noise.mean()) - 0.5772157) < 5 * 1.2825 / math.sqrt(200_000)
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.05
