# mypy: ignore-errors
"""TEST DOUBLE of prime-rl's orchestrator, inference server and env servers."""

import os
from pathlib import Path
from urllib.parse import urlparse

from prime_rl.part import (
    DEADLINE_S,
    Monitor,
    answers,
    is_saved,
    listen,
    option,
    read_config,
    resume_dir,
    run_id,
    say,
    serve,
    start_step,
    uniform,
    wait_for,
)
from prime_rl.utils.layout import HAS_PRODUCER


def env_server() -> None:
    serve([urlparse(read_config()["serve"]["address"]).port])


def inference() -> None:
    """Hold the router's port and the engine's; on several nodes (one machine here) the router's."""
    config = read_config()
    port = int(option("port", config["server"]["port"]))
    serve([port] if config["router"] is None else [port, config["backend_port"]])


def source_values(name: str, solved: float) -> dict[str, float]:
    return {
        f"train/{name}/all/agent/reward/mean": solved,
        f"train/{name}/all/agent/reward/max": 1.0,
        f"train/{name}/effective/agent/reward/mean": min(1.0, solved + 0.01),
        f"train/{name}/all/agent/solved_all": solved / 3,
        f"train/{name}/all/agent/solved_none": (1 - solved) / 3,
        f"train/{name}/all/agent/solved_some": 2 / 3,
        f"train/{name}/all/agent/is_truncated/mean": 0.0,
    }


def orchestrator() -> None:
    config = read_config()
    run_dir = Path(config["output_dir"])
    monitor = Monitor(config, "orchestrator")
    start = start_step(config)
    state = resume_dir(config)
    if state is not None:
        folder = run_dir / "checkpoints" / state.name
        folder = state if config["resume"]["dir"] is not None else folder
        if not (folder / "orchestrator" / "progress.pt").exists():
            raise FileNotFoundError(f"no checkpoint of the orchestrator in {folder}")
    url = option("model.client.base-url", config["model"]["client"]["base_url"])
    timeout_s = min(DEADLINE_S, config["model"]["client"]["wait_for_ready_timeout"])
    wait_for(lambda: answers(urlparse(url).port), f"the inference server at {url}", timeout_s)
    transport = config["rollout_transport"]
    server = listen(transport["port"]) if transport["type"] == "zmq" else None
    names = [s["name"] or s["env"]["taskset"]["id"] for s in config["train"]["source"]]
    evals = config["eval"] or {"source": [], "interval": 1}
    if HAS_PRODUCER:
        monitor.log(None, {"inference/agg/requests": 0.0, "progress/start_step": float(start)})
    for step in range(start + 1, (config["max_steps"] or 10**9) + 1):
        behind = step - 2
        if behind > start:
            wait_for((run_dir / "broadcasts" / f"step_{behind}").exists, f"weights {behind}")
        solved = {
            name: 0.2
            + 0.1 * uniform(run_id(), name)
            + 0.05 * uniform(run_id(), name, step)
            + 0.4 * step / (step + 20)
            for name in names
        }
        mean = sum(solved.values()) / max(1, len(solved))
        values = {}
        for name, value in {**solved, "agg": mean}.items():
            values |= source_values(name, value)
        values |= {"off_policy/mean": 1.0, "off_policy/max": 2.0}
        monitor.log(step, values | {"time/step": 0.05, "time/save_ckpt": 0.0})
        for source in evals["source"]:
            if step % evals["interval"] == 0:
                name = source["name"] or source["env"]["taskset"]["id"]
                monitor.log(step, {f"eval/{name}/all/agent/avg@1": uniform(run_id(), "eval", step)})
        (run_dir / "rollouts" / f"step_{step}" / "train").mkdir(parents=True, exist_ok=True)
        if is_saved(config, step):
            folder = run_dir / "checkpoints" / f"step_{step}" / "orchestrator"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "progress.pt.tmp").write_text(f"{step}\n")
            os.replace(folder / "progress.pt.tmp", folder / "progress.pt")
        say(f"Step {step} | Reward {mean:.4f}")
    if config["max_steps"] is not None and config["max_steps"] > start:
        final = run_dir / "broadcasts" / f"step_{config['max_steps']}"
        wait_for(final.exists, "the last weights")
    if server is not None:
        server.close()
