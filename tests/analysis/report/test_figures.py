from __future__ import annotations

from analysis import load_sweep
from analysis.report.figures import plot_figures
from analysis.results import analyze
from tests.analysis.conftest import HEALTHY, Behaviour, MakeSweep


def test_figures_show_what_was_logged_and_name_every_arm(sweep_maker: MakeSweep) -> None:
    only_rewards = Behaviour(
        drops=(
            "mismatch_kl/all/mean",
            "entropy/all/mean",
            "is_masked/mean",
            "optim/grad_norm",
            "token_class/rise",
            "token_class/drop",
            "importance_ratio/max_kept",
        )
    )
    arms = {"ipo": only_rewards, "a$b": only_rewards, "new": Behaviour(is_started=False)}
    results = analyze(load_sweep(sweep_maker(arms, seeds=(0, 1), max_steps=40)))
    figures = plot_figures(results)
    assert [figure.name for figure in figures] == ["curves", "by_arm"]
    for figure in figures:
        assert figure.png.startswith(b"\x89PNG\r\n")
        assert b"<svg" in figure.svg
        assert "ipo, a$b, new" in figure.alt
    assert "Final solve rate: ipo 0.8" in figures[0].alt
    assert "mismatch KL" not in figures[0].alt
    assert figures[0].metrics == ("solve_rate",)
    assert plot_figures(results) == figures


def test_zeros_and_a_metric_that_is_never_finite_are_drawn(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "none": HEALTHY}, seeds=(0,), max_steps=40)
    path = root / "runs" / "none" / "seed_0" / "trainer" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    zeroed = [line.replace('"is_masked/mean": ', '"is_masked/mean": 0, "x": ') for line in lines]
    broken = [
        line.replace('"entropy/all/mean": ', '"entropy/all/mean": NaN, "y": ') for line in zeroed
    ]
    path.write_text("\n".join(broken) + "\n")
    names = [figure.name for figure in plot_figures(analyze(load_sweep(root)))]
    assert names == ["curves", "by_arm", "causes", "diagnostics"]


def test_nothing_logged_gives_no_figure(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(is_started=False)})
    assert plot_figures(analyze(load_sweep(root))) == []
