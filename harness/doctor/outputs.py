"""The folder of all sweeps: may be written, has room, takes hard links, is seen by all nodes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.doctor.check import Check, failed, ok, warning
from harness.errors import UsageError
from harness.sweep.locate import check_outputs_root

LITTLE_BYTES = 10_000_000_000
"""Less free space than this is warned of: checkpoints are large."""
NO_BYTES = 100_000_000
LOCAL_TYPES = frozenset(
    {"tmpfs", "ramfs", "overlay", "aufs", "squashfs", "rootfs"}
    | {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"}
)
"""File systems of one machine. `overlay` is a container's."""

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_CHOOSE = "choose another place with HARNESS_OUTPUTS=DIR"


def check_outputs(root: Path, *, is_shared_needed: bool) -> list[Check]:
    """Check the folder `root`, or the one in which it will be made. Leaves nothing behind.

    Args:
        is_shared_needed: whether runs execute on other machines.
    """
    try:
        check_outputs_root(root)
    except UsageError as error:
        return [failed("outputs folder", error.message, error.hint)]
    folder = nearest_folder(root)
    shown = str(root.absolute())
    if folder != root:
        shown += f" (made by the first run in {folder.absolute()})"
    checks = [ok("outputs folder", shown), _check_space(folder), _check_links(folder)]
    if is_shared_needed:
        checks.append(_check_shared(folder))
    return checks


def nearest_folder(root: Path) -> Path:
    """Return `root`, or the folder nearest above it that exists."""
    return next(p for p in (root, *root.absolute().parents) if p.is_dir())


def _check_space(folder: Path) -> Check:
    usage = shutil.disk_usage(folder)
    inodes = os.statvfs(folder)
    share = f"{usage.free / 1e9:,.1f} GB of {usage.total / 1e9:,.1f} GB free"
    if usage.free < NO_BYTES or (inodes.f_files and inodes.f_favail < 1_000):
        if usage.free >= NO_BYTES:
            share = f"no room for further files ({inodes.f_favail} inodes left)"
        return failed("free space", share, f"make room there, or {_CHOOSE}")
    if usage.free < LITTLE_BYTES:
        return warning("free space", share, "make room: each run keeps checkpoints of its model")
    return ok("free space", share)


def _check_links(folder: Path) -> Check:
    """Two runners are kept apart by a file that only one of them can create: by hard links."""
    first = folder / f".doctor-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    second = first.with_suffix(".link")
    try:
        with first.open("x", encoding="ascii") as file:
            file.write("hard links work\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(first, second)
        is_same = first.stat().st_nlink == 2 and second.samefile(first)
        with contextlib.suppress(FileExistsError):
            os.link(first, second)
            is_same = False
    except OSError as error:
        return failed(
            "hard links",
            f"don't work in `{folder}`: {error.strerror or error}",
            f"{_CHOOSE}, on a file system with hard links (NFS, Lustre, GPFS, ext4, xfs)",
        )
    finally:
        for path in (first, second):
            path.unlink(missing_ok=True)
    if not is_same:
        return failed("hard links", f"`{folder}` copies files instead of linking them", _CHOOSE)
    return ok("hard links", "work; they keep two runners of one run apart")


def _check_shared(folder: Path) -> Check:
    mount = find_mount(folder, _MOUNTS.read_text(encoding="utf-8", errors="replace"))
    if mount is None:
        return ok("shared folder", "the file system is unknown; --probe asks a node")
    where = f"{mount.kind} mounted at {mount.point}"
    if mount.kind in LOCAL_TYPES:
        return warning(
            "shared folder",
            f"{where}, which other machines often don't see",
            f"unless the nodes have it at the same path, {_CHOOSE}; --probe asks a node",
        )
    return ok("shared folder", f"{where}; --probe asks a node")


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    point: str
    kind: str


def find_mount(folder: Path, mountinfo: str) -> Mount | None:
    """Return the file system that holds `folder`, from the text of /proc/self/mountinfo."""
    path = str(folder.resolve())
    found: Mount | None = None
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        point = _ESCAPED.sub(lambda m: chr(int(m[1], 8)), fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        # Of mounts on one point the last covers the others.
        if is_above and (found is None or len(point) >= len(found.point)):
            found = Mount(point, kinds[0])
    return found
