"""Rounding to the formats of an inference engine, kept in float32 ("fake quantisation")."""

from __future__ import annotations

import torch
from torch import Tensor

_FP8_MAX = 448.0
"""Largest finite value of float8 e4m3fn (Micikevicius et al. 2022, "FP8 formats")."""
_TINY = torch.finfo(torch.float32).tiny


def round_to_bf16(value: Tensor) -> Tensor:
    """Return the nearest bfloat16 values (ties to even), in float32."""
    return value.bfloat16().float()


def round_to_fp8(value: Tensor) -> Tensor:
    """Return the nearest float8 e4m3fn values without a scale; beyond +-448 saturates."""
    return value.clamp(-_FP8_MAX, _FP8_MAX).to(torch.float8_e4m3fn).float()


def fake_quantize_fp8(matrix: Tensor) -> Tensor:
    """Return `matrix` rounded to float8 e4m3fn with one scale that maps its absmax to 448."""
    scale = _absmax(matrix) / _FP8_MAX
    return round_to_fp8(matrix / scale) * scale


def fake_quantize_int8(matrix: Tensor) -> Tensor:
    """Return `matrix` rounded to 255 symmetric levels, absmax to 127."""
    return _fake_quantize_int(matrix, 127)


def fake_quantize_int4(matrix: Tensor) -> Tensor:
    """Return `matrix` rounded to 15 symmetric levels, absmax to 7."""
    return _fake_quantize_int(matrix, 7)


def _fake_quantize_int(matrix: Tensor, max_level: int) -> Tensor:
    scale = _absmax(matrix) / max_level
    return (matrix / scale).round().clamp(-max_level, max_level) * scale


def _absmax(matrix: Tensor) -> Tensor:
    # A matrix of zeros must stay one, not become 0 / 0.
    return matrix.abs().amax().clamp_min(_TINY * 1024)
