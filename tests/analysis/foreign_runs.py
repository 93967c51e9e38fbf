"""Writes run folders as prime-rl and others leave them: stand-ins, no trainer has run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.conftest import START

KL_KEY = "mismatch_kl/all/mean"
ALL_KEY = "train/agg/all/agent/reward/mean"
EFFECTIVE_KEY = "train/agg/effective/agent/reward/mean"


def prime_rl_run(
    folder: Path,
    *,
    loss: Mapping[str, Any] | None = None,
    seed: int = 0,
    num_steps: int = 60,
    max_steps: int = 60,
    level: float = 0.8,
    kl: float = 1e-3,
    kl_key: str = KL_KEY,
    rate_key: str = ALL_KEY,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder as prime-rl left it until August 2026: one file, rows of two processes."""
    generator = np.random.default_rng([seed, int(1000 * level)])
    folder.mkdir(parents=True)
    rows = []
    for step in range(1, num_steps + 1):
        time = START + 10.0 * step
        rate = float(np.clip(level + 0.01 * seed + 0.02 * generator.normal(), 0, 1))
        trained = {
            kl_key: kl * float(np.exp(0.2 * generator.normal())),
            "entropy/all/mean": 0.4,
            "is_masked/mean": 0.003,
        }
        rows += [
            {"step": step, "time": time, rate_key: rate, "off_policy/mean": 1.5},
            {"step": step, "time": time + 1, "optim/lr": 1e-6, "optim/grad_norm": 0.1},
            {"step": step, "time": time + 2, **trained},
        ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines)
    configs = folder / "configs"
    configs.mkdir()
    trainer = {"loss": dict(loss or {"type": "ipo", "eps": 0.3}), "max_steps": max_steps}
    write = {"trainer": {**trainer, **(extra or {})}, "orchestrator": {"seed": seed}}
    for name, content in write.items():
        (configs / f"{name}.json").write_text(json.dumps(content))
    return folder
