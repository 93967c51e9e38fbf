"""Out-of-memory kills, read from files as the kernel writes them.

The files stand in a folder of the test: no kernel has killed anything here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.runner.memory import count_oom_kills, parse_oom_kills

EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (EVENTS.format(0), 0),
        (EVENTS.format(7), 7),
        (CONTROL.format(2), 2),
        ("oom_kill_disable 1\nunder_oom 0\n", None),
        ("oom_kill many\n", None),
        ("", None),
    ],
)
def test_count_stands_after_its_name(text: str, count: int | None) -> None:
    assert parse_oom_kills(text) == count


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_count_is_that_of_the_own_cgroup(tmp_path: Path) -> None:
    job = "system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
    write(tmp_path, "proc/self/cgroup", f"0::/{job}\n")
    write(tmp_path, f"sys/fs/cgroup/{job}/memory.events", EVENTS.format(3))
    write(tmp_path, "sys/fs/cgroup/memory.events", EVENTS.format(99))
    assert count_oom_kills(tmp_path) == 3


def test_count_of_version_1_stands_with_the_memory_controller(tmp_path: Path) -> None:
    cgroup = "11:cpu,cpuacct:/elsewhere\n4:memory:/slurm/uid_0/job_7/step_0\n0::/\n"
    write(tmp_path, "proc/self/cgroup", cgroup)
    folder = "sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0"
    write(tmp_path, f"{folder}/memory.oom_control", CONTROL.format(1))
    assert count_oom_kills(tmp_path) == 1


@pytest.mark.parametrize("cgroup", [None, "0::/somewhere\n", "3:cpu:/a\n", ""])
def test_no_count_without_memory_accounting(tmp_path: Path, cgroup: str | None) -> None:
    if cgroup is not None:
        write(tmp_path, "proc/self/cgroup", cgroup)
    assert count_oom_kills(tmp_path) is None


def test_count_never_falls_on_this_machine() -> None:
    first, second = count_oom_kills(), count_oom_kills()
    assert (first is None) == (second is None)
    assert first is None or second is None or second >= first >= 0
