"""Runs that a stop rule ends: real runners over small real programs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analysis.live import read_curves
from analysis.stopping import find_stop
from harness.dispatch.submission import Submission
from harness.records.files import write_json
from harness.records.model import AnalysisSpec, Exit, RunRecord, StopRule, read_record, to_record
from harness.runner.decide import Case, Decision, Policy, Stop, decide
from harness.runner.slurm_job import JobFacts, JobSign
from harness.runner.stopping import StopWatch, spent_rules

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

SPEC = AnalysisSpec(baseline_steps=(2, 6), collapse_window=4)
RULE = StopRule("collapsed", hold_steps=10)
DIES = ("dies_slowly", "METRICS", "20", "0.02")
# Means over 4 steps are below half of the baseline from the third step without a success on.
FIRES_AT = 22 + 10 - 1


def submit(sweep: DiskSweep, *rules: StopRule, **settings: Any) -> Submission:
    """Write the intent of a submission with stop rules for all runs."""
    submission = sweep.submit(**settings)
    intent = replace(submission.intent, stop_when=rules, analysis=SPEC)
    write_json(submission.paths.intent, to_record(intent))
    return replace(submission, intent=intent)


def test_a_rule_stops_the_trainer_with_grace_and_the_record_says_which_and_where(
    make_sweep: MakeSweep,
) -> None:
    sweep = make_sweep({"dies": DIES}, max_steps=10_000)
    code, _, err = sweep.start_runner("dies", submit(sweep, RULE)).wait()
    ended = sweep.exit("dies")
    assert (code, ended.reason, ended.error) == (0, "stopped", "")
    assert (ended.rule, ended.rule_step) == ("collapsed:hold_steps=10", FIRES_AT)
    assert (ended.code, ended.signal) == (143, None)
    assert (sweep.run("dies").trainer_dir / "saved").exists()
    assert err == f"harness.runner: stopping: `collapsed:hold_steps=10` holds at step {FIRES_AT}\n"
    assert sweep.claim("dies").stop_when == ("collapsed:hold_steps=10",)
    assert ended.last_step is not None
    assert FIRES_AT < ended.last_step < 10_000
    # Without GPUs there are no GPU-hours to spend.
    assert ended.unspent_gpu_hours == 0.0
    record = read_record(RunRecord, sweep.run("dies").record)
    found = find_stop(read_curves(sweep.run("dies").root, record), [RULE], SPEC, 10_000)
    assert found is not None
    assert found.step == ended.rule_step


def test_what_is_not_spent_is_the_rest_of_the_steps_at_the_speed_of_then(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    sweep = make_sweep({"dies": ("dies_slowly", "METRICS", "60", "0.05")}, max_steps=10_000)
    sweep.start_runner("dies", submit(sweep, RULE)).wait()
    ended, beat = sweep.exit("dies"), sweep.heartbeat("dies")
    assert beat is not None
    assert beat.steps_per_s is not None
    assert ended.last_step is not None
    assert ended.unspent_gpu_hours is not None
    expected = (10_000 - ended.last_step) / beat.steps_per_s * 2 / 3600
    assert ended.unspent_gpu_hours == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize(
    ("metrics", "keys"),
    [("jsonl", {"solve_rate": "train/toy/all/agent/reward/mean"}), ("prime_rl", {})],
)
def test_rules_read_the_format_and_the_names_that_the_run_logs_in(
    make_sweep: MakeSweep, metrics: str, keys: Mapping[str, str]
) -> None:
    trainer = {"metrics_format": metrics, "metrics_keys": keys}
    sweep = make_sweep({"dies": DIES}, max_steps=10_000, trainer=trainer)
    sweep.start_runner("dies", submit(sweep, RULE)).wait()
    assert (sweep.exit("dies").reason, sweep.exit("dies").rule_step) == ("stopped", FIRES_AT)


def test_a_run_that_no_rule_stops_is_done(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"lives": ("dies_slowly", "METRICS", "1000", "0.02")}, max_steps=80)
    code, _, err = sweep.start_runner("lives", submit(sweep, RULE)).wait()
    ended = sweep.exit("lives")
    assert (code, err, ended.reason, ended.last_step) == (0, "", "done", 80)
    assert (ended.rule, ended.rule_step, ended.unspent_gpu_hours) == ("", None, None)


def test_a_stopped_run_has_nothing_to_do_in_its_submission_and_goes_on_in_the_next(
    make_sweep: MakeSweep,
) -> None:
    """Whoever has it go on all the same isn't stopped by the same rule once more."""
    sweep = make_sweep({"dies": DIES}, max_steps=10_000)
    first = submit(sweep, RULE)
    sweep.start_runner("dies", first).wait()
    code, _, err = sweep.start_runner("dies", first).wait()
    assert (code, err) == (
        0,
        "harness.runner: nothing to do: attempt 1 was stopped by `collapsed:hold_steps=10`\n",
    )
    other = StopRule(metric="solve_rate", below=0.1, hold_steps=150)
    code, _, _ = sweep.start_runner("dies", submit(sweep, RULE, other)).wait()
    ended = sweep.exit("dies", 2)
    assert spent_rules(sweep.run("dies")) == {RULE.text, other.text}
    assert sweep.claim("dies", 2).stop_when == (other.text,)
    assert (code, ended.reason, ended.rule, ended.rule_step) == (0, "stopped", other.text, 169)
    assert ended.last_step is not None
    max_steps = ended.last_step + 50
    sweep.replan({"dies": DIES}, max_steps=max_steps)
    sweep.start_runner("dies", submit(sweep, RULE, other)).wait()
    assert sweep.claim("dies", 3).stop_when == ()
    assert (sweep.exit("dies", 3).reason, sweep.exit("dies", 3).last_step) == ("done", max_steps)


def test_a_trainer_that_ignores_the_end_is_killed_and_stopped_all_the_same(
    make_sweep: MakeSweep,
) -> None:
    sweep = make_sweep({"deaf": ("ignores_sigterm", "METRICS")}, max_steps=10_000)
    rule = StopRule(metric="mismatch_kl", above=-1.0)
    submission = submit(sweep, rule, grace_s=0.5)
    runner = sweep.start_runner("deaf", submission)
    time.sleep(2.0)
    metrics = sweep.run("deaf").metrics
    row = metrics.read_text().splitlines()[-1]
    assert '"step"' in row
    with metrics.open("a") as file:
        for step in (2, 3):
            file.write(f'{{"step": {step}, "attempt": 1, "mismatch_kl/all/mean": 0.1}}\n')
    code, _, _ = runner.wait()
    ended = sweep.exit("deaf")
    assert (code, ended.reason, ended.signal) == (0, "stopped", signal.SIGKILL)


def test_a_rule_on_a_metric_that_nobody_logs_is_warned_of_once(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"lives": ("dies_slowly", "METRICS", "1000", "0.02")}, max_steps=300)
    rules = (StopRule(metric="entropy", below=0.1), RULE)
    code, _, err = sweep.start_runner("lives", submit(sweep, *rules)).wait()
    assert (code, sweep.exit("lives").reason) == (0, "done")
    assert err == (
        "harness.runner: warning: the stop rule `entropy:below=0.1` can't fire: `entropy` is not"
        " logged; the run goes on\n"
    )


def watch(sweep: DiskSweep, said: list[str], max_steps: int = 1000) -> StopWatch:
    paths = sweep.run("dies")
    record = read_record(RunRecord, paths.record)
    return StopWatch(paths, record, [RULE], SPEC, max_steps, said.append)


def write_rows(path: Path, last: int) -> None:
    path.parent.mkdir(exist_ok=True)
    rates = [0.8 if step < 20 else 0.0 for step in range(1, last + 1)]
    key = "train/toy/all/agent/reward/mean"
    rows = [f'{{"step": {step}, "{key}": {rate}}}\n' for step, rate in enumerate(rates, 1)]
    path.write_text("".join(rows))


@pytest.mark.parametrize("every", [1, 3, 7])
def test_how_often_the_node_looks_does_not_change_the_step(
    make_sweep: MakeSweep, every: int
) -> None:
    sweep = make_sweep({"dies": DIES})
    said: list[str] = []
    looks = watch(sweep, said)
    for step in range(1, 60, every):
        write_rows(sweep.run("dies").metrics, step)
        looks._next_at = float("-inf")  # the clock of this test runs faster than the node's
        firing = looks.poll(step)
        # The newest step may lack rows yet.
        assert (firing is not None) == (step > FIRES_AT)
        if firing is not None:
            assert firing.step == FIRES_AT
            break
    assert said == []


def test_a_run_that_has_made_its_last_step_is_left_alone(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"dies": DIES})
    write_rows(sweep.run("dies").metrics, 60)
    assert watch(sweep, [], max_steps=60).poll(60) is None
    assert watch(sweep, [], max_steps=61).poll(60) is not None


def test_looking_takes_a_small_share_of_the_time(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"dies": DIES})
    write_rows(sweep.run("dies").metrics, 19)
    looks = watch(sweep, [])
    looks.poll(1)
    spent = 0.0
    began = time.monotonic()
    step = 1
    while time.monotonic() - began < 3.0:
        step += 1
        before = time.process_time()
        looks.poll(step)
        spent += time.process_time() - before
        time.sleep(0.01)
    # The last look may lie in the pause that it makes up for.
    assert spent / (time.monotonic() - began) < 0.03


def test_what_can_not_be_evaluated_is_said_once_and_stops_nothing(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep({"dies": DIES})
    said: list[str] = []
    looks = watch(sweep, said)
    looks._rules = (StopRule("no such event"),)  # as of a newer version of the records
    write_rows(sweep.run("dies").metrics, 60)
    for step in (58, 59, 60):
        looks._next_at = float("-inf")
        assert looks.poll(step) is None
    assert said == [
        "warning: the stop rules can't be evaluated: KeyError: 'no such event'; the run goes on"
    ]


@pytest.mark.parametrize("sign", [sign for sign in JobSign if sign is not JobSign.CANCELLED])
def test_a_stopped_run_is_neither_started_again_nor_failed_whatever_slurm_says(
    sign: JobSign,
) -> None:
    past = (None, None)
    case = Case(Stop.RULE, False, JobFacts(sign), past=past)
    assert decide(case, Policy()) == Decision("stopped")


def test_a_damaged_record_of_an_earlier_attempt_spends_no_rule(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"dies": DIES}, max_steps=10_000)
    sweep.start_runner("dies", submit(sweep, RULE)).wait()
    path = sweep.run("dies").attempt(1).exit
    assert read_record(Exit, path).reason == "stopped"
    path.write_text("{")
    assert spent_rules(sweep.run("dies")) == frozenset()
