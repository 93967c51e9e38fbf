from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch

from harness.trainers.builtin.quantize import (
    fake_quantize_fp8,
    fake_quantize_int4,
    fake_quantize_int8,
    round_to_bf16,
    round_to_fp8,
)


def e4m3_magnitudes() -> list[float]:
    """Every finite magnitude of float8 e4m3fn by its code, from the format's definition."""
    magnitudes = []
    for code in range(127):  # 127 is NaN
        exponent, mantissa = code >> 3, code & 7
        if exponent == 0:
            magnitudes.append(mantissa / 8 * 2.0**-6)
        else:
            magnitudes.append((1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return magnitudes


def nearest_e4m3(value: float) -> float:
    """Nearest magnitude, ties to the even code, beyond the largest saturating."""
    magnitudes = e4m3_magnitudes()
    code = min(range(127), key=lambda c: (abs(magnitudes[c] - abs(value)), c % 2))
    return math.copysign(magnitudes[code], value)


def test_fp8_rounds_as_the_format_defines() -> None:
    values = np.random.default_rng(0).normal(size=300) * np.logspace(-4, 3, 300)
    values = values.astype(np.float32)
    expected = [nearest_e4m3(float(value)) for value in values]
    assert round_to_fp8(torch.from_numpy(values)).tolist() == expected


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1.0625, 1.0),  # halfway between 1 and 1.125: to the even code
        (1.1875, 1.25),
        (0.3, 0.3125),
        (2.0**-10, 0.0),  # half of the smallest subnormal
        (447.0, 448.0),
        (1e6, 448.0),
        (-1e6, -448.0),
    ],
)
def test_fp8_by_hand(value: float, rounded: float) -> None:
    assert round_to_fp8(torch.tensor([value])).tolist() == [rounded]


def test_fake_fp8_scales_the_largest_magnitude_to_448() -> None:
    # absmax 0.5 gives the scale 0.5 / 448 = 1 / 896; 0.1 * 896 = 89.6 is nearest to 88.
    matrix = torch.tensor([[0.5, -0.1], [0.01, 0.0]])
    # 0.01 * 896 = 8.96 is nearest to 9.
    expected = [[0.5, -88 / 896], [9 / 896, 0.0]]
    assert torch.allclose(fake_quantize_fp8(matrix), torch.tensor(expected), rtol=1e-6, atol=0)


def test_fake_int8_has_127_levels_a_side() -> None:
    matrix = torch.tensor([[1.27, -1.27, 0.014, 0.015, -0.0049]])
    expected = torch.tensor([[1.27, -1.27, 0.01, 0.02, 0.0]])
    # 0.015 / 0.01 is a tie up to float32 noise: leave it out of the exact comparison.
    keep = [0, 1, 2, 4]
    rounded = fake_quantize_int8(matrix)
    assert torch.allclose(rounded[:, keep], expected[:, keep], rtol=1e-5, atol=1e-9)


def test_fake_int4_has_7_levels_a_side() -> None:
    matrix = torch.tensor([[7.0, -7.0, 2.4, 2.6, 2.5, 3.5, -0.4]])
    # Ties go to the even level.
    assert fake_quantize_int4(matrix).tolist() == [[7.0, -7.0, 2.0, 3.0, 2.0, 4.0, 0.0]]


@pytest.mark.parametrize("quantize", [fake_quantize_fp8, fake_quantize_int8, fake_quantize_int4])
def test_a_matrix_of_zeros_stays_one(quantize: object) -> None:
    assert callable(quantize)
    assert quantize(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


def test_bf16_keeps_the_upper_16_bits_rounded_to_even() -> None:
    values = np.random.default_rng(1).normal(size=500).astype(np.float32)
    rounded = round_to_bf16(torch.from_numpy(values))
    assert rounded.dtype == torch.float32
    for value, got in zip(values, rounded.tolist(), strict=True):
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        upper, lower = bits >> 16, bits & 0xFFFF
        if lower > 0x8000 or (lower == 0x8000 and upper % 2):
            upper += 1
        (expected,) = struct.unpack("<f", struct.pack("<I", upper << 16))
        assert got == expected


@pytest.mark.parametrize(
    ("value", "rounded"), [(1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (0.1, 0.10009765625)]
)
def test_bf16_by_hand(value: float, rounded: float) -> None:
    assert round_to_bf16(torch.tensor([value])).tolist() == [rounded]
