"""Forks: what their parents logged stands in front of what they logged, for baselines alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.events import EventState
from analysis.load import load_sweep
from analysis.parents import read_parent
from analysis.report import write_report
from analysis.results import Results, analyze
from analysis.runs import Run
from harness.records.files import read_json, write_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import AnalysisSpec, RunRecord, StartRecord, read_record, to_record

START = 1_790_000_000.0
SPEC = AnalysisSpec(last_steps=10, baseline_steps=(5, 20), collapse_window=5)
FORK_STEP = 30

Make = Callable[..., Path]


def log(run: RunPaths, first: int, last: int, kl: Callable[[int], float], solve: float) -> None:
    """Write metrics rows of the steps `first` to `last` as a run of `run` would."""
    rows = [
        {
            "step": step,
            "time": START + step,
            "attempt": 1,
            "mismatch_kl/all/mean": kl(step),
            "train/reverse/all/agent/reward/mean": solve,
            "entropy/all/mean": 0.4,
            "is_masked/mean": 0.0,
            "optim/grad_norm": 1.0,
            "progress/tokens": 64 * step,
        }
        for step in range(first, last + 1)
    ]
    run.metrics.parent.mkdir(parents=True, exist_ok=True)
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


def start(parent: str, step: int, seed: int | None = None) -> StartRecord:
    """Return a start from the run `sweep/arm/seed_n` beside the sweep."""
    sweep, rest = parent.split("/", 1)
    folder = f"../{sweep}/runs/{rest}"
    return StartRecord(
        seed=seed,
        asked={"run": parent, "step": step},
        step=step,
        sha256="0" * 64,
        stamp="0" * 64,
        checkpoint=f"{folder}/trainer/checkpoints/step_{step:06d}",
        parent=parent,
        parent_dir=folder,
        parent_identity=f"id-{rest.replace('/seed_', '-')}",
    )


@pytest.fixture
def make_fork(tmp_path: Path, sweep_maker: Any) -> Make:
    """Makes a sweep `name` of the arms `calm` and `loud`, whose runs start as `starts` says.

    Their KL is 0.01 after the fork, `loud`'s 1.0 from step 40 on.
    """

    def make(
        starts: Mapping[int, StartRecord] | StartRecord,
        *,
        name: str = "fork",
        kl: Callable[[str, int], float] = lambda arm, s: 1.0 if arm == "loud" and s >= 40 else 0.01,
        max_steps: int = 60,
    ) -> Path:
        made: Path = sweep_maker(
            {"calm": _behaviour(), "loud": _behaviour()}, max_steps=max_steps, spec=SPEC
        )
        root = made.rename(tmp_path / name)
        sweep = SweepPaths(root)
        plan = read_json(sweep.plan)
        used: dict[int | None, StartRecord] = {}
        for run in sweep.runs():
            begin = starts if isinstance(starts, StartRecord) else starts[run.seed]
            used[begin.seed] = begin
            record = read_record(RunRecord, run.record)
            record = replace(record, sweep=name, start_from=begin)
            write_json(run.record, to_record(record))
            log(run, begin.step + 1, max_steps, lambda s, arm=run.arm: kl(arm, s), 0.9)  # type: ignore[misc]
        plan |= {"sweep": name, "start_from": [to_record(one) for one in used.values()]}
        write_json(sweep.plan, plan)
        return root

    return make


def _behaviour() -> Any:
    from tests.analysis.conftest import Behaviour  # noqa: PLC0415

    return Behaviour(has_metrics=False)


@pytest.fixture
def parent(tmp_path: Path) -> RunPaths:
    """A run that logged 50 steps: KL 0.001, 9.0 after step 30; solve rate 0.8."""
    run = SweepPaths(tmp_path / "parent").run("none", 0)
    record = RunRecord(
        schema_version=1,
        sweep="parent",
        arm="none",
        seed=0,
        identity="id-none-0",
        trainer="synthetic stand-in",
        metrics="trainer/metrics.jsonl",
        metrics_format="prime_rl",
    )
    write_json(run.record, to_record(record))
    log(run, 1, 50, lambda step: 9.0 if step > FORK_STEP else 0.001, 0.8)
    return run


def runs_of(results: Results, arm: str) -> list[Run]:
    return [summary.run for summary in results.runs if summary.run.arm == arm]


def test_the_baseline_of_a_fork_is_its_parents(parent: RunPaths, make_fork: Make) -> None:
    results = analyze(load_sweep(make_fork(start("parent/none/seed_0", FORK_STEP))))
    by_arm = {s.run.arm: s for s in results.runs if s.run.seed == 1}
    assert by_arm["calm"].exploded.state is EventState.NO
    assert by_arm["loud"].exploded.state is EventState.YES
    assert by_arm["loud"].exploded.step == 40
    assert by_arm["loud"].exploded.baseline == pytest.approx(0.001)
    assert by_arm["calm"].collapsed.baseline == pytest.approx(0.8)
    # 10 times the parent's KL, and nothing of what the parent did after the fork.
    assert by_arm["calm"].peak_kl == pytest.approx(0.01)


def test_own_curves_and_windows_hold_own_steps_alone(parent: RunPaths, make_fork: Make) -> None:
    results = analyze(load_sweep(make_fork(start("parent/none/seed_0", FORK_STEP))))
    [run] = [run for run in runs_of(results, "calm") if run.seed == 0]
    assert (run.first_step, run.last_step, run.fork_step) == (31, 60, 30)
    assert run.history["mismatch_kl"].steps.tolist() == list(range(1, 61))
    assert results.window is not None
    assert (results.window.common_first, results.window.common_last) == (31, 60)


def test_an_explosion_before_the_fork_is_the_parents(parent: RunPaths, make_fork: Make) -> None:
    log(parent, 1, 30, lambda step: 1.0 if 24 <= step <= 28 else 0.001, 0.8)
    results = analyze(load_sweep(make_fork(start("parent/none/seed_0", FORK_STEP))))
    exploded = results.runs[0].exploded
    assert exploded.state is EventState.UNDECIDABLE
    assert exploded.reason == "it happened at step 24, before the fork after step 30"


def test_shares_and_spikes_count_from_the_fork_on(parent: RunPaths, make_fork: Make) -> None:
    log(parent, 1, 30, lambda step: 0.5 if 24 <= step <= 25 else 0.001, 0.8)
    results = analyze(load_sweep(make_fork(start("parent/none/seed_0", FORK_STEP))))
    by_arm = {s.run.arm: s.events for s in results.runs if s.run.seed == 0}
    assert by_arm["calm"] is not None
    assert by_arm["loud"] is not None
    assert by_arm["calm"].kl_above_share == 0.0
    assert by_arm["loud"].kl_above_share == pytest.approx(21 / 30)


def test_a_baseline_window_after_the_fork_is_the_runs_own(
    parent: RunPaths, make_fork: Make
) -> None:
    results = analyze(load_sweep(make_fork(start("parent/none/seed_0", 2))))
    assert results.runs[0].exploded.baseline == pytest.approx(0.01)


def test_a_fork_of_a_fork_has_the_whole_past(parent: RunPaths, make_fork: Make) -> None:
    first = make_fork(start("parent/none/seed_0", FORK_STEP), name="first")
    again = start("first/calm/seed_0", 40)
    found = read_parent(first.parent / "second", again)
    kl = found.curves["mismatch_kl"]
    assert kl.steps.tolist() == list(range(1, 41))
    assert kl.values.tolist() == [0.001] * 30 + [0.01] * 10
    second = make_fork(again, name="second", max_steps=70)
    results = analyze(load_sweep(second))
    assert results.runs[0].exploded.baseline == pytest.approx(0.001)


def test_paired_forks_have_each_their_own_past(parent: RunPaths, make_fork: Make) -> None:
    starts = {}
    for seed, level in ((0, 0.001), (1, 0.002), (2, 0.003)):
        run = parent.sweep.run("none", seed)
        record = replace(read_record(RunRecord, parent.record), seed=seed)
        write_json(run.record, to_record(replace(record, identity=f"id-none-{seed}")))
        log(run, 1, 30, lambda _step, level=level: level, 0.8)  # type: ignore[misc]
        starts[seed] = start(f"parent/none/seed_{seed}", FORK_STEP, seed)
    root = make_fork(starts)
    results = analyze(load_sweep(root))
    baselines = [s.exploded.baseline for s in results.runs if s.run.arm == "calm"]
    assert baselines == pytest.approx([0.001, 0.002, 0.003])
    written = write_report(root)
    report, text = written.report, written.paths.markdown.read_text()
    assert "Every run starts after step 30 of the run of its own seed in parent/none." in text
    assert [fork["parent"] for fork in report["forks"]] == [
        f"parent/none/seed_{seed}" for seed in range(3)
    ]
    assert "forks_of_one" not in {notice["kind"] for notice in report["notices"]}


def test_the_report_names_the_parent_and_how_far_results_reach(
    parent: RunPaths, make_fork: Make
) -> None:
    written = write_report(make_fork(start("parent/none/seed_0", FORK_STEP)))
    [fork] = written.report["forks"]
    assert (fork["parent"], fork["step"]) == ("parent/none/seed_0", 30)
    assert (fork["place"], fork["problem"]) == ("../parent/runs/none/seed_0", "")
    text = written.paths.markdown.read_text()
    assert (
        "Every run starts after step 30 of parent/none/seed_0 (../parent/runs/none/seed_0)." in text
    )
    assert "results speak of this checkpoint, not of the recipe" in text
    assert "Grey and dashed: what the runs start from, up to the fork." in text
    assert "says nothing of how another checkpoint would have fared" in text
    page = written.html.read_text()
    data = json.loads(page.split('id="chart-data">')[1].split("</script>")[0])
    [kl] = [panel for panel in data["panels"] if panel["name"] == "mismatch_kl"]
    assert kl["pasts"] == [{"steps": list(range(1, 31)), "values": [0.001] * 30}]


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda run: shutil.rmtree(run.root), "its records are gone"),
        (lambda run: run.metrics.unlink(), "its metrics are gone"),
        (lambda run: run.record.write_text("{"), "its records can't be read"),
        (
            lambda run: write_json(run.record, {**read_json(run.record), "identity": "other"}),
            "its folder holds another run now",
        ),
    ],
)
def test_without_its_parents_records_a_baseline_is_not_decidable(
    parent: RunPaths, make_fork: Make, harm: Callable[[RunPaths], Any], problem: str
) -> None:
    root = make_fork(start("parent/none/seed_0", FORK_STEP))
    harm(parent)
    report = write_report(root).report
    [notice] = [n for n in report["notices"] if n["kind"] == "no_past"]
    assert f"(up to step 30) is missing: {problem}" in notice["message"]
    assert {run["exploded"]["state"] for run in report["runs"]} == {"undecidable"}
    assert report["forks"][0]["problem"] == problem


def test_a_comparison_of_run_folders_knows_their_past(parent: RunPaths, make_fork: Make) -> None:
    from analysis.foreign import ArmSource, ComparisonSpec, load_runs  # noqa: PLC0415

    sweep = SweepPaths(make_fork(start("parent/none/seed_0", FORK_STEP)))
    sources = [ArmSource(arm, str(sweep.run(arm, 0).root)) for arm in ("calm", "loud")]
    found = load_runs(sources, ComparisonSpec(baseline="calm", analysis=SPEC))
    assert [run.fork_step for run in found.runs] == [30, 30]
    assert found.runs[0].history["mismatch_kl"].steps.tolist() == list(range(1, 61))
