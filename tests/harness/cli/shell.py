"""A working folder with a sweep of small real programs, and the commands typed there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[1] / "programs"
SWEEP = """
question: does it run?
baseline: ipo
seeds: [0, 1]
common:
  - trainer=command
  - task=external
  - model=external
  - max_steps=5
  - "trainer.argv=['{{python}}', '{program}', '{{trainer_dir}}/metrics.jsonl'{more}]"
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
analysis: {{last_steps: 3, baseline_steps: [1, 2]}}
"""


@dataclass(frozen=True)
class Shell:
    """A working folder in which commands are typed.

    Attributes:
        env: variables beside those of the tests' own environment.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, text: str, name: str = "study") -> None:
        (self.folder / "sweeps").mkdir(exist_ok=True)
        (self.folder / "sweeps" / f"{name}.yaml").write_text(text)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Type `harness ARGUMENTS`; `options` are those of subprocess.Popen."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("HARNESS_")}
        return subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments],
            cwd=self.folder,
            env={**env, **self.env},
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def states(self, name: str = "study") -> dict[str, str]:
        code, out, err = self.run("status", name, "--json")
        assert (code, err) == (0, "")
        return {f"{s['arm']}/{s['seed']}": s["state"] for s in json.loads(out)}

    def read(self, path: str) -> dict[str, Any]:
        content = json.loads((self.folder / "outputs" / path).read_text())
        assert isinstance(content, dict)
        return content


def sweep_text(program: str, *more: str) -> str:
    """Return a sweep whose runs are a program of tests/harness/programs."""
    words = "".join(f", '{word}'" for word in more)
    return SWEEP.format(program=PROGRAMS / f"{program}.py", more=words)


def wait_until(holds: Callable[[], bool], what: str = "the condition") -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.05)
