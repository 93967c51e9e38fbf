"""harness compose: one resolved configuration, or what differs between two."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config.compose import compose_all, find_overruled
from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides
from harness.errors import UsageError
from harness.printable import printable
from harness.records.files import flatten, to_json
from harness.resources import CONF_DIR
from harness.sweep.difference import find_differences

ORIGIN = "command line"


def compose_command(
    *, overrides: Sequence[str], conf_dirs: Sequence[Path], diff: str | None, as_json: bool
) -> int:
    """Print the configuration as YAML-like lines or JSON to stdout."""
    conf = load_conf((CONF_DIR, *conf_dirs))
    requests = [parse_overrides(overrides, ORIGIN)]
    if diff is not None:
        try:
            words = shlex.split(diff)
        except ValueError as error:
            raise UsageError(f"--diff `{diff}` can't be read: {error}", "close the quote") from None
        requests.append(parse_overrides(words, "--diff"))
    for request in requests:
        found = find_overruled(request)
        if found is not None:
            raise UsageError(
                f"{found[0].where} has no effect: `{found[1].text}` overrules it",
                "remove one of the two",
            )
    composed = [dict(result.config) for result in compose_all(conf, requests)]
    if diff is None:
        print(to_json(composed[0]) if as_json else render_config(composed[0]), end="")
        return 0
    differences = find_differences(composed[1], composed[0])
    if as_json:
        print(to_json([dataclasses.asdict(d) for d in differences]), end="")
        return 0
    for difference in differences:
        print(
            f"{difference.key}: {show_value(difference.baseline)} -> {show_value(difference.arm)}"
        )
    if not differences:
        print("no difference")
    return 0


def render_config(config: dict[str, Any]) -> str:
    """Return one `key: value` line per leaf, grouped by a blank line between top groups."""
    lines: list[str] = []
    for top, value in config.items():
        leaves = flatten({top: value})
        if lines and len(leaves) > 1:
            lines.append("")
        lines.extend(f"{key}: {show_value(leaf)}" for key, leaf in leaves.items())
    return "\n".join(lines) + "\n"


def show_value(value: Any) -> str:
    """Return a value of a configuration for people, as YAML would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(str(value))
