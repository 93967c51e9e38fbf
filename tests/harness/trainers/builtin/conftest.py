"""Runs small enough to train in a fraction of a second."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.records.files import write_json
from harness.records.layout import (
    ATTEMPT_ENV,
    MAX_STEPS_ENV,
    RUN_DIR_ENV,
    SHARED_DIR_ENV,
    RunPaths,
    SweepPaths,
)
from harness.records.model import RunRecord, to_record
from harness.trainers.builtin.train import RunRequest, train

TINY: dict[str, Any] = {
    "loss": {"type": "none"},
    "task": {"type": "reverse", "length": 2, "num_symbols": 3},
    "model": {
        "type": "moe_transformer",
        "dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "num_experts": 2,
        "num_active_experts": 1,
        "expert_dim": 8,
    },
    "trainer": {
        "type": "builtin",
        "optim": {"type": "sgd", "lr": 0.5, "max_grad_norm": None},
        "rollouts": {"prompts": 4, "per_prompt": 8},
        "engine": {"staleness": 2},
        "warm_start": {"solve_rate": 0.0},
        "device": "cpu",
    },
    "seed": 0,
}
"""Answers are right by chance 1 time in 16, so that some groups have an advantage."""


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


Row = dict[str, Any]
MakeConfig = Callable[..., dict[str, Any]]
MakeRequest = Callable[..., RunRequest]


@pytest.fixture
def make_config() -> MakeConfig:
    """Returns the tiny config with dotted keys replaced: make_config({"trainer.optim.lr": 1.0})."""

    def make(changes: dict[str, Any] | None = None) -> dict[str, Any]:
        config = copy.deepcopy(TINY)
        for dotted, value in (changes or {}).items():
            *groups, key = dotted.split(".")
            tree = config
            for group in groups:
                tree = tree.setdefault(group, {})
            tree[key] = value
        return config

    return make


@pytest.fixture
def make_request(tmp_path: Path, make_config: MakeConfig) -> MakeRequest:
    """Writes a planned run folder and one claim, and returns the request to train it."""

    def make(
        changes: dict[str, Any] | None = None,
        *,
        arm: str = "arm",
        attempt: int = 1,
        max_steps: int = 6,
    ) -> RunRequest:
        config = make_config(changes)
        sweep = SweepPaths(tmp_path / "sweep")
        paths = sweep.run(arm, config["seed"])
        write_json(paths.config, config)
        record = RunRecord(
            schema_version=1,
            sweep=sweep.name,
            arm=arm,
            seed=config["seed"],
            identity=f"identity-of-{arm}",
            trainer="builtin",
            metrics="trainer/metrics.jsonl",
            metrics_format="prime_rl",
        )
        write_json(paths.record, to_record(record))
        _claim(paths, attempt)
        return RunRequest(paths, sweep, config, attempt, max_steps)

    return make


@pytest.fixture
def claim() -> Callable[[RunPaths, int], None]:
    """Claims an attempt as its runner does."""
    return _claim


def _claim(paths: RunPaths, attempt: int) -> None:
    write_json(paths.attempt(attempt).claim, {"attempt": attempt})


@pytest.fixture
def read_rows() -> Callable[[RunPaths], list[Row]]:
    """Returns the metrics rows of a run."""
    return _read_rows


def _read_rows(paths: RunPaths) -> list[Row]:
    return [json.loads(line) for line in paths.metrics.read_text().splitlines()]


@pytest.fixture
def run_to_end() -> Callable[[RunRequest], list[Row]]:
    """Trains in this process up to max_steps and returns all metrics rows."""

    def run(request: RunRequest) -> list[Row]:
        assert train(request, should_stop=lambda: False)
        return _read_rows(request.paths)

    return run


@pytest.fixture
def process_arguments() -> Callable[[RunRequest], dict[str, Any]]:
    """Returns what subprocess needs to start the trainer as the runner does."""

    def make(request: RunRequest) -> dict[str, Any]:
        variables = {
            RUN_DIR_ENV: str(request.paths.root),
            SHARED_DIR_ENV: str(request.sweep.shared_dir),
            ATTEMPT_ENV: str(request.attempt),
            MAX_STEPS_ENV: str(request.max_steps),
        }
        return {
            "args": [sys.executable, "-P", "-m", "harness.trainers.builtin"],
            "env": {**os.environ, **variables},
            "text": True,
        }

    return make
