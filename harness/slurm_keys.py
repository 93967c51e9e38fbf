"""What each key of a SLURM profile may hold, and the forms that its file may write it in."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from harness.config.check import Locate, check_value
from harness.config.fields import Limits, limits_of
from harness.config.secret import looks_like_secret_url
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.printable import one_line
from harness.slurm_options import check_options, check_text, unknown_key_hint
from harness.slurm_time import TIME_HINT, read_minutes

MEMORY_KEYS = ("mem", "mem_per_cpu", "mem_per_gpu")
"""At most one of them is set."""
FINISH_KEYS = ("partition", "account", "qos", "time", "mem", "cpus_per_task", "sbatch")
"""What `finish` may override for the job that ends a submission."""
_LISTS = ("setup", "srun_args")
_ENDLESS = ("unlimited", "infinite", "infinity", "-1")
_MAIL_TYPES = (
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
)
_WORD = re.compile(r"[\w.,:@%+=/~-]+")
_MEMORY = re.compile(r"[0-9]{1,12}[KMGT]?", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
_URL = re.compile(r"https?://[^\s/]+\S*")


def check_keys(
    kind: type[Any],
    data: Mapping[Any, Any],
    allowed: tuple[str, ...],
    key: str,
    locate: Locate,
    *,
    overrides: bool,
) -> dict[str, Any]:
    """Return the keys that stand in `data`, each checked by itself and in its one form.

    Args:
        kind: dataclass of the profile.
        allowed: fields of `kind` that may stand here.
        key: dotted key of the group, for messages; empty for the file itself.
        overrides: whether they override those of a profile.

    Raises:
        UsageError: a key is unknown or not allowed here, or its value of another form.
    """
    known = {spec.name: spec for spec in fields(kind)}
    hints = typing.get_type_hints(kind)
    checked: dict[str, Any] = {}
    for name, value in data.items():
        dotted = one_line(join_key(key, name))
        if name not in known:
            raise UsageError(
                f"{locate(dotted)}: unknown key `{dotted}`", unknown_key_hint(str(name), allowed)
            )
        if name not in allowed:
            raise UsageError(
                f"{locate(dotted)}: `{dotted}` can't be set here, it holds for the whole profile",
                f"keys here: {', '.join(f'`{other}`' for other in allowed)}",
            )
        if name == "sbatch":
            checked[name] = check_options(value, dotted, locate, overrides=overrides)
        elif name == "finish" and value is not None:
            group = _check_group(value, dotted, locate)
            checked[name] = check_keys(kind, group, FINISH_KEYS, dotted, locate, overrides=True)
        else:
            formed = value if value is None else _FORMS.get(name, _as_it_is)(value, dotted, locate)
            if formed is None and name in _LISTS:
                formed = ()
            limits = limits_of(known[name])
            final = check_value(hints[name], formed, limits, dotted, locate)
            checked[name] = tuple(final) if isinstance(final, list) else final
    return checked


def _as_it_is(value: Any, key: str, locate: Locate) -> Any:
    return value


def _read_lines(value: Any, key: str, locate: Locate) -> Any:
    lines = check_value(tuple[str, ...], value, Limits(), key, locate)
    for i, line in enumerate(lines):
        check_text(line, f"{key}[{i}]", locate)
        if line.lstrip().startswith("#SBATCH"):
            raise UsageError(
                f"{locate(key)}: `{key}[{i}]` is an option of sbatch: {line!r}",
                "write it under `sbatch:`, such as `sbatch: {constraint: h100}`",
            )
    return lines


def _read_srun_args(value: Any, key: str, locate: Locate) -> Any:
    arguments = _read_lines(value, key, locate)
    for i, argument in enumerate(arguments):
        if re.fullmatch(r"--export(?!=ALL(?:,|$)).*", argument):
            raise UsageError(
                f"{locate(key)}: `{key}[{i}]` is {argument!r}, but a run gets its folder by"
                " environment",
                "leave it out, or begin with `ALL`: `--export=ALL,NAME=value`",
            )
        if re.fullmatch(r"(?:-[oe]|--output|--error).*", argument):
            raise UsageError(
                f"{locate(key)}: `{key}[{i}]` is {argument!r}, and a run's output belongs into one"
                " log",
                "leave it out; `harness logs` shows the output",
            )
    return arguments


def _read_shell(value: Any, key: str, locate: Locate) -> str:
    text: str = check_value(str, value, Limits(), key, locate)
    check_text(text, key, locate)
    return text


def _read_word(value: Any, key: str, locate: Locate) -> str:
    text = _read_shell(value, key, locate)
    if not _WORD.fullmatch(text):
        raise UsageError(
            f"{locate(key)}: `{key}` is {text!r}", "use letters, digits and `.,:@%+=/~_-` only"
        )
    return text


def _read_mail_type(value: Any, key: str, locate: Locate) -> str:
    text = _read_word(value, key, locate)
    for word in text.split(","):
        if word not in _MAIL_TYPES:
            raise UsageError(
                f"{locate(key)}: `{key}` holds {word!r}, which is no type of mail",
                did_you_mean(word.upper(), _MAIL_TYPES, what="types"),
            )
    return text


def _read_time(value: Any, key: str, locate: Locate) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    minutes = read_minutes(value) if isinstance(value, str) else None
    if minutes is None:
        hint = TIME_HINT
        if str(value).strip().lower() in _ENDLESS:
            hint = "leave it out for the partition's own; a run that meets its limit goes on later"
        raise UsageError(f"{locate(key)}: `{key}` is {value!r}, which is no time limit", hint)
    return minutes


def _read_memory(value: Any, key: str, locate: Locate) -> str:
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _MEMORY.fullmatch(text):
        raise UsageError(
            f"{locate(key)}: `{key}` is {value!r}, want an amount of memory",
            "write a whole number with K, M, G or T, such as 64G; without a letter it is MB",
        )
    return text


def _read_gpus(value: Any, key: str, locate: Locate) -> Any:
    if isinstance(value, str) and not value.isdecimal():
        raise UsageError(
            f"{locate(key)}: `{key}` is {value!r}, want a whole number",
            'for a type of GPU write `sbatch: {gres: "gpu:h100:8"}`',
        )
    return value


def _read_notify(value: Any, key: str, locate: Locate) -> dict[str, str]:
    data = _check_group(value, key, locate)
    for name in data:
        if name not in ("command", "webhook"):
            raise UsageError(
                f"{locate(key)}: unknown key `{one_line(join_key(key, name))}`",
                did_you_mean(str(name), ("command", "webhook"), what="keys"),
            )
    if len(data) != 1:
        raise UsageError(
            f"{locate(key)}: `{key}` has {len(data)} keys, want one",
            "write `{command: …}` or `{webhook: $NAME}`",
        )
    if "command" in data:
        return {"command": _read_shell(data["command"], f"{key}.command", locate)}
    return {"webhook": _read_webhook(data["webhook"], f"{key}.webhook", locate)}


def _read_webhook(value: Any, key: str, locate: Locate) -> str:
    text: str = check_value(str, value, Limits(), key, locate)
    if _VARIABLE.fullmatch(text):
        return f"${text.strip('${}')}"
    if looks_like_secret_url(text):
        raise UsageError(
            f"{locate(key)}: `{key}` looks like a URL that is a secret",
            "keep it in the environment and write the variable's name: `webhook: $MY_WEBHOOK`",
        )
    check_text(text, key, locate)
    if not _URL.fullmatch(text):
        raise UsageError(
            f"{locate(key)}: `{key}` is {text!r}, want a URL",
            "write https://…, or $NAME of the variable that holds it",
        )
    return text


def _check_group(value: Any, key: str, locate: Locate) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    raise UsageError(
        f"{locate(key)}: `{key}` is {value!r}, want a group of keys", "write `{a: 1, b: 2}`"
    )


_FORMS: Mapping[str, Callable[[Any, str, Locate], Any]] = {
    **dict.fromkeys(("partition", "account", "qos", "mail_user"), _read_word),
    **dict.fromkeys(MEMORY_KEYS, _read_memory),
    "setup": _read_lines,
    "srun_args": _read_srun_args,
    "time": _read_time,
    "gpus_per_node": _read_gpus,
    "mail_type": _read_mail_type,
    "python": _read_shell,
    "notify": _read_notify,
}
"""Key -> what turns a value of the file into the one that the dataclass holds."""


def join_key(prefix: str, name: Any) -> str:
    """Return the dotted key of `name` in the group `prefix`."""
    return f"{prefix}.{name}" if prefix else str(name)
