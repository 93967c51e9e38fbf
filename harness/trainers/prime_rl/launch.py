"""Starts prime-rl for one attempt of a run: the files it reads, and the script that runs it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.files import write_atomic
from harness.trainers.interface import Command, Launch
from harness.trainers.prime_rl.documents import write_document
from harness.trainers.prime_rl.environment import PYTHONPATH, without_own_code
from harness.trainers.prime_rl.export_loss import write_loss_file
from harness.trainers.prime_rl.needs import FATAL_NAMES, OWN_PORTS, is_multi_node
from harness.trainers.prime_rl.owned import (
    CHECKPOINT_DIR_KEYS,
    RUN_ID_ENV,
    pre_run_command,
    run_id,
    run_name,
)
from harness.trainers.prime_rl.ports import lease_ports
from harness.trainers.prime_rl.render import is_custom, render_document
from harness.trainers.prime_rl.run_folder import METRICS_FILES, RunFolder
from harness.trainers.prime_rl.settings import find_checkout
from harness.trainers.prime_rl.stamp import stamp
from harness.trainers.prime_rl.start import prime_rl_resume
from harness.trainers.prime_rl.tables import get_table, get_value

DOCUMENT, SCRIPT, BATCH_SCRIPT = "rl.json", "launch.sh", "rl.sbatch"

_NO_SYNC_ENV = {"UV_NO_SYNC": "1"}
_ENV_TABLES = ("env_vars", "trainer.env_vars")
"""What prime-rl sets for its trainer, over what it was started with."""

_HEAD = """\
#!/usr/bin/env bash
# Starts {title}, attempt {attempt}, with prime-rl. Written by the harness, which executes it.
set -e
cd {checkout}
if [ -f .env ]; then source .env; fi
if [ -f .venv/bin/activate ]; then source .venv/bin/activate; fi
"""
_MULTI_NODE = """\
# prime-rl writes the script that starts all its parts on the nodes of this job.
{command} @ {document} --dry-run
rendered={run_folder}/launcher/{batch_script}
if [ ! -f "$rendered" ]; then rendered={run_folder}/{batch_script}; fi
if [ ! -f "$rendered" ]; then
  echo "error: prime-rl's dry run wrote no {batch_script} in {run_folder_text}" >&2
  exit 1
fi
# Many runs share the checkout, and concurrent syncs would break its environment.
sed -E 's/^[[:space:]]*uv sync([[:space:]][^;&|\\\\]*)?$/: # no sync/' "$rendered" > {copy}
# A task ends with its first part, and a clean end doesn't end the others: srun has to.
sed -i 's/^srun --kill-on-bad-exit=1 /&--wait=${{SLURM_WAIT:-300}} /' {copy}
# This shell outlives a SIGTERM to all, so that what srun started can end before it.
trap : TERM
set +e
(trap : TERM; set -e; source {copy})
code=$?
if {is_finished}; then exit 0; fi
exit $code
"""


def command(launch: Launch) -> Command:
    """Return how to start prime-rl, with the files it reads written to `launch.inputs_dir`.

    It goes on from the newest whole checkpoint of an earlier attempt. Without one, files of an
    earlier attempt are moved aside. Ports are held until this process ends.

    Raises:
        HarnessError: the checkout is gone or another version than planned, no port is free, a path
            that prime-rl's multi-node script can't bear, or files of a run that no attempt began.
    """
    trainer = launch.config["trainer"]
    checkout = find_checkout(trainer)
    _check_stamp(launch)
    is_spread = is_multi_node(trainer["native"])
    if is_spread:
        _check_paths(launch)
    folder = _run_folder(launch, checkout)
    if not _has_begun(launch):
        folder.refuse_used()
    step = folder.newest_whole_step()
    moved = folder.move_aside() if step is None else []
    notes = [f"no whole checkpoint: what an earlier start left is in {path}" for path in moved]
    if step is not None:
        notes.append(f"going on from the checkpoint of step {step}")
    has_own_ports = not is_spread and trainer["ports"] == OWN_PORTS
    document = render_document(
        launch.config,
        launch.name,
        launch.max_steps,
        launch.paths.trainer_dir.absolute(),
        resume_step=step,
        ports=lease_ports(run_id(launch.name)) if has_own_ports else None,
    )
    if step is None and launch.start is not None:
        document |= prime_rl_resume(launch.start)
        notes.append(f"starting from the checkpoint {launch.start.checkpoint}")
    inputs = launch.inputs_dir.absolute()
    inputs.mkdir(parents=True, exist_ok=True)
    if is_custom(document):
        if os.pathsep in str(inputs):
            raise HarnessError(
                f"`{inputs}` holds `{os.pathsep}`, so it can't stand in {PYTHONPATH}",
                "choose another folder for the outputs",
            )
        write_loss_file(inputs, launch.code_hash)
        _add_to_env_tables(document, inputs)
    write_document(inputs / DOCUMENT, document)
    text = _script(launch, checkout, inputs, notes, has_loss=is_custom(document))
    write_atomic(inputs / SCRIPT, text)
    return Command(argv=("bash", str(inputs / SCRIPT)), env=_environment(launch), cwd=checkout)


def _check_stamp(launch: Launch) -> None:
    if launch.program_stamp is None:
        return
    now = stamp(launch.config)
    if now is not None and now.text != launch.program_stamp:
        raise HarnessError(
            f"the prime-rl in `{launch.config['trainer']['checkout']}` changed since the plan:"
            f" {_short(launch.program_stamp)} then, {_short(now.text)} now",
            "take the change back, or `harness run` the sweep: it plans anew",
        )


def _short(text: str) -> str:
    commit, _, changes = text.partition("+")
    return f"{commit[:12]}+{changes[:8]}" if changes else commit[:12]


def _check_paths(launch: Launch) -> None:
    """Refuse paths that prime-rl's multi-node script would split, or kill processes by."""
    for path in (launch.paths.trainer_dir.absolute(), launch.inputs_dir.absolute()):
        for name in FATAL_NAMES:
            if name in str(path):
                raise HarnessError(
                    f"`{path}` holds `{name}`: prime-rl's multi-node script kills every process"
                    " whose command line does",
                    "rename the sweep, the arm or the folder of the outputs",
                )
        if re.search(r"\s", str(path)):
            raise HarnessError(
                f"`{path}` holds a space, and prime-rl's multi-node script does not quote it",
                "choose another folder for the outputs",
            )


def _run_folder(launch: Launch, checkout: Path) -> RunFolder:
    native = launch.config["trainer"]["native"]
    shown = run_name(launch.name)
    for key in reversed(CHECKPOINT_DIR_KEYS):
        folder = get_value(native, key)
        if folder is not None:
            return RunFolder(launch.paths.trainer_dir / shown, checkout / str(folder) / shown)
    return RunFolder(launch.paths.trainer_dir / shown)


def _has_begun(launch: Launch) -> bool:
    """Whether an attempt before this one came as far as to start prime-rl."""
    return any(
        attempt.number < launch.attempt and (attempt.inputs_dir / DOCUMENT).is_file()
        for attempt in launch.paths.attempts()
    )


def _add_to_env_tables(document: Mapping[str, Any], inputs: Path) -> None:
    """Keep the exported loss importable where the document itself sets PYTHONPATH."""
    for key in _ENV_TABLES:
        table = get_table(document, key)
        if isinstance(table, dict) and isinstance(table.get(PYTHONPATH), str):
            table[PYTHONPATH] = os.pathsep.join((str(inputs), table[PYTHONPATH]))


def _environment(launch: Launch) -> dict[str, str]:
    """Return what the script is started with, beside what it sets itself."""
    env = dict(launch.config["trainer"]["env"])
    if PYTHONPATH not in env and PYTHONPATH in os.environ:
        env[PYTHONPATH] = without_own_code(os.environ)[PYTHONPATH]
    return _NO_SYNC_ENV | env | {RUN_ID_ENV: run_id(launch.name)}


def _script(
    launch: Launch, checkout: Path, inputs: Path, notes: Sequence[str], *, has_loss: bool
) -> str:
    trainer = launch.config["trainer"]
    head = _HEAD.format(
        title=f"{launch.sweep}/{launch.arm}/seed_{launch.seed}",
        attempt=launch.attempt,
        checkout=shlex.quote(str(checkout)),
    )
    # After `.env`, which must not rename the run.
    lines = [f"echo {shlex.quote(f'harness: {note}')}" for note in notes]
    exports = _NO_SYNC_ENV | trainer["env"] | {RUN_ID_ENV: run_id(launch.name)}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    if has_loss:
        path = shlex.quote(str(inputs))
        lines.append(f"export {PYTHONPATH}={path}${{{PYTHONPATH}:+:${PYTHONPATH}}}")
    program = " ".join(shlex.quote(word) for word in trainer["command"])
    document = shlex.quote(str(inputs / DOCUMENT))
    if is_multi_node(trainer["native"]):
        folder = str(launch.paths.trainer_dir.absolute() / run_name(launch.name))
        run_folder = _run_folder(launch, checkout)
        tail = _MULTI_NODE.format(
            command=program,
            document=document,
            run_folder=shlex.quote(folder),
            run_folder_text=folder,
            batch_script=BATCH_SCRIPT,
            copy=shlex.quote(str(inputs / BATCH_SCRIPT)),
            is_finished=_is_finished(trainer["native"], run_folder, launch.max_steps),
        )
    else:
        prepare = pre_run_command(trainer["native"], launch.name)
        lines += [] if prepare is None else ["# slurm.pre_run_command", prepare]
        tail = f"exec {program} @ {document}\n"
    return head + _joined(lines) + tail


def _is_finished(native: Mapping[str, Any], folder: RunFolder, max_steps: int) -> str:
    """Return the shell's test for a run that made its last step, however its nodes ended."""
    if get_table(native, "ckpt") is not None or get_table(native, "trainer.ckpt") is not None:
        parts = folder.parts_of(max_steps)
        return " && ".join(f"[ -f {shlex.quote(str(part))} ]" for part in parts)
    files = " ".join(shlex.quote(str(folder.root / name)) for name in METRICS_FILES)
    row, key = f'"step": {max_steps}[,}}]', '"(loss|optim|perf)/'
    return f"grep -hsE {shlex.quote(row)} {files} | grep -qE {shlex.quote(key)}"


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
