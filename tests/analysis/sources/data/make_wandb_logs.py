"""Writes one offline log of wandb; `README.md` says with which versions the committed ones were.

What is logged is a pure function of the step, so that tests compare the logs with it, not with
what some reader makes of them. Run it in an environment that holds wandb and nothing else:

    python make_wandb_logs.py FOLDER RUN_ID [--end finish|fail|die] [--encoding json|json,typed]
                              [--first-step 0] [--num-steps 40] [--offset 0]
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "loss": {"type": "ipo", "eps": 0.2, "band": [0.5, 5.0]},
    "max_steps": 40,
    "seed": 3,
    "name": "stand-in run",
}
NAN_FROM = 30
INF_AT = 31


def calls_of_step(step: int, offset: float = 0.0) -> list[dict[str, Any]]:
    """Return the rows of one trainer step, one per call of `wandb.log`, as prime-rl makes them."""
    kl = math.nan if step >= NAN_FROM else 1e-3 * (1 + step) + offset
    norm = {INF_AT: math.inf, INF_AT + 1: -math.inf}.get(step, 1.5 + step)
    calls: list[dict[str, Any]] = [
        {"step": step, "mismatch_kl/all/mean": kl, "entropy/all/mean": 0.4 + step / 7},
        {"step": step, "optim/grad_norm": norm, "optim/lr": 1e-6, "optim/zero": 0.0},
        {f"perf/{name}": 1000.0 * step + len(name) for name in ("throughput", "mfu", "peak_memory")}
        | {"step": step, "progress/tokens": 576 * step, "progress/is_last": step == 39},
        {
            "step": step,
            "train/reverse/all/agent/reward/mean": 0.5 + 0.01 * step,
            "nested": {"inner": {"depth": step, "word": "text"}, "flat": -step},
            "note": f"step {step}",
            "nothing": None,
            "list": [1, 2, 3],
        },
    ]
    if step % 10 == 0:
        calls.append({"step": step, "eval/reverse/avg@8": step / 40})
    return calls


def main() -> None:
    import wandb  # noqa: PLC0415  # tests import this module for its data, without wandb

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run_id")
    parser.add_argument("--end", choices=("finish", "fail", "die"), default="finish")
    parser.add_argument("--encoding", default="")
    parser.add_argument("--first-step", type=int, default=0)
    parser.add_argument("--num-steps", type=int, default=40)
    parser.add_argument("--offset", type=float, default=0.0)
    args = parser.parse_args()

    # Without these the log would name the machine that wrote it.
    settings: dict[str, Any] = {
        "console": "off",
        "disable_code": True,
        "disable_git": True,
        "host": "stand-in-host",
        "x_disable_machine_info": True,
        "x_disable_meta": True,
        "x_disable_stats": True,
        "x_save_requirements": False,
    }
    if args.encoding:
        settings["x_history_value_encoding"] = args.encoding
    args.folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        mode="offline",
        dir=str(args.folder),
        project="stand-in-project",
        group="stand-in-group",
        name="stand-in-name",
        id=args.run_id,
        config=CONFIG,
        settings=wandb.Settings(**settings),
    )
    run.define_metric("*", step_metric="step")
    run.config["added_later"] = {"deep": True}
    for step in range(args.first_step, args.first_step + args.num_steps):
        for row in calls_of_step(step, args.offset):
            run.log(row)
    if args.end == "die":
        os._exit(1)
    run.finish(exit_code=1 if args.end == "fail" else 0)


if __name__ == "__main__":
    main()
