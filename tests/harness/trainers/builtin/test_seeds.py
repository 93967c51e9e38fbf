from __future__ import annotations

import math

import torch

from harness.trainers.builtin.seeds import draw_gumbel, make_generator


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
