"""harness import-toml: a sweep from prime-rl's own files, one base and one overlay per loss."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli import tell
from harness.errors import UsageError
from harness.printable import one_line
from harness.records.files import create_exclusive
from harness.records.layout import MAX_NAME_LENGTH, is_valid_name

_SUFFIX = ".yaml"


def import_toml_command(
    *, base: Path, overlays: Sequence[Path], name: str | None, num_seeds: int, to: Path | None
) -> int:
    """Print the sweep to stdout, or write it to `to`, which must not exist yet; return 0.

    What people must know of it goes to stderr as notes.
    """
    from harness.trainers.prime_rl.import_toml import import_folder  # noqa: PLC0415 (loads losses)

    if name is not None and not name.strip():
        raise UsageError("--name is empty", "say what the question is to call the recipe")
    if to is not None:
        _check_target(to)
    imported = import_folder(base, overlays, name=name, num_seeds=num_seeds)
    if to is None:
        sys.stdout.write(imported.text)
    else:
        _write(to, imported.text)
    for remark in imported.remarks:
        tell(f"note: {one_line(remark)}")
    if to is not None:
        shown = one_line(str(to))
        tell(f"wrote {shown}; next: harness plan {shown} trainer.checkout=DIR")
    return 0


def _check_target(to: Path) -> None:
    if to.suffix != _SUFFIX:
        raise UsageError(f"--to {to}: a sweep is a {_SUFFIX} file", f"--to {to}{_SUFFIX}")
    if not is_valid_name(to.stem):
        raise UsageError(
            f"--to {to}: {to.stem!r} can't be the name of a sweep",
            f"use letters, digits, `.`, `_`, `-`, at most {MAX_NAME_LENGTH}, no dot at the end",
        )
    if not to.parent.is_dir():
        raise UsageError(
            f"--to {to}: the folder `{to.parent}` does not exist", "make it, or choose another"
        )
    if to.exists() or to.is_symlink():
        raise _exists(to)


def _write(to: Path, text: str) -> None:
    try:
        is_new = create_exclusive(to, text)
    except OSError as error:
        raise UsageError(
            f"--to {to}: can't be written: {error.strerror or error}", "choose another place"
        ) from None
    if not is_new:
        raise _exists(to)


def _exists(to: Path) -> UsageError:
    return UsageError(f"`{to}` exists", "choose another name, or move that file away")
