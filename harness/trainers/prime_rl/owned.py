"""Keys of prime-rl that name a run or bound it: taken out of its files, set where a run starts.

So that arms never share a tracker's run, a folder, a sandbox or a checkpoint, and so that a run's
identity holds what it computes, not what it is called.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records.files import flatten
from harness.trainers.interface import RunName
from harness.trainers.prime_rl.loss_table import LOSS_KEY
from harness.trainers.prime_rl.tables import get_table, get_value, is_null, set_value

RUN_ID_ENV = "PRL_RUN_ID"
"""What trackers know a run by: prime-rl makes it up where nobody sets it."""
PRE_RUN_KEY = "slurm.pre_run_command"
CHECKPOINT_DIR_KEYS = ("ckpt.output_dir", "trainer.ckpt.output_dir")
SESSION_KEY = "weight_broadcast.session_id"

_PARTS = ("", "trainer.", "orchestrator.")
WANDB_TABLES = tuple(f"{part}{table}" for table in ("monitors.wandb", "wandb") for part in _PARTS)
PRIME_TABLES = ("monitors.prime", "orchestrator.monitors.prime")
RESUME_TABLES = tuple(f"{part}resume" for part in _PARTS)
MAX_STEPS_KEYS = tuple(f"{part}max_steps" for part in _PARTS)

OWNED_KEYS = (
    "run.name",
    "run.dir",
    *(f"{part}output_dir" for part in _PARTS),
    *MAX_STEPS_KEYS,
    *(f"{table}.{key}" for table in WANDB_TABLES for key in ("name", "group", "tags")),
    *(f"{table}.name" for table in PRIME_TABLES),
    *(
        f"slurm.{key}"
        for key in ("job_name", "partition", "nodelist", "exclude", "account", "time")
    ),
    SESSION_KEY,
)
"""Taken out of every document. Labels, the pre-run command and CHECKPOINT_DIR_KEYS stay in it, and
get the run's name where it starts."""

_SWITCHES = ("clean", "dry_run")
_OFF = (False, None, "None", "false", "False", 0)
_FILE_TABLES = tuple(f"{part}monitors.file" for part in _PARTS)
_METRICS_FILE = "metrics.jsonl"
_ENV_TABLES = (
    "env_vars",
    *(f"{part}.env_vars" for part in ("trainer", "orchestrator", "inference")),
    *(f"inference.deployment.{part}_env_vars" for part in ("prefill", "decode")),
)
_LAUNCHER_ENV = (
    RUN_ID_ENV,
    "PRL_RUN_NAME",
    "WANDB_RUN_ID",
    *(f"WANDB_SHARED_{part}" for part in ("MODE", "LABEL", "PRIMARY", "FINISHER")),
    "CUDA_VISIBLE_DEVICES",
)
"""Variables that prime-rl's launcher sets for each of its parts, and refuses in _ENV_TABLES."""
_BEFORE_LABEL = r"(?<![^\s\"'=,(])"
_AFTER_LABEL = r"(?![^\s\"',;|&)])"


def run_name(name: RunName) -> str:
    """Return what prime-rl, its trackers and its folder call a run."""
    return f"{name.sweep}-{name.arm}-s{name.seed}"


def run_id(name: RunName) -> str:
    """Return the run's id in trackers: the same for all its attempts, another for other runs, and
    for another execution of the same run."""
    text = f"{name.sweep}/{name.arm}/seed_{name.seed}/{name.identity}/{name.nonce}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def take_owned(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `document` without its loss and the keys that the harness sets, and those keys.

    Returns:
        The rest, and what was taken out by dotted key. Tables whose mere presence means something
        to prime-rl stay where they become empty.

    Raises:
        UsageError: `trainer` or another table above such a key is no table.
    """
    rest = copy.deepcopy(dict(document))
    taken: dict[str, Any] = {}
    loss = _pop(rest, LOSS_KEY)
    if loss is not _ABSENT:
        is_table = isinstance(loss, Mapping) and loss
        taken |= flatten({LOSS_KEY: loss}) if is_table else {}
    for key in OWNED_KEYS:
        value = _pop(rest, key)
        if value is not _ABSENT:
            taken[key] = value
    for key in RESUME_TABLES:
        if all(is_null(value) for value in (get_table(rest, key) or {}).values()):
            _pop(rest, key)
    for key in _SWITCHES:
        if rest.get(key) in _OFF:
            rest.pop(key, None)
    for name in ("run", "trainer"):
        if rest.get(name) == {}:
            del rest[name]
    return rest, taken


def refuse_unusable(document: Mapping[str, Any], where: str) -> None:
    """Refuse what a run of the harness can't be started with.

    Args:
        document: without the keys that `take_owned` takes out.
        where: names the files, for messages.

    Raises:
        UsageError: a switch that deletes the run or doesn't start it, a step to resume at, metrics
            in another place or nowhere, variables that prime-rl keeps to itself.
    """
    for key in _SWITCHES:
        if key in document:
            raise UsageError(
                f"{where}: `{key}` is {document[key]!r}",
                "leave it out: the harness decides whether a run starts anew, and checks the arms"
                " itself",
            )
    for key in RESUME_TABLES:
        step = get_value(document, f"{key}.step")
        if step is not None:
            raise UsageError(
                f"{where}: `{key}.step` is {step!r}, but a run goes on from its newest checkpoint",
                "leave it out; to fork another run, give `resume.dir`",
            )
    for key in _FILE_TABLES:
        above = get_value(document, key.rpartition(".")[0], {})
        if isinstance(above, Mapping) and "file" in above and is_null(above["file"]):
            raise UsageError(
                f"{where}: `{key}` is null, so that no metrics would be there to read",
                "leave it out",
            )
        path = get_value(document, f"{key}.path")
        if path not in (None, _METRICS_FILE):
            raise UsageError(
                f"{where}: `{key}.path` is {path!r}, but metrics are read from `{_METRICS_FILE}`",
                "leave it out",
            )
    for key in _ENV_TABLES:
        variables = get_value(document, key)
        for name in _LAUNCHER_ENV if isinstance(variables, Mapping) else ():
            if name in variables:
                raise UsageError(
                    f"{where}: `{key}.{name}` is {variables[name]!r}, but prime-rl sets that"
                    " variable itself and refuses it there",
                    "leave it out: each run and each part of it gets its own",
                )


def name_document(document: dict[str, Any], name: RunName, trainer_dir: Path) -> None:
    """Set in place what makes `document` that of one run, beside its steps."""
    shown = run_name(name)
    set_value(document, "run.name", shown)
    set_value(document, "output_dir", str(trainer_dir))
    tags = [name.sweep, name.arm, f"seed {name.seed}"]
    for key in WANDB_TABLES:
        table = get_value(document, key)
        if isinstance(table, dict):
            table |= {"name": shown, "group": name.sweep, "tags": tags}
    for key in CHECKPOINT_DIR_KEYS:
        folder = get_value(document, key)
        if folder is not None:
            set_value(document, key, f"{str(folder).rstrip('/')}/{shown}")
    if get_value(document, "weight_broadcast.type") == "nixl":
        set_value(document, SESSION_KEY, run_id(name))
    slurm = get_value(document, "slurm")
    if isinstance(slurm, dict):
        command = pre_run_command(document, name)
        slurm |= {"job_name": shown} | ({} if command is None else {"pre_run_command": command})
    for labels in _label_lists(document.get("orchestrator")):
        labels[:] = [f"{label}-{shown}" for label in labels]


def pre_run_command(document: Mapping[str, Any], name: RunName) -> str | None:
    """Return the shell command of `document` with labels, where they stand as words, as those of
    one run; None where there is none.

    Args:
        document: not named yet.
    """
    command = get_value(document, PRE_RUN_KEY)
    labels = find_labels(document)
    if not isinstance(command, str) or not labels:
        return command if isinstance(command, str) else None
    shown = run_name(name)
    words = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    pattern = re.compile(f"{_BEFORE_LABEL}(?:{words}){_AFTER_LABEL}")
    return pattern.sub(lambda match: f"{match[0]}-{shown}", command)


def find_labels(document: Mapping[str, Any]) -> list[str]:
    """Return the labels of the sandboxes that the sources of `document` make, each once."""
    lists = _label_lists(document.get("orchestrator"))
    return list(dict.fromkeys(label for labels in lists for label in labels))


def _label_lists(value: Any) -> Iterator[list[str]]:
    """Yield every `labels` that is a list of text, below `value`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "labels" and isinstance(item, list) and item:
                if all(isinstance(label, str) for label in item):
                    yield item
            else:
                yield from _label_lists(item)
    elif isinstance(value, list):
        for item in value:
            yield from _label_lists(item)


_ABSENT = object()


def _pop(document: dict[str, Any], dotted: str) -> Any:
    above, _, name = dotted.rpartition(".")
    table = get_table(document, above) if above else document
    return table.pop(name, _ABSENT) if isinstance(table, dict) else _ABSENT
