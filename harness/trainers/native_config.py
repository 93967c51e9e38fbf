"""Renders `trainer.native`, a program's own keys, into what that program reads.

Everything that a rendering can't hold is refused with the key's name; `check_native` does so when
a sweep is planned. What is rendered reads back as the same data, with any parser of the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.fields import choice
from harness.config.override import to_override
from harness.errors import UsageError

NONE = "none"
FILE_RENDERINGS = ("yaml", "toml", "json")
"""Written to a file; each is its suffix, too."""
WORD_RENDERINGS = ("hydra", "flags")
"""Given as arguments."""
RENDERINGS = (NONE, *FILE_RENDERINGS, *WORD_RENDERINGS)

NUMBERS = ("seed", "attempt", "max_steps")
"""Placeholders that stand for a whole number where they are the whole of a value."""

_ROOT = "trainer.native"
_NUMBER = re.compile(rf"\{{({'|'.join(NUMBERS)})\}}")

_HYDRA_NAME = r"[A-Za-z_$][A-Za-z0-9_$-]*"
_HYDRA_KEY = re.compile(
    rf"\+{{0,2}}(?:{_HYDRA_NAME}(?:\.(?:{_HYDRA_NAME}|0|[1-9][0-9]*))*"
    r"|[A-Za-z_][A-Za-z0-9_-]*(?:/[A-Za-z_][A-Za-z0-9_-]*)+)"
    rf"(?:@{_HYDRA_NAME}(?:\.{_HYDRA_NAME})*)?"
)
_HYDRA_ITEM_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HYDRA_WORDS = frozenset({"null", "true", "false", "inf", "nan"})

_FLAG_NAME = re.compile(r"[^\s=\0-][^\s=\0]*")
_PLAIN_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")

_YAML_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_OTHER = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some version of YAML reads as something else than text."""

Fill = Callable[[str, str], str]
"""From a text and the key that it stands at to the text with its placeholders filled in."""


@dataclass(frozen=True, kw_only=True)
class FlagsConfig:
    """How `render: flags` writes keys. A null is left out, a list is one flag with several words.

    Attributes:
        bools: `bare` gives `--key` for true and nothing for false (switches), `value` gives
            `--key true` or `--key false`.
        joined_by: stands between the names of nested keys.
        dashes: whether `_` in names becomes `-`.
    """

    bools: str = choice("bare", "bare", "value")
    joined_by: str = "."
    dashes: bool = False


def fill_native(native: Mapping[str, Any], fill: Fill) -> dict[str, Any]:
    """Return `native` with the placeholders in its texts filled in; keys stay as they are.

    A text that is nothing but one of `NUMBERS` becomes a whole number. Raises UsageError.
    """
    return {key: _filled(value, f"{_ROOT}.{key}", fill) for key, value in native.items()}


def render_file(render: str, native: Mapping[str, Any]) -> str:
    """Return `native`, filled in, as a document in one of FILE_RENDERINGS. Raises UsageError."""
    _refuse_surrogates(native)
    if render == "json":
        return json.dumps(native, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if render == "toml":
        from harness.trainers.prime_rl.toml_text import to_toml  # noqa: PLC0415 (where needed)

        _refuse_nulls(native, _ROOT)
        return to_toml(native)
    assert render == "yaml", render
    return _to_yaml(native)


def render_words(
    render: str, native: Mapping[str, Any], flags: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return `native`, filled in, as arguments in one of WORD_RENDERINGS. Raises UsageError."""
    _refuse_surrogates(native)
    if render == "hydra":
        words = tuple(_hydra_words(native, ""))
    else:
        assert render == "flags", render
        words = tuple(_flag_words(native, flags))
    return words


def check_native(
    render: str, native: Mapping[str, Any], flags: Mapping[str, Any], fill: Fill
) -> None:
    """Refuse what can't be rendered; `fill` puts in samples (`0`). Raises UsageError."""
    if render in FILE_RENDERINGS:
        render_file(render, fill_native(native, fill))
    elif render in WORD_RENDERINGS:
        render_words(render, fill_native(native, fill), flags)


def _filled(value: Any, key: str, fill: Fill) -> Any:
    if isinstance(value, str):
        text = fill(value, key)
        return int(text) if _NUMBER.fullmatch(value) else text
    if isinstance(value, Mapping):
        return {name: _filled(item, f"{key}.{name}", fill) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(item, f"{key}[{i}]", fill) for i, item in enumerate(value)]
    return value


def _refuse_surrogates(native: Mapping[str, Any]) -> None:
    for key, value in _leaves(native, _ROOT):
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"`{ascii(key)[1:-1]}` is {value!a}, which is no Unicode text",
                "leave those characters out",
            ) from None


def _refuse_nulls(native: Mapping[str, Any], key: str) -> None:
    for name, value in _leaves(native, key):
        if value is None:
            raise UsageError(
                f"`{name}` is null, which TOML can't say",
                "leave the key out, or choose trainer.render=yaml or json",
            )


def _leaves(value: Any, key: str) -> list[tuple[str, Any]]:
    """Return every value that is no list and no group, items of lists included, by its key."""
    if isinstance(value, Mapping) and value:
        return [leaf for name, item in value.items() for leaf in _leaves(item, f"{key}.{name}")]
    if isinstance(value, (list, tuple)) and value:
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, f"{key}[{i}]")]
    return [(key, value)]


def _to_yaml(native: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 (only for this rendering)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Versions of YAML differ in what they read as a number or a switch: only words are plain.
        is_word = _YAML_WORD.fullmatch(text) and text.lower() not in _YAML_OTHER
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style=None if is_word else '"'
        )

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(
        dict(native),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=float("inf"),
    )
    return text


def _hydra_words(group: Mapping[str, Any], prefix: str) -> list[str]:
    """Return one override per leaf; what is empty is a leaf, too."""
    words = []
    for name, value in group.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            words += _hydra_words(value, f"{key}.")
            continue
        if not _HYDRA_KEY.fullmatch(key):
            raise UsageError(
                f"`{_ROOT}.{key}`: Hydra can't name `{key}` in an override",
                "use letters, digits, `_` and `-`; a leading `+` adds a key",
            )
        _check_hydra_items(value, f"{_ROOT}.{key}")
        _refuse_zero_bytes(value, f"{_ROOT}.{key}")
        words.append(to_override(key, value))
    return words


def _check_hydra_items(value: Any, key: str) -> None:
    """Refuse keys of groups in lists that Hydra would not read as the text that they are."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not _HYDRA_ITEM_KEY.fullmatch(name) or name.lower() in _HYDRA_WORDS:
                raise UsageError(
                    f"`{key}` has the key {name!r}, which Hydra can't hold in a list",
                    "use letters, digits, `_` and `-`",
                )
            _check_hydra_items(item, f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_hydra_items(item, f"{key}[{i}]")


def _flag_words(native: Mapping[str, Any], flags: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    keys: dict[str, str] = {}
    for key, name, value in _flag_leaves(native, flags["joined_by"], _ROOT, ""):
        flag = f"--{name.replace('_', '-') if flags['dashes'] else name}"
        if not _FLAG_NAME.fullmatch(flag[2:]):
            raise UsageError(
                f"`{key}`: `{flag}` can't be a flag", "leave spaces, `=` and a leading `-` out"
            )
        if flag in keys:
            raise UsageError(
                f"`{keys[flag]}` and `{key}` are both `{flag}`", "rename or drop one of them"
            )
        keys[flag] = key
        _refuse_zero_bytes(value, key)
        words += _words_of_flag(flag, value, key, has_switches=flags["bools"] == "bare")
    return words


def _flag_leaves(
    group: Mapping[str, Any], joined_by: str, key: str, prefix: str
) -> list[tuple[str, str, Any]]:
    """Return (our key, name of the flag without dashes in front, value) of every leaf."""
    leaves = []
    for name, value in group.items():
        here, flag = f"{key}.{name}", f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            leaves += _flag_leaves(value, joined_by, here, f"{flag}{joined_by}")
        else:
            leaves.append((here, flag, value))
    return leaves


def _words_of_flag(flag: str, value: Any, key: str, *, has_switches: bool) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool) and has_switches:
        return [flag] if value else []
    if isinstance(value, Mapping) or (isinstance(value, list) and not value):
        raise UsageError(f"`{key}` is empty: no flag can say that", "leave the key out")
    if not isinstance(value, list):
        word = _word(value)
        # A word that begins like a flag is one, unless it is joined to its own.
        return [f"{flag}={word}"] if word.startswith("-") else [flag, word]
    words = [flag]
    for i, item in enumerate(value):
        if item is None or isinstance(item, (list, Mapping)):
            raise UsageError(
                f"`{key}[{i}]` is {_named(item)}: a flag takes a list of texts and numbers",
                "render such keys to a file: trainer.render=yaml",
            )
        word = _word(item)
        if word.startswith("-") and not _PLAIN_NEGATIVE.fullmatch(word):
            raise UsageError(
                f"`{key}[{i}]` is `{word}`, which would be read as a flag",
                "render such keys to a file: trainer.render=yaml",
            )
        words.append(word)
    return words


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _named(item: Any) -> str:
    return "null" if item is None else "a list" if isinstance(item, list) else "a group"


def _refuse_zero_bytes(value: Any, key: str) -> None:
    for name, leaf in _leaves(value, key):
        if isinstance(leaf, str) and "\0" in leaf:
            raise UsageError(
                f"`{name}` is {leaf!r}: no program can be given a zero byte", "leave it out"
            )
