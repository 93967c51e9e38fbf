"""What lets one definition serve numpy arrays and torch tensors alike."""

from __future__ import annotations

import functools
import math
import struct
import sys
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A numpy array or a torch tensor; within one call all of them are of the same kind."""

_FLOAT_TYPES = ("float32", "float64", "torch.float32", "torch.float64")


def namespace(*arrays: Any) -> Any:
    """Return the module, numpy or torch, whose functions serve `arrays`.

    Raises:
        TypeError: neither kind of array, or not one float type that is float32 or float64.
    """
    first = arrays[0]
    for kind in type(first).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("numpy", "torch"):
            break
    else:
        raise TypeError(f"want numpy arrays or torch tensors, not {type(first).__name__}")
    if str(first.dtype) not in _FLOAT_TYPES:
        raise TypeError(f"want float32 or float64, not {first.dtype}: upcast first")
    for other in arrays[1:]:
        if other.dtype != first.dtype:
            raise TypeError(f"want one float type, not {first.dtype} and {other.dtype}")
    return sys.modules[root]


def is_above(log_ratio: Array, bound: float) -> Array:
    """Whether the ratio is above `bound`, by the bound's logarithm (see `log_bound`)."""
    return log_ratio > log_bound(bound, log_ratio)


def is_below(log_ratio: Array, bound: float) -> Array:
    """Whether the ratio is below `bound`, by the bound's logarithm (see `log_bound`)."""
    return log_ratio < log_bound(bound, log_ratio)


def log_bound(bound: float, like: Array) -> float:
    """Logarithm of ratio bound `bound` as the type of `like` holds it; -inf for 0."""
    return _log_bound(bound, "float32" in str(like.dtype))


@functools.lru_cache(maxsize=256)
def _log_bound(bound: float, is_float32: bool) -> float:
    if is_float32:
        [bound] = struct.unpack("f", struct.pack("f", bound))
    return math.log(bound) if bound > 0 else -math.inf
