"""Whole processes whose standard streams are closed, full, or read by nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs" / "trains.py"
SWEEP = f"""
question: "q"
baseline: ipo
seeds: [0]
common:
  - trainer=command
  - task=external
  - model=external
  - max_steps=3
  - "trainer.argv=['{{python}}', '{PROGRAM}', '{{trainer_dir}}/metrics.jsonl', '0']"
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
analysis: {{last_steps: 2, baseline_steps: [1, 2]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a sweep that has run."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "sweeps").mkdir()
    (folder / "sweeps" / "study.yaml").write_text(SWEEP)
    assert shell(folder, "run study --no-report 2>/dev/null").returncode == 0
    return folder


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Run `harness WORDS` by bash, redirections included; its exit code is the first command's."""
    ignored = ("HARNESS_", "PYTHONUNBUFFERED")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ignored)}
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m harness {words}; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
@pytest.mark.parametrize("command", ["plan study", "status study", "plan --help"])
def test_output_that_cannot_be_written_is_an_error(folder: Path, command: str, to: str) -> None:
    done = shell(folder, f"{command} {to}")
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: the output can't be written: ")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("command", ["plan study", "status study", "logs study ipo/0", "--help"])
def test_a_reader_that_has_gone_is_no_error(folder: Path, command: str) -> None:
    # The reader ends before anything is written to it.
    done = shell(folder, f"{command} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_usage_error_stays_one_where_stdout_is_full(folder: Path) -> None:
    done = shell(folder, "plan studdy >/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no sweep `studdy`")


@pytest.mark.parametrize("to", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | true", "<&- 2>&-"])
def test_a_run_goes_on_where_nobody_can_read_its_stderr(folder: Path, to: str) -> None:
    steps = {"2>&-": 4, "2>/dev/full": 5, "2>&1 >/dev/null | true": 6, "<&- 2>&-": 7}[to]
    words = f"run study max_steps={steps} --no-report --reuse-across-code"
    assert shell(folder, f"{words} {to}").returncode == 0
    metrics = folder / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    assert len(metrics.read_text().splitlines()) == steps


def test_failed_runs_count_where_nobody_reads_the_report(tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "study.yaml").write_text(SWEEP.replace("trains.py", "raises.py"))
    done = shell(tmp_path, "run study | true")
    assert done.returncode == 1
    assert "error: 2 failed of 2 runs" in done.stderr


def test_an_interrupt_while_modules_load_is_told_in_one_line(folder: Path) -> None:
    # The interrupt comes from an import of the first module that the command line loads.
    (folder / "hooks").mkdir()
    (folder / "hooks" / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'harness.cli.app':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "harness", "plan", "study"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "hooks")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        128 + signal.SIGINT,
        "",
        "interrupted\n",
    )
