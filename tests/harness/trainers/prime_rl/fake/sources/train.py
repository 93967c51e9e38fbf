# mypy: ignore-errors
"""TEST DOUBLE of prime-rl's trainer: numbers made of the loss's knobs, the step and PRL_RUN_ID."""

import importlib
import json
import os
import shutil
import time
from pathlib import Path

from prime_rl.part import (
    Monitor,
    is_saved,
    knob,
    listen,
    option,
    read_config,
    resume_dir,
    run_id,
    say,
    start_step,
    uniform,
    wait_for,
)

RECORDED = ("PRL_RUN_ID", "PRL_RUN_NAME", "WANDB_RUN_ID", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")


def call_custom_loss(loss: dict) -> None:
    """Import a custom loss and call it as prime-rl does, forward and backward."""
    module, _, name = loss["import_path"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    import torch  # noqa: PLC0415 (slow)
    from prime_rl.trainer.rl.loss import compute_loss, make_inputs  # noqa: PLC0415

    trainer = torch.tensor([-0.1, -0.5, -1.6], requires_grad=True)
    inputs = make_inputs(
        trainer, torch.tensor([-0.1, -0.6, -0.2]), torch.ones(3), torch.ones(3, dtype=torch.bool)
    )
    total, metrics = compute_loss(lambda inputs: function(inputs, **loss["kwargs"]), [inputs], 3.0)
    total.backward()
    say(f"custom loss {loss['import_path']}: {total.item():.6f}, metrics {sorted(metrics)}")


def is_told(name: str, step: int) -> bool:
    unless = os.environ.get("FAKE_RL_FAIL_UNLESS")
    return knob(name) == step and not (unless and Path(unless).exists())


def save(config: dict, step: int) -> None:
    ckpt = config["ckpt"]
    at = Path(ckpt["output_dir"] or config["output_dir"]) / "checkpoints"
    folder = at / f"step_{step}" / "trainer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__0_0.distcp").write_text(f"{step}\n")
    if is_told("FAIL_IN_SAVE", step):
        raise RuntimeError(f"told to fail while saving step {step}")
    (folder / ".metadata").write_text(f"{step}\n")
    if ckpt["keep_last"] is not None:
        steps = sorted(int(path.name.removeprefix("step_")) for path in at.glob("step_*"))
        for old in steps[: -ckpt["keep_last"]]:
            if not (ckpt["keep_interval"] and old % ckpt["keep_interval"] == 0):
                shutil.rmtree(at / f"step_{old}")


def export_tokens(config: dict, step: int) -> None:
    """Write one sequence of three tokens, in the format of August 2026."""
    folder = Path(config["output_dir"]) / "token_exports" / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    lp, lq = [-11.93, -1.609, -0.105], [0.0, -0.105 - uniform(run_id(), step), -1.61]
    none = [None] * 3
    record = {
        "schema_version": 1,
        "step": step,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "env_name": "fake",
        "token_ids": [5, 9, 2],
        "position_ids": [0, 1, 2],
        "loss_mask": [False, True, True],
        "advantages": [0.0, 0.5, 0.5],
        "inference_logprobs": lq,
        "trainer_logprobs": lp,
        "entropy": [11.9, 0.4, 0.3],
        "is_masked": none,
        "is_masked_high": none,
        "is_masked_low": none,
        "rl_weights": none,
        "ce_weights": none,
        "ref_kl_weights": none,
    }
    (folder / "rank_0.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "STABLE").touch()


def log_step(monitor: Monitor, config: dict, step: int) -> float:
    """Append the five rows of a step; returns the mismatch KL."""
    loss = config["loss"]
    kl = 1e-3 * (1 + uniform(loss)) * (0.9 + 0.2 * uniform(loss, step, run_id()))
    nan_from = knob("NAN_FROM")
    if nan_from is not None and step >= nan_from:
        kl = float("nan")
    masked = 0.01 * uniform(loss, "masked")
    entropy = 0.3 + 0.1 * uniform(step, run_id())
    monitor.log(step, {"perf/throughput": 1000.0, "perf/mfu": 1.0, "perf/peak_memory": 1.0})
    monitor.log(step, {"optim/lr": config["optim"]["lr"]})
    tensors = {
        "loss/mean": -0.01,
        "entropy/all/mean": entropy,
        "mismatch_kl/all/mean": kl,
        "mismatch_kl/all/max": 1000 * kl,
        "is_masked/mean": masked,
        "masked_mismatch_kl/mean": 100 * kl,
        "unmasked_mismatch_kl/mean": kl / 2,
        "kl_ent_ratio/mean": kl / entropy,
    }
    monitor.log(step, tensors)
    monitor.log(step, {"time/step": 0.05, "time/save_ckpt": 0.0, "time/broadcast_weights": 0.0})
    monitor.log(step, {"disk/checkpoints_gb": 0.0})
    return kl


def train() -> None:
    config = read_config()
    run_dir = Path(config["output_dir"])
    last = config["max_steps"] or 10**9
    if int(option("node-rank", 0)) > 0:
        wait_for((run_dir / "broadcasts" / f"step_{last}").exists, "the first trainer node")
        return
    start = start_step(config)
    folder = resume_dir(config)
    if folder is not None and not (folder / "trainer" / ".metadata").exists():
        raise FileNotFoundError(f"no checkpoint of the trainer in {folder}")
    monitor = Monitor(config, "trainer")
    recorded = {name: os.environ.get(name) for name in RECORDED}
    (run_dir / "logs" / "latest" / "env.json").write_text(json.dumps(recorded))
    broadcast = config["weight_broadcast"]
    server = listen(broadcast["port"]) if broadcast["type"] == "nccl" else None
    if config["loss"]["type"] == "custom":
        call_custom_loss(config["loss"])
    step_s = float(os.environ.get("FAKE_RL_STEP_S", "0.05"))
    for step in range(start + 1, last + 1):
        if knob("HOLD_AT") == step:
            wait_for(Path(os.environ["FAKE_RL_GATE"]).exists, "the gate")
        wait_for((run_dir / "rollouts" / f"step_{step}").exists, f"rollouts {step}")
        if is_told("FAIL_AT", step):
            raise RuntimeError(f"told to fail at step {step}")
        time.sleep(step_s)
        kl = log_step(monitor, config, step)
        if config.get("enable_token_export"):
            export_tokens(config, step)
        if is_saved(config, step):
            save(config, step)
        (run_dir / "broadcasts" / f"step_{step}").mkdir(parents=True, exist_ok=True)
        say(f"Step {step} | Time: {step_s:.2f}s | Mismatch KL: {kl:.6f}")
    if server is not None:
        server.close()


if __name__ == "__main__":
    train()
