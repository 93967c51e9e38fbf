"""`harness --help` against a bare typer program: python tests/benchmarks/start_up.py

Prints the ratio of the median wall times (goal: at most 1.5). Both are whole processes of this
interpreter, started in turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

NUM_ROUNDS = 15

BARE = """
import typer
app = typer.Typer()
@app.command()
def plan(sweep: str) -> None: pass
@app.command()
def run(sweep: str) -> None: pass
app(["--help"])
"""
OURS = "from harness.cli import run_command; run_command(['--help'])"


def time_program(program: str) -> float:
    """Return the wall seconds of one start of `program`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    ours, bare = [], []
    for _ in range(NUM_ROUNDS):
        ours.append(time_program(OURS))
        bare.append(time_program(BARE))
    ours_s, bare_s = statistics.median(ours), statistics.median(bare)
    print(f"harness --help {ours_s * 1000:.0f} ms, bare typer {bare_s * 1000:.0f} ms")
    print(f"ratio {ours_s / bare_s:.2f} (goal: at most 1.5)")
