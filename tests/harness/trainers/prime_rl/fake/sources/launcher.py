# mypy: ignore-errors
"""TEST DOUBLE of prime-rl's program `rl`: no model, no GPU, and no result comes from it.

It follows the launch contract of prime-rl: one config from `@ files` and flags, unknown keys and
used run folders refused, resolved configs written, processes that are started and ended together.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlparse

from prime_rl.configs.rl import RLConfig
from prime_rl.utils.config import cli, dump
from prime_rl.utils.layout import LAYOUT, SCRIPT_PATH
from prime_rl.utils.pathing import (
    check_run_dir,
    checkpoint_steps,
    clean_future_steps,
    make_config_dir,
    next_attempt,
)

BIN = Path(__file__).resolve().parents[3] / "bin"
TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def write_parts(config: RLConfig, folder: Path) -> None:
    """Write the config of each part, as its process reads it."""
    write(folder / "trainer.json", dump(config.trainer))
    write(folder / "orchestrator.json", dump(config.orchestrator))
    if config.inference is not None:
        exclude = {"deployment", "slurm", "output_dir", "dry_run"}
        inference = dump(config.inference, exclude)
        if config.deployment.type == "multi_node":
            inference["router"] = None
        write(folder / "inference.json", inference)
    for split, source, port in config.orchestrator.env_servers:
        content = {"env": source.env, "serve": {"address": f"tcp://127.0.0.1:{port}"}}
        write(folder / "envs" / split / f"{source.resolved_name}.json", content)
    if LAYOUT == "newest":
        write(folder / "rl.json", dump(config))


def keep_inputs(folder: Path) -> None:
    """Keep the command and the files that it names beside the resolved configs."""
    (folder.parent / "command.txt").write_text(" ".join(["rl", *sys.argv[1:]]) + "\n")
    for before, word in zip(sys.argv, sys.argv[1:], strict=False):
        if before == "@":
            shutil.copy(word, folder.parent)


def visible_gpus() -> list[int] | None:
    """Return the ids of the GPUs; None on a machine where nothing says which there are."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else [int(word) for word in visible.split(",") if word.strip()]


def is_deaf() -> bool:
    """Whether SIGTERM ends neither this process nor those that it starts."""
    return os.environ.get("FAKE_RL_IGNORE_SIGTERM") == "1"


def stop(processes: dict[str, subprocess.Popen]) -> None:
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(signal.SIGKILL if is_deaf() else signal.SIGTERM)
    for process in processes.values():
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()


def run_here(config: RLConfig, folder: Path) -> None:
    """Start the parts on this machine; exit code 1 as soon as one of them fails."""
    write_parts(config, folder)
    if config.dry_run:
        say("Dry run complete.")
        return
    deployment, inference = config.deployment, config.inference
    num_infer_gpus = 0 if inference is None else deployment.num_infer_gpus
    gpus, wanted = visible_gpus(), num_infer_gpus + deployment.num_train_gpus
    if gpus is not None and wanted > len(gpus):
        raise ValueError(f"{wanted} GPUs are asked for, {gpus} are there")
    if inference is not None:
        port = urlparse(config.orchestrator.model.client.base_url).port
        if port != inference.server.port:
            raise ValueError(
                f"the port of orchestrator.model.client.base_url is {port}, "
                f"inference.server.port is {inference.server.port}"
            )
    logs = next_attempt(config.run_dir / "logs")
    shared = {**os.environ, "WANDB_RUN_ID": os.environ["PRL_RUN_ID"], **config.env_vars}
    at = str(folder)
    parts = {}
    if inference is not None:
        argv = ["inference", "@", f"{at}/inference.json"]
        parts["inference"] = (argv, "inference.log", inference.env_vars)
    for split, source, _ in config.orchestrator.env_servers:
        name = f"envs/{split}/{source.resolved_name}"
        argv = ["env-server", "@", f"{at}/{name}.json"]
        parts[name] = (argv, f"{name}.log", config.orchestrator.env_vars)
    argv = ["orchestrator", "@", f"{at}/orchestrator.json"]
    parts["orchestrator"] = (argv, "orchestrator.log", config.orchestrator.env_vars)
    argv = ["torchrun", "--role=trainer", "-m", "prime_rl.trainer.rl.train"]
    argv += ["@", f"{at}/trainer.json"]
    parts["trainer"] = (argv, "trainer.log", config.trainer.env_vars)

    processes: dict[str, subprocess.Popen] = {}

    def on_sigterm(signum, frame):
        say("Received SIGTERM, terminating all processes...")
        stop(processes)
        sys.exit(1)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf() else on_sigterm)
    for name, (argv, log, env_vars) in parts.items():
        (logs / log).parent.mkdir(parents=True, exist_ok=True)
        with (logs / log).open("w") as file:
            processes[name] = subprocess.Popen(
                [sys.executable, str(BIN / argv[0]), *argv[1:]],
                env={**shared, **env_vars},
                stdout=file,
                stderr=file,
            )
    say("Startup complete. Showing orchestrator logs...")
    processes["tail"] = subprocess.Popen(["tail", "-F", str(logs / "orchestrator.log")])
    sys.exit(watch(processes))


def watch(processes: dict[str, subprocess.Popen]) -> int:
    """Wait for trainer and orchestrator, or for the first part that fails; end the others."""
    critical = ("orchestrator", "trainer")
    try:
        while True:
            is_over = all(processes[name].poll() is not None for name in critical)
            for name in critical if is_over else processes:
                if processes[name].poll():
                    code = processes[name].returncode
                    say(f"Error: {name.capitalize()} failed with exit code {code}")
                    return 1
            if is_over:
                say("Training finished!")
                return 0
            time.sleep(0.02)
    finally:
        stop(processes)


def run_as_job(config: RLConfig, folder: Path) -> None:
    """Write the batch script, and submit it unless this is a dry run."""
    if config.deployment.type == "single_node":
        write(folder / "rl.json", dump(config, {"slurm", "dry_run", "clean"}))
    else:
        write_parts(config, folder)
    script = config.run_dir / SCRIPT_PATH
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(render(config, folder))
    if config.dry_run:
        say(f"Dry run complete. To submit manually: sbatch {script}")
        return
    done = subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"sbatch failed: {done.stderr.strip()}")
        sys.exit(1)
    print(done.stdout.strip())


def render(config: RLConfig, folder: Path) -> str:
    deployment, slurm, inference = config.deployment, config.slurm, config.inference
    is_single = deployment.type == "single_node"
    template = slurm.template_path
    if template is None:
        template = TEMPLATES / ("single_node_rl.sbatch" if is_single else "multi_node_rl.sbatch")
    names = ("account", "time", "nodelist", "exclude")
    options = [f"#SBATCH --{n}={getattr(slurm, n)}" for n in names if getattr(slurm, n)]
    num_train_nodes = 1 if is_single else deployment.num_train_nodes
    num_infer_nodes = 0 if is_single else deployment.num_infer_nodes * deployment.num_infer_replicas
    on_last = not is_single and num_infer_nodes and deployment.orchestrator_on_inference
    servers = [
        f'    "$PYTHON" bin/env-server @ $CONFIG_DIR/envs/{split}/{s.resolved_name}.json &'
        for split, s, _ in config.orchestrator.env_servers
    ]
    values = {
        "job_name": slurm.job_name,
        "partition": slurm.partition,
        "options": "\n".join(options),
        "nodes": num_train_nodes + num_infer_nodes,
        "gpus": deployment.gpus_per_node,
        "num_train_nodes": num_train_nodes,
        "num_infer_nodes": num_infer_nodes,
        "orchestrator_rank": num_infer_nodes - 1 if on_last else num_infer_nodes,
        "router_port": 8000 if inference is None else inference.server.port,
        "project_dir": slurm.project_dir,
        "config_dir": folder,
        "run_dir": config.run_dir,
        "run_name": config.run.name,
        "pre_run_command": slurm.pre_run_command or "",
        "env_servers": "\n".join(servers),
        "env_vars": "\n".join(f'export {k}="{v}"' for k, v in config.env_vars.items()),
        "grace": slurm.cleanup_grace_period,
        "python": sys.executable,
    }
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"<<{name}>>", str(value))
    return text


def main() -> None:
    say("rl: this is a TEST DOUBLE of prime-rl; no result comes from it")
    if {"-h", "--help"} & set(sys.argv):
        # The library's own help takes seconds, and nobody here reads it.
        print("usage: rl [-h] [@ FILE] [OPTIONS]")
        return
    config = cli(RLConfig)
    os.environ.setdefault("PRL_RUN_ID", uuid.uuid4().hex)
    os.environ["PRL_RUN_NAME"] = config.run.name
    check_run_dir(config)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    step = -1
    if config.resume is not None and config.resume.dir is not None:
        step = int(config.resume.dir.name.removeprefix("step_"))
    elif config.resume is not None:
        at = config.ckpt.output_dir if config.ckpt and config.ckpt.output_dir else config.run_dir
        steps = checkpoint_steps(at / "checkpoints")
        step = config.resume.step or (steps[-1] if steps else -1)
    clean_future_steps(config.run_dir, step)
    folder = make_config_dir(config.run_dir)
    if LAYOUT == "newest":
        keep_inputs(folder)
    if config.slurm is None:
        run_here(config, folder)
    else:
        run_as_job(config, folder)
