"""The trainer `command`: any program, started by an argv template.

The program gets the run's resolved config as a file, logs one row of metrics per step to a file
below its trainer folder, continues from its newest checkpoint when it is started again, and ends
with exit code 0 once it has logged step `max_steps`. No shell is involved.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from harness.config.fields import choice, output
from harness.config.secret import looks_like_secret
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import RunPaths
from harness.trainers.interface import Command, Launch, RunFiles, RunName, Trainer

PLACEHOLDERS = (
    "python",
    "config",
    "run_dir",
    "trainer_dir",
    "shared_dir",
    "sweep",
    "arm",
    "seed",
    "attempt",
    "max_steps",
)
RESERVED_ENV_PREFIX = "HARNESS_"

_TRAINER_FOLDER = RunPaths(Path()).trainer_dir.name
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")


@dataclass(frozen=True, kw_only=True)
class CommandConfig:
    """The `trainer` group when `trainer.type` is `command`.

    Attributes:
        argv: program and arguments; `{seed}` and the other PLACEHOLDERS are filled in, a literal
            brace is doubled.
        metrics: file below the trainer folder that the program logs to.
        metrics_format: `prime_rl` and `jsonl` hold a JSON object per line, `csv` a header and
            rows.
        metrics_keys: canonical name (`step`, `mismatch_kl`, `solve_rate`, ...) -> its key there.
        code_dir: folder of the program's code. It is copied with the plan, and the program starts
            in the copy: editing it does not change runs that wait. None: nothing is copied.
        cwd: folder that the program starts in; None is where `harness run` was called.
        env: variables to set, values with the same placeholders. Never secrets: the config is a
            file that others read.
        checkpoints: folder below the trainer folder with one entry `step_<n>` per checkpoint.
        native: the program's own keys; it finds them in the config file.
    """

    type: str = choice("command", "command")
    argv: tuple[str, ...]
    metrics: str = "metrics.jsonl"
    metrics_format: str = choice("prime_rl", "prime_rl", "jsonl", "csv")
    metrics_keys: dict[str, str] = field(default_factory=dict)
    code_dir: str | None = output(None)
    cwd: str | None = output(None)
    env: dict[str, str] = field(default_factory=dict)
    checkpoints: str | None = None
    native: dict[str, Any] = field(default_factory=dict)


def command_files(config: Mapping[str, Any], _name: RunName) -> RunFiles:
    """Return where the program leaves its files."""
    trainer = config["trainer"]
    checkpoints = trainer["checkpoints"]
    return RunFiles(
        metrics=f"{_TRAINER_FOLDER}/{trainer['metrics']}",
        metrics_format=trainer["metrics_format"],
        metrics_keys=dict(trainer["metrics_keys"]),
        checkpoints=None if checkpoints is None else f"{_TRAINER_FOLDER}/{checkpoints}",
        checkpoints_format=None if checkpoints is None else "step_folders",
    )


def command_line(launch: Launch) -> Command:
    """Return the program with every placeholder filled in. Raises UsageError."""
    trainer = launch.config["trainer"]
    values = {
        "python": sys.executable,
        "config": str(launch.paths.config),
        "run_dir": str(launch.paths.root),
        "trainer_dir": str(launch.paths.trainer_dir),
        "shared_dir": str(launch.paths.sweep.shared_dir),
        "sweep": launch.sweep,
        "arm": launch.arm,
        "seed": str(launch.seed),
        "attempt": str(launch.attempt),
        "max_steps": str(launch.max_steps),
    }
    cwd = trainer["cwd"]
    return Command(
        argv=tuple(
            fill_placeholders(text, values, f"trainer.argv[{i}]")
            for i, text in enumerate(trainer["argv"])
        ),
        env={
            name: fill_placeholders(text, values, f"trainer.env.{name}")
            for name, text in trainer["env"].items()
        },
        cwd=launch.program_dir
        if cwd is None
        else Path(fill_placeholders(cwd, values, "trainer.cwd")),
    )


def fill_placeholders(text: str, values: Mapping[str, str], key: str) -> str:
    """Return `text` with each `{name}` replaced by its value, and doubled braces by single ones.

    Values are inserted as they are: braces in them mean nothing.

    Raises:
        UsageError: an unknown name or a single brace, naming `key`.
    """

    def replace(match: re.Match[str]) -> str:
        if match["stray"] is not None:
            raise UsageError(
                f"`{key}` is {text!r}: single `{match['stray']}`",
                f"write `{match['stray'] * 2}` for a literal brace",
            )
        name = match["name"]
        if name is None:
            return match[0][0]
        if name not in values:
            hint = did_you_mean(name, values, what="placeholders")
            raise UsageError(
                f"`{key}` is {text!r}: unknown placeholder `{{{name}}}`",
                f"{hint}; a literal brace is doubled: `{{{{{name}}}}}`",
            )
        return values[name]

    return _BRACES.sub(replace, text)


def check_command(config: Mapping[str, Any]) -> None:
    """Refuse what the types of the `trainer` group don't catch.

    Raises:
        UsageError: names the key and the value.
    """
    trainer = config["trainer"]
    samples = dict.fromkeys(PLACEHOLDERS, "")
    if not trainer["argv"]:
        raise UsageError(
            "`trainer.argv` is empty", "for example trainer.argv=['{python}',train.py,'{config}']"
        )
    texts = {f"trainer.argv[{i}]": text for i, text in enumerate(trainer["argv"])}
    texts |= {f"trainer.env.{name}": text for name, text in trainer["env"].items()}
    if trainer["cwd"] is not None:
        texts["trainer.cwd"] = trainer["cwd"]
        if trainer["code_dir"] is not None:
            raise UsageError(
                f"`trainer.cwd` is {trainer['cwd']!r} beside `trainer.code_dir`",
                "a program whose code is frozen starts in the copy: drop `trainer.cwd`",
            )
    if trainer["code_dir"] is not None and not Path(trainer["code_dir"]).is_dir():
        raise UsageError(
            f"`trainer.code_dir` is {trainer['code_dir']!r}, which is no folder",
            "give the folder that the program's files stand in",
        )
    for key, text in texts.items():
        fill_placeholders(text, samples, key)
        if "\0" in text:
            raise UsageError(
                f"`{key}` is {text!r}: no program can be given a zero byte", "leave it out"
            )
    for name in trainer["env"]:
        _check_env_name(name)
    _check_metrics_keys(trainer["metrics_keys"])
    for key in ("metrics", "checkpoints"):
        if trainer[key] is not None:
            _check_below(f"trainer.{key}", trainer[key])


def _check_env_name(name: str) -> None:
    key = f"trainer.env.{name}"
    if not name or "=" in name or "\0" in name:
        raise UsageError(
            f"`{key}`: {name!r} can't be the name of a variable", "use letters, digits and `_`"
        )
    if name.startswith(RESERVED_ENV_PREFIX):
        raise UsageError(
            f"`{key}`: names with {RESERVED_ENV_PREFIX} are the harness's own",
            "the program finds them set; choose another name",
        )
    if looks_like_secret(name):
        raise UsageError(
            f"`{key}` looks like a secret, and a config is a file that others read",
            f"export {name} in the shell that calls harness: the program inherits it",
        )


def _check_metrics_keys(metrics_keys: Mapping[str, str]) -> None:
    """Refuse names that nothing would ever look up."""
    if not metrics_keys:
        return
    from analysis.metrics import METRICS  # noqa: PLC0415 (only where keys are renamed)

    known = {*METRICS, "step", "tokens"}
    for name in metrics_keys:
        if name not in known:
            raise UsageError(
                f"`trainer.metrics_keys.{name}`: there is no metric `{name}`",
                did_you_mean(name, known, what="metrics"),
            )


def _check_below(key: str, value: str) -> None:
    path = PurePosixPath(value)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in value:
        raise UsageError(
            f"`{key}` is {value!r}, want a path below the run's trainer folder",
            "the program gets that folder as {trainer_dir}",
        )


TRAINER = Trainer(
    name="command",
    config_type=CommandConfig,
    files=command_files,
    command=command_line,
    is_deterministic=False,
    check=check_command,
    code_dir=lambda config: config["trainer"]["code_dir"],
)
