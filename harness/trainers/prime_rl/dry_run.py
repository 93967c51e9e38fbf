"""Has prime-rl itself resolve a document, without starting anything: its `--dry-run`."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.runner.failure import read_tail
from harness.runner.refusal import names_keys
from harness.trainers.prime_rl.documents import write_document
from harness.trainers.prime_rl.environment import PYTHONPATH, without_own_code
from harness.trainers.prime_rl.export_loss import write_loss_file
from harness.trainers.prime_rl.loss_table import CUSTOM_PATH
from harness.trainers.prime_rl.output_error import explain_output
from harness.trainers.prime_rl.owned import CHECKPOINT_DIR_KEYS, RUN_ID_ENV
from harness.trainers.prime_rl.tables import get_value, set_value

PARTS = ("rl", "trainer", "orchestrator", "inference")
"""What prime-rl writes its resolved configuration as; the later ones hold what it starts."""
SCRIPTS = ("launcher/rl.sbatch", "rl.sbatch")
"""Where prime-rl renders the script of a multi-node run, below its run folder."""
FOLDER_WORD = "<folder>"
"""Stands for the folder of a dry run in what prime-rl resolved."""

PROBE_TIMEOUT_S = 120.0
DRY_RUN_TIMEOUT_S = 300.0

_DOCUMENT = "rl.json"
_LOG = "log.txt"
_OUTPUTS = "outputs"
_CHECKPOINTS = "checkpoints"
_RUN_ID = "0" * 32
_PLAIN_OUTPUT = {"COLUMNS": "1000", "NO_COLOR": "1"}
_GRACE_S = 2.0
_POLL_S = 0.02
_ATTEMPT = re.compile(r"attempt_(\d+)")
_NODES = re.compile(r"^#SBATCH\s+(?:--nodes[=\s]\s*|-N\s*)(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Resolved:
    """What prime-rl made of a document.

    Attributes:
        config: its parts (`trainer`, `orchestrator`, `inference`) with every default and derived
            value, and the keys of the document for which it wrote none. FOLDER_WORD stands for the
            folder of the dry run.
        has_script: whether it rendered a script for several nodes.
        nodes: that the script asks for; None where it doesn't say.
    """

    config: Mapping[str, Any]
    has_script: bool
    nodes: int | None


def has_program(command: Sequence[str], checkout: Path, env: Mapping[str, str]) -> bool:
    """Whether this machine has what `command` starts, as the system would find it."""
    # A path with a slash counts from the folder that it starts in.
    program = str(checkout / command[0]) if "/" in command[0] else command[0]
    return shutil.which(program, path=_environment(env, checkout).get("PATH")) is not None


def can_run(
    command: Sequence[str],
    checkout: Path,
    env: Mapping[str, str],
    *,
    timeout_s: float = PROBE_TIMEOUT_S,
) -> str | None:
    """Return None where `command` runs in `checkout` on this machine, else why not, in one line.

    Args:
        env: variables to set.
    """
    environment = _environment(env, checkout)
    if not has_program(command, checkout, env):
        return f"there is no program `{command[0]}` on this machine"
    if _makes_environment(command, checkout, environment):
        return f"`{checkout}` has no environment yet (`uv sync` makes it)"
    shown = f"`{' '.join([*command, '--help'])}`"
    try:
        with tempfile.TemporaryDirectory(prefix="ablation-") as folder:
            log = Path(folder) / _LOG
            code = _run([*command, "--help"], checkout, environment, log, timeout_s, None)
            text = read_tail(log)
    except TimeoutError:
        return f"{shown} did not end within {timeout_s:g} s"
    except OSError as error:
        return f"{shown} can't be started: {error.strerror}"
    if code == 0:
        return None
    return f"{shown} fails: {explain_output(text) or f'exit code {code}'}"


def dry_run(
    command: Sequence[str],
    checkout: Path,
    document: Mapping[str, Any],
    folder: Path,
    env: Mapping[str, str],
    *,
    timeout_s: float = DRY_RUN_TIMEOUT_S,
    stop: Event | None = None,
) -> Resolved:
    """Return what the prime-rl in `checkout` resolves `document` to.

    Nothing is written outside `folder`, which is there and empty: prime-rl's outputs and
    checkpoints are redirected into it.

    Args:
        env: variables to set.
        stop: ends the dry run early when it is set.

    Raises:
        UsageError: prime-rl refuses the document (with its key and message), can't be started,
            takes longer than `timeout_s`, or writes nothing that can be read.
        HarnessError: `stop` was set.
    """
    folder = folder.resolve()
    outputs = folder / _OUTPUTS
    redirected = copy.deepcopy(dict(document))
    redirected["output_dir"] = str(outputs)
    for key in CHECKPOINT_DIR_KEYS:
        if get_value(redirected, key) is not None:
            set_value(redirected, key, str(folder / _CHECKPOINTS))
    write_document(folder / _DOCUMENT, redirected)
    environment = _environment(env, checkout)
    if get_value(document, "trainer.loss.import_path") == CUSTOM_PATH:
        write_loss_file(folder)
        entries = [str(folder), environment.get(PYTHONPATH, "")]
        environment[PYTHONPATH] = os.pathsep.join(filter(None, entries))
    argv = [*command, "@", str(folder / _DOCUMENT), "--dry-run"]
    try:
        code = _run(argv, checkout, environment, folder / _LOG, timeout_s, stop)
    except TimeoutError:
        raise UsageError(
            f"prime-rl's dry run did not end within {timeout_s:g} s",
            f"try in `{checkout}`: {' '.join([*command, '--help'])}; trainer.validate=schema checks"
            " without it",
        ) from None
    except OSError as error:
        raise UsageError(
            f"`{command[0]}` can't be started: {error.strerror}", "check `trainer.command`"
        ) from None
    if code != 0:
        text = read_tail(folder / _LOG)
        raise UsageError(
            f"prime-rl refuses it: {explain_output(text) or f'exit code {code}, without a word'}",
            "change it in prime-rl's files, `trainer.native` or `trainer.patch`; prime-rl renames"
            " keys without aliases"
            if names_keys(text)
            else f"the dry run is started in `{checkout}`: does its environment have all that the"
            " files name?",
        )
    run_dir = outputs / str(get_value(document, "run.name", ""))
    resolved = _read_parts(run_dir, outputs)
    config = {key: value for key, value in redirected.items() if key not in resolved} | resolved
    script = next((run_dir / name for name in SCRIPTS if (run_dir / name).is_file()), None)
    nodes = None if script is None else _NODES.search(read_tail(script))
    return Resolved(
        config=_without_folder(config, str(folder)),
        has_script=script is not None,
        nodes=None if nodes is None else int(nodes[1]),
    )


def _makes_environment(
    command: Sequence[str], checkout: Path, environment: Mapping[str, str]
) -> bool:
    """Whether uv would first make an empty environment: a look must not change the checkout."""
    is_default = "UV_PROJECT_ENVIRONMENT" not in environment and "--active" not in command
    return Path(command[0]).name == "uv" and is_default and not (checkout / ".venv").is_dir()


def _environment(env: Mapping[str, str], checkout: Path) -> dict[str, str]:
    """Return what runs are started with, where that matters to how prime-rl reads its files."""
    environment = {**os.environ, **env, **_PLAIN_OUTPUT, "UV_NO_SYNC": "1", RUN_ID_ENV: _RUN_ID}
    programs = checkout / ".venv" / "bin"
    if programs.is_dir():
        environment["VIRTUAL_ENV"] = str(programs.parent)
        environment["PATH"] = os.pathsep.join([str(programs), environment.get("PATH", os.defpath)])
    return environment if PYTHONPATH in env else without_own_code(environment)


def _run(
    argv: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    timeout_s: float,
    stop: Event | None,
) -> int:
    """Return the exit code of a program that writes to `log`. No process of it is left behind.

    Raises:
        TimeoutError: it took longer than `timeout_s`.
        HarnessError: `stop` was set.
        OSError: it can't be started.
    """
    deadline = time.monotonic() + timeout_s
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if stop is not None and stop.is_set():
                raise HarnessError("the dry run was stopped")
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_S)
        return process.returncode
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _read_parts(run_dir: Path, outputs: Path) -> dict[str, Any]:
    """Return the resolved parts that a dry run wrote, by name; those of `rl` stand at the top."""
    configs = run_dir / "configs"
    attempts = sorted(
        (int(match[1]), path)
        for path in configs.glob("attempt_*")
        if (match := _ATTEMPT.fullmatch(path.name))
    )
    folders = [configs / "latest" / "resolved"]
    folders += [path / "resolved" for _, path in reversed(attempts)]
    folders += [configs, outputs / "configs"]
    for folder in folders:
        found = {part: folder / f"{part}.json" for part in PARTS}
        parts = {part: _read_json(path) for part, path in found.items() if path.is_file()}
        if parts:
            return parts.pop("rl", {}) | parts
    raise UsageError(
        f"prime-rl's dry run ended well, but left no resolved configuration in"
        f" `{configs.relative_to(outputs.parent)}`",
        "its layout may have changed: trainer.validate=schema checks without it",
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise UsageError(
            f"prime-rl's dry run wrote a `{path.name}` that is no JSON table",
            "trainer.validate=schema checks without it",
        )
    return content


def _without_folder(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        return {key: _without_folder(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folder(item, folder) for item in value]
    return value.replace(folder, FOLDER_WORD) if isinstance(value, str) else value
