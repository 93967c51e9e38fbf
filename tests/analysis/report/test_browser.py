"""The HTML report in a real Chromium, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from analysis import write_report
from tests.analysis.conftest import COLLAPSING, HEALTHY, make_sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = '<script>document.title = "owned"</script><img src=x onerror="document.title=1">'
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_sweep(
        tmp_path_factory.mktemp("sweep"),
        {"ipo": COLLAPSING, "icepop": HEALTHY},
        seeds=(0, 1, 2),
        question=HOSTILE,
    )
    return write_report(root).html


def browse(page: Path, profile: Path, *flags: str) -> tuple[str, str]:
    """Return the document after loading, and what the console said."""
    assert CHROMIUM is not None, "CI installs chromium; without it this test can't speak"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.slow
def test_a_browser_shows_every_figure_and_reports_no_violation(page: Path, tmp_path: Path) -> None:
    document, console = browse(page, tmp_path, "--dump-dom")
    assert console == ""
    assert document.count("<img") == 4
    assert "<title>" in document
    assert "owned" not in document.split("</title>")[0]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_has_ink_at_desktop_and_phone_width(
    page: Path, tmp_path: Path, width: int
) -> None:
    picture = tmp_path / "page.png"
    browse(page, tmp_path / "profile", f"--screenshot={picture}", f"--window-size={width},2400")
    with Image.open(picture) as image:
        assert image.width >= width
        colors = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert colors is not None
    assert len(colors) > 50
