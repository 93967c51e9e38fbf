"""Random numbers that depend on what they are for, never on what was drawn before."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def make_generator(
    seed: int, purpose: str, step: int = 0, *, replicate: int = 0
) -> torch.Generator:
    """Return a fresh CPU generator for one purpose of one step of a run.

    Two runs of equal seed and replicate get equal streams, whatever else they drew; other seeds,
    purposes, steps and replicates give unrelated ones. On the CPU even for a GPU run, so that
    devices agree.

    Args:
        replicate: of the run; left out for what all runs of a seed share (the warm start).
    """
    words = f"{seed}/{purpose}/{step}" + (f"/replicate {replicate}" if replicate else "")
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def draw_gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return standard Gumbel noise -log(E), E ~ Exp(1), of `shape` (float32).

    argmax(log p + noise) = argmax(p / E) is a sample of p. Drawn in float64: with float32's
    2^-24 grid, E would be 0 once in 17 million draws and pick a token of any probability.
    """
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (-torch.log(-torch.log1p(-uniform))).float()
