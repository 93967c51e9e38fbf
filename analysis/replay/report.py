"""Writes a replay: replay.json and its renderings, all from the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.report import quiet_libraries
from harness.errors import HarnessError, UsageError
from harness.records.files import write_atomic

if TYPE_CHECKING:
    from analysis.replay.result import ReplayResult
    from analysis.report.cells import Table
    from analysis.report.figures import Figure

_FIGURES_DIR = "figures"


@dataclass(frozen=True)
class WrittenReplay:
    """Where the forms of a replay were written."""

    folder: Path
    figures: tuple[Path, ...]

    @property
    def json(self) -> Path:
        return self.folder / "replay.json"

    @property
    def html(self) -> Path:
        return self.folder / "replay.html"

    @property
    def markdown(self) -> Path:
        return self.folder / "replay.md"


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than an earlier replay.

    Raises:
        UsageError: it does, or it or one of the folders that it is in is a file.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / "replay.json").is_file():
            raise UsageError(
                f"`{folder}` holds other files", "name another folder with --out, or an empty one"
            )
        return
    above = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not above.is_dir():
        raise UsageError(f"`{above}` is a file", "name a folder with --out")


def write_replay(
    result: ReplayResult, folder: Path, *, progress: Callable[[str], None] | None = None
) -> WrittenReplay:
    """Write every form of `result` into `folder`; each file is replaced whole.

    The same result gives the same bytes.

    Args:
        progress: called with a few words before each stage.

    Raises:
        UsageError: the folder holds something else.
        HarnessError: it can't be written.
    """
    from analysis.replay import frames  # noqa: PLC0415  (pandas)
    from analysis.replay.model import build_record, render_json  # noqa: PLC0415
    from analysis.replay.page import render_page  # noqa: PLC0415
    from analysis.replay.pictures import plot_pictures  # noqa: PLC0415  (matplotlib)
    from analysis.replay.text import render_markdown  # noqa: PLC0415

    check_folder(folder)
    say = progress or _say_nothing
    with quiet_libraries():
        say("drawing")
        figures = plot_pictures(result)
        say("writing")
        pictures: dict[Path, str | bytes] = {}
        for figure in figures:
            pictures[folder / _FIGURES_DIR / f"{figure.name}.png"] = figure.png
            pictures[folder / _FIGURES_DIR / f"{figure.name}.svg"] = figure.svg
        frame = frames.build_tables(result)
        written: dict[Path, str | bytes] = {
            **pictures,
            folder / "rules.csv": frames.to_csv(frame.rules),
            folder / "curves.csv": frames.to_csv(frame.curves),
            folder / "buckets.csv": frames.to_csv(frame.buckets),
            folder / "replay.md": render_markdown(result, figures, _FIGURES_DIR),
            folder / "replay.html": render_page(result, figures),
            folder / "replay.json": render_json(build_record(result)),
        }
    try:
        for path, content in written.items():
            write_atomic(path, content)
        for path in (folder / _FIGURES_DIR).glob("*.*"):
            if path.suffix in (".png", ".svg") and path not in pictures:
                path.unlink()
    except OSError as error:
        raise HarnessError(
            f"`{folder}` can't be written: {error.strerror or error}",
            "name another folder with --out",
        ) from error
    return WrittenReplay(folder, tuple(pictures))


def replay_section(result: ReplayResult) -> tuple[tuple[Table, ...], Sequence[Figure]]:
    """Return the tables and the figures that a sweep's report shows of a replay of its tokens."""
    from analysis.replay import tables  # noqa: PLC0415
    from analysis.replay.pictures import plot_pictures  # noqa: PLC0415  (matplotlib)

    return (
        (*tables.main_tables(result), *tables.detail_tables(result)),
        plot_pictures(result),
    )


def _say_nothing(message: str) -> None:
    pass
