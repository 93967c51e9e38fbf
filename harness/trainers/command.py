"""The trainer `command`: any program, started by an argv template.

The program gets the run's resolved config as a file, and its own keys in a form that it reads
(`render`). It logs its metrics below its trainer folder, continues from its newest checkpoint when
it is started again, and ends with exit code 0 once it has logged step `max_steps`. No shell is
involved.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from harness.checkpoint import Checkpoint
from harness.config.fields import choice, output
from harness.config.secret import looks_like_secret
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.files import flatten, write_atomic
from harness.records.layout import RunPaths
from harness.trainers.interface import (
    Candidate,
    Command,
    Launch,
    Progress,
    RunFiles,
    RunName,
    Trainer,
    Verdict,
)
from harness.trainers.native_config import (
    FILE_RENDERINGS,
    NONE,
    RENDERINGS,
    WORD_RENDERINGS,
    FlagsConfig,
    check_native,
    fill_native,
    render_file,
    render_words,
)

PLACEHOLDERS = (
    "python",
    "config",
    "run_dir",
    "trainer_dir",
    "shared_dir",
    "sweep",
    "arm",
    "seed",
    "replicate",
    "attempt",
    "max_steps",
)
NATIVE = "native"
"""Placeholder in `argv` and `env` for what `trainer.native` was rendered to."""
START_PLACEHOLDERS = ("start_checkpoint", "start_step")
"""Of a sweep with `start_from`: the parent's checkpoint, and the step that it is of."""
RESERVED_ENV_PREFIX = "HARNESS_"
METRICS_FORMATS = ("prime_rl", "jsonl", "csv", "verl", "trainer_state", "tensorboard")

_TRAINER_FOLDER = RunPaths(Path()).trainer_dir.name
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")


@dataclass(frozen=True, kw_only=True)
class CommandConfig:
    """The `trainer` group when `trainer.type` is `command`.

    Attributes:
        argv: program and arguments; `{seed}` and the other PLACEHOLDERS are filled in, a literal
            brace is doubled. `{replicate}` is 1, 2, … in the replicates of an arm and 0 elsewhere.
            A fork gets `{start_checkpoint}` and `{start_step}` at every start: it is to prefer
            checkpoints of its own.
        metrics: file below the trainer folder that the program logs to, or a folder for the
            formats that are one.
        metrics_format: `prime_rl` and `jsonl` hold a JSON object per line, `csv` a header and
            rows. `verl` is its file logger's file, `trainer_state` an output folder of TRL or
            transformers, `tensorboard` a folder of event files. `verl` and `tensorboard` may be a
            folder with one folder `attempt_<k>` per attempt.
        metrics_keys: canonical name (`step`, `mismatch_kl`, `solve_rate`, ...) -> its key there.
        code_dir: folder of the program's code. It is copied with the plan, and the program starts
            in the copy: editing it does not change runs that wait. None: nothing is copied.
        cwd: folder that the program starts in; None is where `harness run` was called.
        env: variables to set, values with the same placeholders. Never secrets: the config is a
            file that others read.
        checkpoints: folder below the trainer folder with one entry `step_<n>` per checkpoint.
        native: the program's own keys; it finds them in the config file, or where `render` says.
        render: what `{native}` in `argv` and `env` stands for. `yaml`, `toml`, `json`: path of a
            file with the keys of `native`. `hydra` (`a.b=1`) and `flags` (`--a.b 1`): an item of
            `argv` that is exactly `{native}` becomes one or more items per key. Placeholders in
            texts of `native` are then filled in.
        flags: how `render: flags` writes keys.
    """

    type: str = choice("command", "command")
    argv: tuple[str, ...]
    metrics: str = "metrics.jsonl"
    metrics_format: str = choice("prime_rl", *METRICS_FORMATS)
    metrics_keys: dict[str, str] = field(default_factory=dict)
    code_dir: str | None = output(None)
    cwd: str | None = output(None)
    env: dict[str, str] = field(default_factory=dict)
    checkpoints: str | None = None
    native: dict[str, Any] = field(default_factory=dict)
    # How keys reach a program isn't part of what it computes: a run's identity stays.
    render: str = choice(NONE, *RENDERINGS, is_output=True)
    flags: FlagsConfig = output(default_factory=FlagsConfig)


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


@dataclass(frozen=True)
class Filled:
    """What a program is given, with every placeholder filled in.

    Attributes:
        native: its own keys; empty where nothing is rendered.
        file: name and content of the file that holds them; None where there is none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    native: Mapping[str, Any]
    file: tuple[str, str] | None


def command_line(launch: Launch) -> Command:
    """Return the program with every placeholder filled in; write what it reads its keys from.

    Raises UsageError.
    """
    values = {
        "python": sys.executable,
        "config": str(launch.paths.config),
        "run_dir": str(launch.paths.root),
        "trainer_dir": str(launch.paths.trainer_dir),
        "shared_dir": str(launch.paths.sweep.shared_dir),
        "sweep": launch.sweep,
        "arm": launch.arm,
        "seed": str(launch.seed),
        "replicate": str(launch.config.get("replicate", 0)),
        "attempt": str(launch.attempt),
        "max_steps": str(launch.max_steps),
    }
    if launch.start is not None:
        values["start_checkpoint"] = str(launch.start.checkpoint)
        values["start_step"] = str(launch.start.step)
    filled = fill_command(launch.config["trainer"], values, launch.inputs_dir)
    if filled.file is not None:
        name, content = filled.file
        write_atomic(launch.inputs_dir / name, content)
    return Command(
        argv=filled.argv,
        env=filled.env,
        cwd=launch.program_dir if filled.cwd is None else Path(filled.cwd),
    )


def fill_command(trainer: Mapping[str, Any], values: Mapping[str, str], inputs_dir: Path) -> Filled:
    """Return what a program is given; its own keys stand below `inputs_dir` or are arguments.

    Args:
        values: of PLACEHOLDERS.

    Raises:
        UsageError: names the key.
    """
    render = trainer.get("render", NONE)  # not in the configs of sweeps planned before it was a key
    native: Mapping[str, Any] = {}
    words: tuple[str, ...] = ()
    file = None
    with_native = values
    if render != NONE:
        native = fill_native(
            trainer["native"], lambda text, key: fill_placeholders(text, values, key)
        )
    if render in WORD_RENDERINGS:
        words = render_words(render, native, trainer["flags"])
    elif render != NONE:
        file = (f"{NATIVE}.{render}", render_file(render, native))
        with_native = {**values, NATIVE: str(inputs_dir / file[0])}
    argv: list[str] = []
    for i, text in enumerate(trainer["argv"]):
        if text == f"{{{NATIVE}}}" and file is None:
            argv += words
        else:
            argv.append(fill_placeholders(text, with_native, f"trainer.argv[{i}]"))
    cwd = trainer["cwd"]
    return Filled(
        argv=tuple(argv),
        env={
            name: fill_placeholders(text, with_native, f"trainer.env.{name}")
            for name, text in trainer["env"].items()
        },
        cwd=None if cwd is None else fill_placeholders(cwd, values, "trainer.cwd"),
        native=native,
        file=file,
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
    samples = dict.fromkeys((*PLACEHOLDERS, *START_PLACEHOLDERS), "0")
    if not trainer["argv"]:
        raise UsageError(
            "`trainer.argv` is empty", "for example trainer.argv=['{python}',train.py,'{config}']"
        )
    argv = {f"trainer.argv[{i}]": text for i, text in enumerate(trainer["argv"])}
    texts = argv | {f"trainer.env.{name}": text for name, text in trainer["env"].items()}
    _check_render(trainer["render"], argv, texts)
    for key, text in texts.items():
        fill_placeholders(text, {**samples, NATIVE: ""}, key)
    if trainer["cwd"] is not None:
        texts["trainer.cwd"] = trainer["cwd"]
        fill_placeholders(trainer["cwd"], samples, "trainer.cwd")
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
        if "\0" in text:
            raise UsageError(
                f"`{key}` is {text!r}: no program can be given a zero byte", "leave it out"
            )
    for name in trainer["env"]:
        check_env_name(name)
    check_native(
        trainer["render"],
        trainer["native"],
        trainer["flags"],
        lambda text, key: fill_placeholders(text, samples, key),
    )
    _check_metrics_keys(trainer["metrics_keys"])
    for key in ("metrics", "checkpoints"):
        if trainer[key] is not None:
            _check_below(f"trainer.{key}", trainer[key])


def _check_render(render: str, argv: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Refuse `{native}` where nothing is rendered, and a rendering that no program would see."""
    shown = f"{{{NATIVE}}}"
    users = [key for key, text in texts.items() if NATIVE in find_placeholders(text)]
    if render == NONE:
        if users:
            raise UsageError(
                f"`{users[0]}` is {texts[users[0]]!r}, but `trainer.render` is none",
                f"choose what {shown} stands for: {', '.join(RENDERINGS[1:])}",
            )
        return
    if not users:
        where = "`trainer.argv` or `trainer.env`" if render in FILE_RENDERINGS else "`trainer.argv`"
        raise UsageError(
            f"`trainer.render` is {render}, but {where} has no {shown}: the program would never "
            "see its keys",
            f"add an item {shown}, or set trainer.render=none",
        )
    for key in users if render in WORD_RENDERINGS else ():
        if key not in argv or texts[key] != shown:
            raise UsageError(
                f"`{key}` is {texts[key]!r}, but `trainer.render` {render} gives several arguments",
                f"write {shown} as an item of `trainer.argv` of its own",
            )


def check_start(config: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
    """Refuse a fork whose program would not be told, and the placeholders of a fork elsewhere.

    Raises:
        UsageError: names the key.
    """
    used = {
        name: key
        for key, text in _templates(config["trainer"]).items()
        for name in find_placeholders(text)
        if name in START_PLACEHOLDERS
    }
    if checkpoint is None and used:
        name, key = next(iter(used.items()))
        raise UsageError(
            f"`{key}` uses `{{{name}}}`, and the sweep has no `start_from`",
            "add `start_from: {run: SWEEP/ARM/SEED, step: N}` to the sweep, or leave it out",
        )
    if checkpoint is not None and not used:
        raise UsageError(
            "`trainer.argv` uses neither `{start_checkpoint}` nor `{start_step}`: the program would"
            " start from scratch",
            "tell it, for example '--start={start_checkpoint}'",
        )


def _templates(trainer: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the `trainer` group with placeholders, by key."""
    texts = {f"trainer.argv[{i}]": text for i, text in enumerate(trainer["argv"])}
    texts |= {f"trainer.env.{name}": text for name, text in trainer["env"].items()}
    if trainer["cwd"] is not None:
        texts["trainer.cwd"] = trainer["cwd"]
    if trainer.get("render", NONE) != NONE:
        leaves = flatten({"trainer": {NATIVE: trainer[NATIVE]}})
        texts |= {key: value for key, value in leaves.items() if isinstance(value, str)}
    return texts


def find_placeholders(text: str) -> set[str]:
    """Return the names in single braces; `{{seed}}` is none."""
    return {match["name"] for match in _BRACES.finditer(text) if match["name"] is not None}


def check_env_name(name: str) -> None:
    """Refuse a name in `trainer.env` that can't be set, is the harness's own or holds a secret."""
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


def _validate(
    candidates: Sequence[Candidate], baseline: str, may_differ: Sequence[str], progress: Progress
) -> Verdict:
    from harness.trainers.command_gate import validate  # noqa: PLC0415 (it imports this module)

    return validate(candidates, baseline, may_differ, progress)


TRAINER = Trainer(
    name="command",
    config_type=CommandConfig,
    files=command_files,
    command=command_line,
    is_deterministic=False,
    check=check_command,
    code_dir=lambda config: config["trainer"]["code_dir"],
    validate=_validate,
    check_start=check_start,
)
