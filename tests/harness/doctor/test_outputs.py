from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.doctor.check import Verdict
from harness.doctor.outputs import Mount, check_outputs, find_mount

MOUNTINFO = """\
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 25 0:30 / /mnt/my\\040data rw shared:2 - nfs4 server:/export rw
41 25 0:31 / /mnt rw shared:3 - tmpfs tmpfs rw
42 41 0:32 / /mnt/fast rw master:4 - lustre mds@tcp:/fast rw
43 42 0:33 / /mnt/fast rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("folder", "mount"),
    [
        ("/home/me", Mount("/", "ext4")),
        ("/mnt/my data/outputs", Mount("/mnt/my data", "nfs4")),
        ("/mnt/my", Mount("/mnt", "tmpfs")),
        ("/mnt/fast/outputs", Mount("/mnt/fast", "tmpfs")),
        ("/mnt/faster", Mount("/mnt", "tmpfs")),
    ],
)
def test_the_mount_of_a_folder_is_the_last_and_deepest_above_it(folder: str, mount: Mount) -> None:
    assert find_mount(Path(folder), MOUNTINFO) == mount


def test_no_mount_is_known_without_a_list() -> None:
    assert find_mount(Path("/home"), "") is None


def test_a_good_folder_passes_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    checks = check_outputs(root, is_shared_needed=True)
    assert [c.name for c in checks] == [
        "outputs folder",
        "free space",
        "hard links",
        "shared folder",
    ]
    assert checks[0].found == f"{root} (made by the first run in {tmp_path})"
    assert checks[2].verdict is Verdict.OK
    assert list(tmp_path.iterdir()) == []
    assert len(check_outputs(tmp_path, is_shared_needed=False)) == 3


def test_a_folder_of_this_machine_alone_is_warned_of() -> None:
    [*_, shared] = check_outputs(Path("/dev/shm"), is_shared_needed=True)
    assert (shared.verdict, shared.found) == (
        Verdict.WARNING,
        "tmpfs mounted at /dev/shm, which other machines often don't see",
    )


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("")
    [check] = check_outputs(tmp_path / "outputs", is_shared_needed=True)
    assert (check.verdict, check.todo) == (
        Verdict.FAILED,
        "choose another place with HARNESS_OUTPUTS=DIR",
    )


def test_a_folder_that_takes_no_hard_links_fails() -> None:
    # A mount of /proc/self is no folder for files: creating one there is refused by the kernel.
    program = (
        "from pathlib import Path; from harness.doctor.outputs import _check_links;"
        "print(_check_links(Path('/proc/self')).found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("don't work in `/proc/self`: ")
