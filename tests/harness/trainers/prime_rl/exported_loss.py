"""Loads the exported losses, and makes inputs for them."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tests.harness.losses.test_policy import Batch
from tests.harness.trainers.prime_rl.loss_stand_in import LossInputs, make_inputs

HERE = Path(__file__).parent
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def make_tensors(
    batch: Batch, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    lp = torch.tensor(batch.lp, dtype=dtype, requires_grad=True)
    lq, advantages = (torch.tensor(x, dtype=dtype) for x in (batch.lq, batch.advantages))
    return lp, lq, advantages, torch.tensor(batch.loss_mask)


def make_sequence(
    pairs: list[tuple[float, float]], advantages: list[float], **changes: Any
) -> LossInputs:
    lp = torch.tensor([p for p, _ in pairs], dtype=torch.float64, requires_grad=True)
    lq = torch.tensor([q for _, q in pairs], dtype=torch.float64)
    mask = torch.ones(len(pairs), dtype=torch.bool)
    inputs = make_inputs(lp, lq, torch.tensor(advantages, dtype=torch.float64), mask)
    return dataclasses.replace(inputs, **changes)


def gradient_of(loss: torch.Tensor, inputs: Any) -> list[float]:
    [gradient] = torch.autograd.grad(loss, inputs.trainer_logprobs)
    values: list[float] = gradient.tolist()
    return values
