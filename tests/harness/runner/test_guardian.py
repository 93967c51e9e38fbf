"""The guardian: real processes that are killed and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.runner.guardian import NAME
from harness.runner.process import environment_of, kill_marked, pids_with, process_start

WaitUntil = Callable[..., None]

RUNNER = textwrap.dedent("""
    import os, subprocess, sys
    from harness.runner.guardian import start_guardian
    from harness.runner.process import adopt_orphans
    marks = {"GUARDED": sys.argv[1]}
    guardian = start_guardian(marks)
    adopt_orphans()
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
    mine = subprocess.Popen(sleeper, env={**os.environ, **marks}, start_new_session=True)
    other = subprocess.Popen(sleeper, env={**os.environ, "GUARDED": "another"},
                             start_new_session=True)
    print(mine.pid, other.pid, flush=True)
    if sys.argv[2] == "dismiss":
        guardian.dismiss()
        print("dismissed", flush=True)
    sys.stdin.read()
""")


class Runner:
    """A stand-in for a runner: it has a guardian, and two children of which one is marked."""

    def __init__(self, mark: str, ending: str) -> None:
        self.mark = mark
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, mark, ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.marked, self.other = map(int, self.process.stdout.readline().split())
        if ending == "dismiss":
            self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def make_runner(tmp_path: Path) -> Iterator[Callable[[str], Runner]]:
    made: list[Runner] = []

    def make(ending: str = "stay") -> Runner:
        made.append(Runner(str(tmp_path), ending))
        return made[-1]

    yield make
    for runner in made:
        runner.kill()
        runner.close()
        for pid in (runner.marked, runner.other):
            if process_start(pid):
                os.kill(pid, signal.SIGKILL)


def guardians_of(runner: Runner) -> list[int]:
    """Return the guardians whose program is that of `runner`: they were forked from it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != runner.process.pid:
            try:
                name = (entry / "comm").read_text().strip()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if name == NAME and os.fsencode(runner.mark) in words:
                found.append(int(entry.name))
    return found


def test_guardian_ends_what_a_killed_runner_started_and_then_itself(
    make_runner: Callable[[str], Runner], wait_until: WaitUntil
) -> None:
    runner = make_runner("stay")
    wait_until(lambda: guardians_of(runner))
    [guardian] = guardians_of(runner)
    assert os.getsid(guardian) not in (os.getsid(runner.process.pid), os.getsid(0))
    runner.kill()
    wait_until(lambda: not process_start(runner.marked), "the end of the marked process")
    wait_until(lambda: not process_start(guardian), "the guardian's end")
    assert process_start(runner.other)


def test_dismissed_guardian_is_gone_and_ends_nothing(
    make_runner: Callable[[str], Runner], wait_until: WaitUntil
) -> None:
    runner = make_runner("dismiss")
    wait_until(lambda: not guardians_of(runner), "the guardian's end")
    runner.kill()
    assert process_start(runner.marked)


def test_guardian_holds_nothing_of_the_runner(
    make_runner: Callable[[str], Runner], wait_until: WaitUntil
) -> None:
    runner = make_runner("stay")
    wait_until(lambda: guardians_of(runner))
    [guardian] = guardians_of(runner)
    wait_until(lambda: Path(f"/proc/{guardian}/cwd").readlink() == Path("/"))
    targets = {str(fd.readlink()) for fd in Path(f"/proc/{guardian}/fd").iterdir()}
    assert targets - {os.devnull} == {t for t in targets if t.startswith("pipe:")}
    assert len(targets) == 2
    assert runner.process.stdout is not None
    assert os.readlink(f"/proc/self/fd/{runner.process.stdout.fileno()}") not in targets  # noqa: PTH115


def test_marked_processes_are_found_by_all_their_marks() -> None:
    env = {**os.environ, "GUARDED": "x", "ATTEMPT": "2"}
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert environment_of(child.pid)["GUARDED"] == "x"
        assert pids_with({"GUARDED": "x", "ATTEMPT": "2"}) == [child.pid]
        assert pids_with({"GUARDED": "x", "ATTEMPT": "1"}) == []
        assert kill_marked({"GUARDED": "x"}) == []
        assert child.wait() == -signal.SIGKILL
