"""The HTML report in a real Chromium, without a network."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis import load_sweep
from analysis.curve import Curve
from analysis.report.figures import plot_figures
from analysis.report.html import render_html
from analysis.report.model import build_report
from analysis.report.numbers import format_mean, format_metric
from analysis.report.page_data import build_page_data
from analysis.results import Results, analyze
from analysis.runs import Run
from analysis.statistics import mean_interval
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, make_sweep
from tests.analysis.report.chromium import CHROMIUM, Chromium

HOSTILE = '<script>document.title = "owned"</script><img src=x onerror="document.title=1">'
SOLVE_RATE, MISMATCH_KL, MASKED = "#chart-solve_rate", "#chart-mismatch_kl", "#chart-is_masked"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"
    ),
]


def write_page(results: Results, folder: Path) -> Path:
    page = folder / "report.html"
    figures = plot_figures(results)
    page.write_text(render_html(build_report(results), figures, build_page_data(results)))
    return page


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = make_sweep(
        tmp_path_factory.mktemp("sweep"),
        {"ipo": COLLAPSING, "icepop": HEALTHY, "kpop": Behaviour(level=0.5)},
        seeds=(0, 1, 2),
        question=HOSTILE,
    )
    return analyze(load_sweep(root))


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(results, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture
def chromium(browser: Chromium, page: Path) -> Iterator[Chromium]:
    """The page, freshly loaded; whatever a test does to it must leave the console empty."""
    browser.open(page)
    yield browser
    assert browser.complaints == []
    assert browser.requests == [page.as_uri()]


def drawn(chromium: Chromium, chart: str = SOLVE_RATE) -> str:
    """What stands on the canvas of a chart, as data to compare."""
    chromium.settle()
    return str(chromium.evaluate(f"document.querySelector('{chart} canvas').toDataURL()"))


def read_out(chromium: Chromium, chart: str = SOLVE_RATE) -> str:
    shown = f"document.querySelector('{chart} .readout').innerText"
    return " ".join(str(chromium.evaluate(shown)).split())


def box(chromium: Chromium, selector: str) -> tuple[float, float, float, float]:
    """Left, top, width and height of an element that is scrolled into view."""
    script = (
        f"(() => {{ const e = document.querySelector('{selector}');"
        " e.scrollIntoView({ block: 'center' }); const b = e.getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    left, top, width, height = chromium.evaluate(script)
    return left, top, width, height


def place_of(chromium: Chromium, step: int, share: float = 0.5) -> tuple[float, float]:
    """Where a step of 1 to 120 stands in the chart of the solve rate."""
    left, top, width, height = box(chromium, f"{SOLVE_RATE} .plot")
    inside = left + 58, left + width - 14
    return inside[0] + (step - 1) / 119 * (inside[1] - inside[0]), top + share * height


def click(chromium: Chromium, selector: str) -> None:
    left, top, width, height = box(chromium, selector)
    for kind in ("mousePressed", "mouseReleased"):
        chromium.move(left + width / 2, top + height / 2, kind=kind)


def drag(chromium: Chromium, first: int, last: int) -> None:
    start, end = place_of(chromium, first), place_of(chromium, last)
    chromium.move(*start)
    chromium.move(*start, kind="mousePressed")
    chromium.move((start[0] + end[0]) / 2, end[1], is_held=True)
    chromium.move(*end, is_held=True)
    chromium.move(*end, kind="mouseReleased")


def test_every_figure_is_shown_and_hostile_names_are_text(chromium: Chromium) -> None:
    sizes = chromium.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert len(sizes) == 2
    assert all(size > 0 for size in sizes)
    assert chromium.evaluate("document.querySelector('.question').textContent") == HOSTILE
    assert "owned" not in chromium.evaluate("document.title")
    assert chromium.evaluate("document.querySelectorAll('canvas').length") == 14


def test_a_chart_has_lines_in_the_color_of_every_arm(chromium: Chromium) -> None:
    script = f"""(() => {{
        const canvas = document.querySelector('{SOLVE_RATE} canvas');
        const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
        return ['34,34,34', '0,114,178', '213,94,0'].filter((color) => found.has(color));
    }})()"""
    assert len(chromium.evaluate(script)) == 3


def test_an_arm_is_switched_off_and_on_by_mouse_and_by_keyboard(chromium: Chromium) -> None:
    before, kl_before = drawn(chromium), drawn(chromium, MISMATCH_KL)
    state = "document.querySelector('#controls button').getAttribute('aria-pressed')"
    assert "ipo" in read_out(chromium).split()
    click(chromium, "#controls button")
    assert chromium.evaluate(state) == "false"
    assert drawn(chromium) != before
    assert drawn(chromium, MISMATCH_KL) != kl_before
    assert "ipo" not in read_out(chromium).split()
    chromium.evaluate("document.querySelector('#controls button').focus()")
    chromium.press(" ", text=" ")
    assert chromium.evaluate(state) == "true"
    assert drawn(chromium) == before


def test_seeds_and_intervals_are_switched_off(chromium: Chromium) -> None:
    pictures = {drawn(chromium)}
    for name in ("seeds", "95% intervals"):
        chromium.evaluate(
            "[...document.querySelectorAll('#controls button')]"
            f".find((button) => button.textContent === '{name}').click()"
        )
        pictures.add(drawn(chromium))
    assert len(pictures) == 3


@pytest.mark.parametrize(("chart", "metric"), [(SOLVE_RATE, "solve_rate"), (MASKED, "is_masked")])
def test_the_read_out_at_a_step_is_the_mean_of_the_statistics(
    chromium: Chromium, results: Results, chart: str, metric: str
) -> None:
    chromium.move(*place_of(chromium, 30))
    values = [float(run.curves[metric].values[29]) for run in results.sweep.of_arm("icepop")]
    expected = mean_interval(values, 0.05)
    low, high = expected.low, expected.high
    assert low is not None
    assert high is not None
    said = read_out(chromium, chart)
    text = format_mean(metric, expected.mean, max(0.0, low), min(1.0, high))
    assert said.startswith("step 30 ")
    assert f"icepop {text} n 3" in said


def test_the_line_nearest_to_the_mouse_is_named(chromium: Chromium, results: Results) -> None:
    left, top, _, height = box(chromium, f"{SOLVE_RATE} .plot")
    x, _ = place_of(chromium, 100)
    low = 0.02  # where the runs of ipo lie after their collapse
    chromium.move(x, top + 8 + (1.03 - low) / 1.06 * (height - 28))
    said = read_out(chromium)
    assert "nearest: ipo seed" in said
    seed = int(said.split("nearest: ipo seed ")[1].split(",")[0])
    run = next(run for run in results.sweep.of_arm("ipo") if run.seed == seed)
    value = float(run.curves["solve_rate"].values[99])
    assert f"seed {seed}, {format_metric('solve_rate', value)}" in said
    chromium.move(left + 5, top - 60)
    assert "nearest" not in read_out(chromium)


def test_the_cursor_moves_by_keyboard_in_all_charts_at_once(chromium: Chromium) -> None:
    chromium.evaluate(f"document.querySelector('{SOLVE_RATE} .plot').focus()")
    steps = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        chromium.press(key)
        steps.append(read_out(chromium, MISMATCH_KL).split()[1])
    assert steps == ["1", "2", "3", "2", "120"]
    plot = f"document.querySelector('{SOLVE_RATE} .plot')"
    assert chromium.evaluate(f"{plot}.getAttribute('aria-valuetext')").startswith("step 120: ipo 0")
    assert chromium.evaluate(f"{plot}.getAttribute('role')") == "slider"


def test_dragging_zooms_every_chart_and_escape_or_a_button_resets(chromium: Chromium) -> None:
    before, kl_before = drawn(chromium), drawn(chromium, MISMATCH_KL)
    is_off = "document.querySelector('#reset').disabled"
    assert chromium.evaluate(is_off)
    for reset in ("key", "button"):
        drag(chromium, 30, 60)
        assert not chromium.evaluate(is_off)
        assert drawn(chromium) != before
        assert drawn(chromium, MISMATCH_KL) != kl_before
        if reset == "key":
            chromium.evaluate(f"document.querySelector('{SOLVE_RATE} .plot').focus()")
            chromium.press("Escape")
        else:
            click(chromium, "#reset")
        assert chromium.evaluate(is_off)
        assert (drawn(chromium), drawn(chromium, MISMATCH_KL)) == (before, kl_before)


def test_the_keyboard_zooms_too(chromium: Chromium) -> None:
    before = drawn(chromium)
    chromium.evaluate(f"document.querySelector('{SOLVE_RATE} .plot').focus()")
    chromium.press("+", text="+")
    closer = drawn(chromium)
    chromium.press("-", text="-")
    assert closer != before
    assert drawn(chromium) == before


def choose_axis(chromium: Chromium, name: str) -> None:
    chromium.evaluate(
        "(() => { const axis = document.querySelector('#axis');"
        f" axis.value = '{name}'; axis.dispatchEvent(new Event('change')); }})()"
    )


def test_over_tokens_the_read_out_says_tokens_and_steps(chromium: Chromium) -> None:
    before = drawn(chromium)
    choose_axis(chromium, "tokens")
    assert drawn(chromium) != before
    chromium.move(*place_of(chromium, 30))
    said = read_out(chromium)
    assert said.startswith(f"{576 * 30} tokens")
    assert "at step 30" in said
    choose_axis(chromium, "step")
    chromium.move(0, 0)
    assert drawn(chromium) == before


def test_an_axis_that_was_not_logged_cannot_be_chosen(browser: Chromium, tmp_path: Path) -> None:
    root = make_sweep(tmp_path, {"ipo": Behaviour(drops=("progress/tokens",))}, seeds=(0,))
    browser.open(write_page(analyze(load_sweep(root)), tmp_path))
    option = "document.querySelector('#axis option[value=tokens]')"
    assert browser.evaluate(f"{option}.disabled")
    assert browser.evaluate(f"{option}.textContent").endswith("not logged")
    assert browser.complaints == []


def test_smoothing_changes_lines_and_never_the_read_out(chromium: Chromium) -> None:
    chromium.move(*place_of(chromium, 30))
    before, said = drawn(chromium), read_out(chromium)
    chromium.evaluate("document.querySelector('#smoothing').focus()")
    chromium.press("Home")
    assert chromium.evaluate("document.querySelector('output').textContent") == "off"
    chromium.move(*place_of(chromium, 30))
    assert drawn(chromium) != before
    assert read_out(chromium) == said


def test_a_log_axis_can_be_made_linear(chromium: Chromium) -> None:
    before = drawn(chromium, MISMATCH_KL)
    click(chromium, f"{MISMATCH_KL} .head button")
    assert drawn(chromium, MISMATCH_KL) != before
    assert chromium.evaluate(f"document.querySelector('{SOLVE_RATE} .head button')") is None


def test_the_page_turns_dark_and_its_charts_with_it(chromium: Chromium) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = (drawn(chromium), chromium.evaluate(paper))
    chromium.set_dark(True)
    dark = (drawn(chromium), chromium.evaluate(paper))
    chromium.set_dark(False)
    assert (drawn(chromium), chromium.evaluate(paper)) == light
    assert dark[0] != light[0]
    assert dark[1] == "rgb(23, 25, 28)"


def test_it_prints_in_light_colors_and_looks_the_same_afterwards(
    browser: Chromium, page: Path
) -> None:
    browser.open(page, is_dark=True)
    before = drawn(browser)
    browser.evaluate(
        "addEventListener('beforeprint', () => { const canvas = document.querySelector('canvas');"
        " const body = getComputedStyle(document.documentElement).getPropertyValue('--ink');"
        " window.printed = [canvas.width, body.trim()]; })"
    )
    assert browser.pdf().startswith(b"%PDF-")
    assert browser.evaluate("window.printed") == [2500, "#1f2328"]
    assert drawn(browser) == before
    assert browser.complaints == []


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_hangs_over_the_side_at_desktop_and_phone_width(
    browser: Chromium, page: Path, tmp_path: Path, width: int, is_dark: bool
) -> None:
    browser.open(page, width=width, is_dark=is_dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    with Image.open(io.BytesIO(browser.screenshot(tmp_path / "page.png"))) as image:
        assert image.width == width
        colors = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert colors is not None
    assert len(colors) > 200
    commonest = max(colors)[1]
    assert isinstance(commonest, tuple)
    assert (sum(commonest) < 200) == is_dark


def test_eight_arms_of_five_seeds_and_10000_steps_stay_below_5_mb(
    browser: Chromium, tmp_path: Path
) -> None:
    arms = {f"arm_{i}": HEALTHY for i in range(8)}
    root = make_sweep(tmp_path, arms, seeds=range(5), max_steps=25)
    sweep = load_sweep(root)
    generator = np.random.default_rng(0)
    steps = np.arange(1, 10_001)
    names = ("mismatch_kl", "entropy", "is_masked", "grad_norm", "staleness", "response_length")

    def with_long_curves(run: Run) -> Run:
        drift = 1.0 + steps / 3000
        curves = {
            name: Curve(steps, drift * generator.lognormal(-3, 0.5, 10_000)) for name in names
        }
        curves["solve_rate"] = Curve(steps, generator.random(10_000))
        curves["tokens"] = Curve(steps, np.cumsum(generator.uniform(400, 600, 10_000)))
        return replace(run, curves=curves)

    sweep = replace(sweep, runs=tuple(with_long_curves(run) for run in sweep.runs))
    page = write_page(analyze(sweep), tmp_path)
    assert page.stat().st_size < 5_000_000
    browser.open(page)
    assert browser.evaluate("document.querySelectorAll('.plot canvas').length") == 16
    assert browser.complaints == []
