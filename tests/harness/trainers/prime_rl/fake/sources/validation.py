# mypy: ignore-errors
"""TEST DOUBLE of prime-rl: how values of the whole run reach its parts, and must agree there."""

SHARED = {
    "model.name": ("trainer.model.name", "orchestrator.model.name", "inference.vllm.model"),
    "log.level": ("trainer.log.level", "orchestrator.log.level", "inference.log.level"),
    "ckpt.output_dir": ("trainer.ckpt.output_dir",),
    "tokenizer.name": ("trainer.tokenizer.name", "orchestrator.tokenizer.name"),
    "rollout_transport": ("trainer.rollout_transport", "orchestrator.rollout_transport"),
    "max_steps": ("trainer.max_steps", "orchestrator.max_steps"),
    "seq_len": ("trainer.model.seq_len", "orchestrator.seq_len"),
    "slurm": ("inference.slurm",),
    "monitors.prime.name": ("orchestrator.monitors.prime.name",),
} | {
    f"{table}.{leaf}": (f"trainer.{table}.{leaf}", f"orchestrator.{table}.{leaf}")
    for table, leaves in {
        "ckpt": ("interval", "keep_last", "keep_interval"),
        "monitors.wandb": ("project", "entity", "name", "group", "tags", "offline"),
        "monitors.file": ("path",),
    }.items()
    for leaf in leaves
}
PRESENT = {
    "ckpt": ("trainer", "orchestrator"),
    "monitors.wandb": ("trainer", "orchestrator"),
    "monitors.file": ("trainer", "orchestrator"),
    "monitors.prime": ("orchestrator",),
}


def find(data, path):
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def fill(data, path, value) -> None:
    *parents, leaf = path.split(".")
    if not isinstance(data.get(parents[0]), dict):
        return
    for part in parents:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            return
    data.setdefault(leaf, value)


def share(data):
    """Fill the parts' keys from the shared ones where they are absent; refuse other values."""
    if not isinstance(data, dict):
        return data
    conflicts = []
    for shared, targets in SHARED.items():
        value = find(data, shared)
        if value is None:
            continue
        conflicts += [
            f"{shared!r} and {target!r} are set to different values"
            for target in targets
            if find(data, target) not in (None, value)
        ]
        for target in targets:
            fill(data, target, value)
    for key, parts in PRESENT.items():
        value = find(data, key)
        if isinstance(value, dict) or value == "None":
            for part in parts:
                fill(data, f"{part}.{key}", "None" if value == "None" else {})
    if conflicts:
        raise ValueError("shared config conflicts: " + "; ".join(conflicts))
    return data


def check_parts(config) -> None:
    """Refuse parts that don't fit together."""
    trainer, orchestrator, inference = config.trainer, config.orchestrator, config.inference
    if (trainer.ckpt is None) != (orchestrator.ckpt is None):
        raise ValueError("trainer and orchestrator must both have a ckpt table or none")
    if trainer.ckpt and trainer.ckpt.interval != orchestrator.ckpt.interval:
        raise ValueError("trainer.ckpt.interval is not orchestrator.ckpt.interval")
    if trainer.max_steps != orchestrator.max_steps:
        raise ValueError("trainer.max_steps is not orchestrator.max_steps")
    if trainer.model.seq_len < orchestrator.seq_len:
        raise ValueError("trainer.model.seq_len is below orchestrator.seq_len")
    wandb = trainer.monitors.wandb, orchestrator.monitors.wandb
    if (wandb[0] is None) != (wandb[1] is None):
        raise ValueError("trainer and orchestrator must both have a wandb table or none")
    served = trainer.model.name if inference is None else inference.vllm.model
    if served != orchestrator.model.name:
        raise ValueError(f"orchestrator.model.name is not the model that is served, {served}")
    if trainer.rollout_transport.type != orchestrator.rollout_transport.type:
        raise ValueError("trainer and orchestrator have different rollout_transport types")
