"""TEST DOUBLE of a prime-rl checkout. Nothing of prime-rl is in it, and no result comes from it.

It has what the harness reads or calls: the declarations of the configs (the keys that this project
uses, under prime-rl's names), and a program `rl` that follows prime-rl's launch contract strictly.
It trains nothing: its numbers are made of the loss's knobs, the step and the run's id. What it can
be told to do wrong stands in `sources/part.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

Layout = Literal["august", "newest"]

_SOURCES = Path(__file__).parent / "sources"
_CONFIGS = Path("packages/prime-rl-configs/src/prime_rl")
_CODE = Path("src/prime_rl")
_PLACES = {
    "base.py": _CONFIGS / "utils/config.py",
    "validation.py": _CONFIGS / "utils/validation.py",
    "layout.py": _CONFIGS / "utils/layout.py",
    "shared.py": _CONFIGS / "configs/shared.py",
    "monitors.py": _CONFIGS / "configs/monitors.py",
    "trainer.py": _CONFIGS / "configs/trainer.py",
    "orchestrator.py": _CONFIGS / "configs/orchestrator.py",
    "inference.py": _CONFIGS / "configs/inference.py",
    "rl.py": _CONFIGS / "configs/rl.py",
    "launcher.py": _CODE / "entrypoints/rl.py",
    "pathing.py": _CODE / "utils/pathing.py",
    "part.py": _CODE / "part.py",
    "orchestrate.py": _CODE / "orchestrate.py",
    "train.py": _CODE / "trainer/rl/train.py",
    "loss.py": _CODE / "trainer/rl/loss.py",
    "multi_node_rl.sbatch": _CODE / "templates/multi_node_rl.sbatch",
    "single_node_rl.sbatch": _CODE / "templates/single_node_rl.sbatch",
}
_PROGRAMS = {
    "rl": "prime_rl.entrypoints.rl:main",
    "inference": "prime_rl.orchestrate:inference",
    "env-server": "prime_rl.orchestrate:env_server",
    "orchestrator": "prime_rl.orchestrate:orchestrator",
    "torchrun": "prime_rl.trainer.rl.train:train",
}
_PROGRAM = """\
#!{python}
# TEST DOUBLE of a program of prime-rl. No result comes from it.
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT / "src"), str(ROOT / "packages/prime-rl-configs/src")]

from {module} import {name}

{name}()
"""


def make_checkout(folder: Path, *, layout: Layout = "august", git: bool = True) -> Path:
    """Make a folder that looks like a prime-rl checkout; returns it as an absolute path.

    Args:
        folder: must not be there. For jobs on several nodes no part of its path may hold a name
            that prime-rl's script kills.
        layout: `august` (2026-08-21, losses as of pull request 2798) or `newest`.
        git: whether it is committed to a git repository of its own.
    """
    folder = folder.resolve()
    for source, place in _PLACES.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(source, layout), encoding="utf-8")
    (folder / "bin").mkdir()
    for program, entry in _PROGRAMS.items():
        module, _, name = entry.partition(":")
        path = folder / "bin" / program
        path.write_text(_PROGRAM.format(python=sys.executable, module=module, name=name))
        path.chmod(0o755)
    (folder / "README.md").write_text(f"{__doc__}\nLayout: {layout}.\n", encoding="utf-8")
    (folder / ".gitignore").write_text("__pycache__/\n.venv/\n.env\noutputs/\n", encoding="utf-8")
    if git:
        commit(folder, "A test double of a prime-rl checkout")
    return folder


def rl_command(checkout: Path) -> list[str]:
    """Return how the double's `rl` is called: no `uv` and no environment of its own is needed."""
    return [sys.executable, str(checkout / "bin" / "rl")]


def commit(folder: Path, message: str) -> str:
    """Commit all that stands in `folder`, a git repository from then on; returns the commit."""
    git = ["git", "-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null"]
    git += ["-c", "user.name=Test Double", "-c", "user.email=double@example.invalid"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", message]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    shown = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    )
    return shown.stdout.strip()


def _text(source: str, layout: Layout) -> str:
    """Return a file of the double: as it stands in `sources`, or as this layout has it."""
    if source == "loss.py":
        return (_SOURCES.parents[1] / "loss_stand_in.py").read_text(encoding="utf-8")
    if source == "layout.py":
        return (_SOURCES / f"layout_{layout}.py").read_text(encoding="utf-8")
    text = (_SOURCES / source).read_text(encoding="utf-8")
    if source != "trainer.py":
        return text
    # prime-rl declares its losses in the trainer's own file.
    losses = (_SOURCES / f"losses_{layout}.py").read_text(encoding="utf-8")
    text = text.replace("from losses import DEFAULT_LOSS, LossConfig\n", "")
    if layout == "newest":
        text = re.sub(r"    enable_token_export: .*\n", "", text)
    return f"{losses}\n\n{text}"
