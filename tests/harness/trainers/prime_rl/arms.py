"""Configurations, launches and checkouts of prime-rl for tests: the declarations alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from harness.config.check import check_group
from harness.losses.config import parse_loss
from harness.records.layout import RunPaths
from harness.trainers.interface import Launch, RunName
from harness.trainers.prime_rl.documents import write_document
from harness.trainers.prime_rl.expand import expand
from harness.trainers.prime_rl.loss_schema import SCHEMAS, SOURCE_FILES
from harness.trainers.prime_rl.settings import PrimeRlConfig

NAME = RunName("toy", "ipo", 3, "0" * 16)
SHOWN = "toy-ipo-s3"


def make_checkout(folder: Path, *, version: str = "newest", is_git: bool = False) -> Path:
    """Make a folder that declares the losses of a version, as a checkout of prime-rl does."""
    lines = ["from typing import Any, Literal"]
    for i, (tag, knobs) in enumerate(SCHEMAS[version].knobs.items()):
        lines += [f"class Loss{i}:", f'    type: Literal["{tag}"] = "{tag}"']
        lines += [f"    {knob}: Any" for knob in knobs]
    members = " | ".join(f"Loss{i}" for i in range(len(SCHEMAS[version].knobs)))
    path = folder / SOURCE_FILES[0]
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([*lines, f"LossConfig = {members}", ""]), encoding="utf-8")
    if is_git:
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "a state")
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def make_config(
    checkout: Path, *base: Path | str, loss: dict[str, Any] | None = None, **trainer: Any
) -> dict[str, Any]:
    """Return a checked config, not expanded."""
    data = {"checkout": str(checkout), "base": [str(path) for path in base], **trainer}
    return {
        "loss": dict(vars(parse_loss(loss or {"type": "ipo"}))),
        "trainer": check_group(PrimeRlConfig, data, "trainer", lambda key: "test"),
        "seed": 3,
        "max_steps": 20,
    }


def expand_document(
    folder: Path, document: dict[str, Any], version: str = "newest", **settings: Any
) -> dict[str, Any]:
    """Return the expanded config of one base file."""
    checkout = folder / "checkout"
    if not checkout.exists():
        make_checkout(checkout, version=version)
    write_document(folder / "base.json", document)
    return expand(make_config(checkout, folder / "base.json", **settings))


def make_launch(
    folder: Path, config: dict[str, Any], *, attempt: int = 1, stamp: str | None = None
) -> Launch:
    """Return a launch of the run NAME, below `folder`; all attempts before it are claimed."""
    paths = RunPaths(folder / "outputs" / "toy" / "runs" / "ipo" / "seed_3")
    paths.trainer_dir.mkdir(parents=True, exist_ok=True)
    for number in range(1, attempt):
        paths.attempt(number).root.mkdir(parents=True, exist_ok=True)
        paths.attempt(number).claim.touch()
    return Launch(
        paths,
        {key: value for key, value in config.items() if key != "max_steps"},
        NAME,
        attempt=attempt,
        max_steps=20,
        inputs_dir=paths.attempt(attempt).inputs_dir,
        program_stamp=stamp,
        code_hash="c" * 64,
    )
