from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import (
    AnalysisSpec,
    Claim,
    CodeRecord,
    Exit,
    PlannedRun,
    PlanRecord,
    RunRecord,
    to_record,
)
from harness.sweep.estimate import estimate_duration

PLAN = PlanRecord(
    schema_version=1,
    sweep="study",
    question="",
    baseline="ipo",
    pairing="seed",
    may_differ=("loss",),
    common=(),
    overrides=(),
    conf_dirs=(),
    trainer="builtin",
    seeds=(0,),
    arms=(),
    runs=(PlannedRun("ipo", 0, "id", 400),),
    left=(),
    analysis=AnalysisSpec(),
    earlier_analysis=(),
    code=CodeRecord("abc", None, None, {}),
)


def write_finished(
    paths: SweepPaths, seed: int, *, duration_s: float, steps: int, step_s: float | None
) -> None:
    """Write the records of one finished run, as its runner would have, and its metrics."""
    run = paths.run("ipo", seed)
    attempt = run.attempt(1)
    record = RunRecord(1, "study", "ipo", seed, "id", "builtin", "metrics.jsonl", "prime_rl")
    claim = Claim(1, 1, "0001-a", "a", "host", 1, "1", 100.0, steps, "abc", {})
    ended = Exit(1, 1, "done", 0, None, "", steps, steps, (), (), 100.0, 100.0 + duration_s)
    for path, value in (
        (run.record, record),
        (attempt.claim, claim),
        (attempt.exit, ended),
    ):
        write_json(path, to_record(value))
    rows = [
        {"step": i + 1} if step_s is None else {"step": i + 1, "time": 50 + i * step_s}
        for i in range(steps)
    ]
    (run.root / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_start_up_is_not_multiplied_by_the_length_of_a_run(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "study")
    write_finished(paths, 0, duration_s=5.0, steps=40, step_s=0.05)  # 2 s of steps
    estimate = estimate_duration(PLAN, paths, num_missing=3, slots=2)
    assert estimate is not None
    # Two waves of 3 s start-up and 400 steps at 20 a second.
    assert estimate.duration_s == pytest.approx(2 * (3.0 + 20.0))
    assert estimate.num_finished_runs == 1


def test_without_a_speed_the_whole_time_counts_as_steps(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "study")
    write_finished(paths, 0, duration_s=8.0, steps=40, step_s=None)
    estimate = estimate_duration(PLAN, paths, num_missing=1, slots=2)
    assert estimate is not None
    assert estimate.duration_s == pytest.approx(80.0)


def test_another_sweep_beside_it_serves_where_this_one_has_no_run(tmp_path: Path) -> None:
    write_finished(SweepPaths(tmp_path / "other"), 0, duration_s=8, steps=40, step_s=None)
    assert estimate_duration(PLAN, SweepPaths(tmp_path / "study"), 1, 1) is not None


def test_without_any_finished_run_there_is_no_estimate(tmp_path: Path) -> None:
    assert estimate_duration(PLAN, SweepPaths(tmp_path / "study"), 1, 1) is None
