"""TEST DOUBLES of prime-rl's `rl`, as programs of a few lines. No result comes from them."""

from __future__ import annotations

import sys
from pathlib import Path

_HEAD = """\
#!{python} -S
# TEST DOUBLE of prime-rl's `rl`. No result comes from it.
import json, os, sys, time
from pathlib import Path

if "--help" in sys.argv:
    print("usage: rl [-h] [@ FILE] [OPTIONS]")
    sys.exit(0)
assert sys.argv[1] == "@" and sys.argv[3:] == ["--dry-run"], sys.argv
document = json.loads(Path(sys.argv[2]).read_text())
run_dir = Path(document["output_dir"]) / document["run"]["name"]


def write(name, content, folder="configs"):
    path = run_dir / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


"""

RESOLVES = """\
trainer = document.get("trainer", {}) | {"output_dir": str(run_dir), "dtype": "bfloat16"}
write("trainer.json", trainer)
write("orchestrator.json", {"batch_size": 128} | document.get("orchestrator", {}))
"""
"""Fills in a default of each part, as prime-rl does."""


def make_rl(folder: Path, body: str = RESOLVES) -> tuple[str, ...]:
    """Write a program `rl` to `folder` that does `body` for a dry run; returns its command."""
    return make_program(folder / "rl", _HEAD.format(python=sys.executable) + body)


def make_program(path: Path, text: str) -> tuple[str, ...]:
    """Write an executable script; returns its command."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return (str(path),)
