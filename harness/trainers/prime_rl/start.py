"""What prime-rl is told of the checkpoint that a fork starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.checkpoint import PRIME_RL, Checkpoint
from harness.errors import UsageError
from harness.trainers.interface import Start


def prime_rl_resume(start: Start) -> dict[str, Any]:
    """Return the table that has prime-rl fork a run: `{"resume": {"dir": …}}`.

    prime-rl takes the step from the folder's name, and allows no `resume.step` beside it. It is for
    runs without a checkpoint of their own; the others resume by `resume.step`.
    """
    return {"resume": {"dir": str(start.checkpoint)}}


def check_prime_rl_start(config: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
    """Refuse a checkpoint that prime-rl can't start from, and a second start beside it.

    Raises:
        UsageError: names the folder or the key.
    """
    if checkpoint is None:
        return
    if checkpoint.kind != PRIME_RL or checkpoint.path.name != f"step_{checkpoint.step}":
        raise UsageError(
            f"`{checkpoint.path}` is no checkpoint of prime-rl",
            "it keeps them in `RUN/checkpoints/step_N`, with `trainer` and `orchestrator` in each",
        )
    if config["trainer"].get("native", {}).get("resume"):
        raise UsageError(
            "`trainer.native.resume` stands beside `start_from`",
            "leave one of them out: `start_from` sets `resume.dir`",
        )
