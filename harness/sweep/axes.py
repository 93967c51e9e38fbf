"""`grid:` and `zip:` of a sweep file: arms along the values of some keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.override import Override, parse_overrides, to_override
from harness.errors import UsageError
from harness.near import did_you_mean

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def expand_axis(axis: str, content: Any, path: Path) -> list[tuple[str, tuple[Override, ...]]]:
    """Return name and overrides of every arm of the `grid` or `zip` block `content`.

    Raises:
        UsageError: names the block and what is wrong in it.
    """
    if not isinstance(content, Mapping):
        raise UsageError(
            f"`{path}`: `{axis}` is {content!r}, want names with axes",
            f"write `{axis}: {{ipo_{{eps}}: {{axes: {{loss.eps: [0.1, 0.2]}}}}}}`",
        )
    arms = []
    for template, body in content.items():
        where = f"`{path}`: {axis} `{template}`"
        if not isinstance(body, Mapping) or not isinstance(body.get("axes"), Mapping):
            raise UsageError(
                f"{where} has no `axes`", "write `axes: {loss.eps: [0.1, 0.2]}` below it"
            )
        for key in body:
            if key not in ("overrides", "axes"):
                raise UsageError(
                    f"{where}: unknown key `{key}`", did_you_mean(str(key), ("overrides", "axes"))
                )
        axes: dict[str, list[Any]] = {}
        for key, values in body["axes"].items():
            if not isinstance(values, list) or not values:
                raise UsageError(
                    f"{where}: axis `{key}` is {values!r}, want a list of values", "write `[a, b]`"
                )
            axes[str(key)] = values
        texts = body.get("overrides") or []
        if not isinstance(texts, list):
            raise UsageError(
                f"{where}: `overrides` is {texts!r}, want a list", "write `overrides: [loss=ipo]`"
            )
        base = parse_overrides(texts, where)
        for values in _combine(axis, axes, where):
            chosen = dict(zip(axes, values, strict=True))
            name = _fill_name(str(template), chosen, where)
            values_set = [to_override(key, value) for key, value in chosen.items()]
            arms.append((name, base + parse_overrides(values_set, where)))
    return arms


def _combine(axis: str, axes: Mapping[str, list[Any]], where: str) -> list[tuple[Any, ...]]:
    if axis == "grid":
        return list(itertools.product(*axes.values()))
    lengths = {key: len(values) for key, values in axes.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(
            f"{where}: the axes have unequal lengths {lengths}", "zip walks all axes together"
        )
    return list(zip(*axes.values(), strict=True))


def _fill_name(template: str, chosen: Mapping[str, Any], where: str) -> str:
    short = {key.split(".")[-1]: key for key in chosen}

    def fill(match: re.Match[str]) -> str:
        word = match.group(1)
        key = word if word in chosen else short.get(word)
        if key is None:
            raise UsageError(
                f"{where}: the name uses `{{{word}}}`, which is no axis",
                did_you_mean(word, [*chosen, *short], what="axes"),
            )
        return str(chosen[key]).lower() if isinstance(chosen[key], bool) else str(chosen[key])

    return _PLACEHOLDER.sub(fill, template)
