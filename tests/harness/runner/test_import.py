from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "numpy", "pandas", "scipy", "matplotlib", "hydra", "omegaconf", "wandb", "rich"}


def test_runner_and_trainers_are_light_to_import() -> None:
    script = (
        "import sys, harness.runner.main;"
        "from harness.trainers.registry import TRAINERS, load_trainer;"
        "[load_trainer(name) for name in TRAINERS];"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(done.stdout.split())
