from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import load_sweep
from analysis.runs import Run, RunState
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json, write_json
from harness.records.layout import SweepPaths
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep


def only_run(sweep_dir: Path) -> Run:
    [run] = load_sweep(sweep_dir).runs
    return run


def notices(sweep_dir: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for notice in load_sweep(sweep_dir).notices:
        found.setdefault(notice.kind, []).append(notice.message)
    return found


def test_every_planned_run_is_loaded_in_the_order_of_arms_and_seeds(
    sweep_maker: MakeSweep,
) -> None:
    sweep = load_sweep(sweep_maker({"ipo": HEALTHY, "icepop": COLLAPSING}, seeds=(2, 0)))
    assert [run.run_id for run in sweep.runs] == [
        "ipo/seed_0",
        "ipo/seed_2",
        "icepop/seed_0",
        "icepop/seed_2",
    ]
    assert all(run.is_done for run in sweep.runs)
    assert sweep.notices == ()
    assert set(sweep.table["flag"]) == {"ok"}


def test_metrics_are_found_under_the_trainers_keys(sweep_maker: MakeSweep) -> None:
    run = only_run(sweep_maker({"ipo": HEALTHY}, seeds=(0,)))
    assert run.keys.keys["solve_rate"] == "train/reverse/all/agent/reward/mean"
    assert run.keys.keys["solve_rate_effective"] == "train/reverse/effective/agent/reward/mean"
    curve = run.curve("mismatch_kl")
    assert curve is not None
    assert curve.steps.tolist() == list(range(1, 121))


@pytest.mark.parametrize(
    ("behaviour", "state"),
    [
        (HEALTHY, RunState.DONE),
        (Behaviour(is_started=False), RunState.PLANNED),
        (Behaviour(ends_at=50, outcome=None), RunState.UNFINISHED),
        (Behaviour(ends_at=50, outcome="failed"), RunState.FAILED),
        (Behaviour(ends_at=50, outcome="cancelled"), RunState.CANCELLED),
        (Behaviour(ends_at=50, outcome="superseded"), RunState.UNFINISHED),
        (Behaviour(ends_at=50, outcome="done"), RunState.SHORT),
    ],
)
def test_states_follow_the_newest_exit(
    sweep_maker: MakeSweep, behaviour: Behaviour, state: RunState
) -> None:
    assert only_run(sweep_maker({"ipo": behaviour}, seeds=(0,))).state is state


def test_a_done_run_is_unfinished_once_its_max_steps_were_raised(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY}, seeds=(0,))
    plan_path = SweepPaths(root).plan
    plan = read_json(plan_path)
    plan["runs"][0]["max_steps"] = 500
    write_json(plan_path, plan)
    assert only_run(root).state is RunState.UNFINISHED


def test_a_resumed_run_has_one_value_per_step_and_none_of_the_stale_ones(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"ipo": Behaviour(resumes_at=61)}, seeds=(0,))
    sweep = load_sweep(root)
    [run] = sweep.runs
    curve = run.curve("mismatch_kl")
    assert curve is not None
    assert curve.steps.tolist() == list(range(1, 121))
    assert curve.values.max() < 1.0
    stale = sweep.table[(sweep.table["metric"] == "mismatch_kl") & (sweep.table["value"] == 9.0)]
    assert stale["step"].tolist() == [61, 62, 63, 64, 65, 66]
    assert set(stale["flag"]) == {"superseded"}
    assert run.num_superseded == 6
    assert notices(root) == {
        "superseded": ["ipo/seed_0: 6 steps logged again after a resume; the newer values count"]
    }


def test_wall_time_adds_up_attempts_and_ends_at_the_last_heartbeat_without_an_exit(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"ipo": Behaviour(resumes_at=61, outcome=None)}, seeds=(0,))
    time = only_run(root).time
    assert time.wall_s == 60.0 + 30.0
    assert time.steps_per_s == pytest.approx(120 / 90.0)
    assert time.end is not None
    assert time.start is not None
    assert time.end - time.start == 5030.0


def test_a_torn_line_is_counted_and_costs_nothing_else(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(has_torn_line=True)}, seeds=(0,))
    run = only_run(root)
    [file] = run.files
    assert file.num_bad_lines == 1
    curve = run.curve("entropy")
    assert curve is not None
    assert len(curve) == 120
    assert notices(root)["bad_lines"] == ["ipo/seed_0: 1 unreadable line (line 31)"]


def test_a_started_run_without_metrics_says_so(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": Behaviour(has_metrics=False, outcome="failed")}, seeds=(0,))
    run = only_run(root)
    assert run.curves == {}
    [file] = run.files
    assert file.problem == "missing"


def test_rewards_that_are_no_solve_rate_are_refused(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY}, seeds=(0,), max_steps=30)
    path = SweepPaths(root).run("ipo", 0).metrics
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["train/reverse/all/agent/reward/mean"] = 2.5
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = only_run(root)
    assert run.curve("solve_rate") is None
    assert run.keys.problems["solve_rate"] == (
        "`train/reverse/all/agent/reward/mean` holds 2.5: rewards beyond 0 and 1 have no solve rate"
    )


def test_a_missing_or_broken_record_costs_only_its_run(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY}, seeds=(0, 1, 2))
    paths = SweepPaths(root)
    paths.run("ipo", 0).record.unlink()
    paths.run("ipo", 1).attempt(1).exit.write_text("{")
    sweep = load_sweep(root)
    assert [run.state for run in sweep.runs] == [
        RunState.DONE,
        RunState.PLANNED,
        RunState.DONE,
    ]
    assert sweep.runs[0].curves == {}
    [message] = notices(root)["unreadable_record"]
    assert message.startswith("`runs/ipo/seed_1/attempts/1/exit.json` can't be read")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arm": "icepop"}, "run.json says arm `icepop`"),
        ({"seed": 3}, "run.json says seed 3"),
        ({"identity": "another"}, "run.json says another config than the plan's"),
    ],
)
def test_nothing_is_read_from_the_folder_of_another_run(
    sweep_maker: MakeSweep, change: dict[str, object], words: str
) -> None:
    root = sweep_maker({"ipo": HEALTHY}, seeds=(0,))
    path = SweepPaths(root).run("ipo", 0).record
    write_json(path, {**read_json(path), **change})
    run = only_run(root)
    assert (run.state, run.foreign) == (RunState.FOREIGN, words)
    assert (run.curves, run.config, run.attempts, run.files) == ({}, None, (), ())
    assert not run.is_done


def test_keys_of_the_run_record_are_used_with_a_plain_csv(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": replace(HEALTHY, has_metrics=False)}, seeds=(0,), max_steps=3)
    paths = SweepPaths(root).run("ipo", 0)
    record = {
        **read_json(paths.record),
        "metrics": "trainer/log.csv",
        "metrics_format": "csv",
        "metrics_keys": {"mismatch_kl": "kl", "solve_rate": "acc", "step": "it"},
    }
    write_json(paths.record, record)
    (paths.root / "trainer").mkdir()
    (paths.root / "trainer" / "log.csv").write_text("it,kl,acc\n1,0.1,0.5\n2,0.2,0.6\n3,0.3,1\n")
    run = only_run(root)
    assert run.state is RunState.DONE
    kl, solve_rate = run.curve("mismatch_kl"), run.curve("solve_rate")
    assert kl is not None
    assert solve_rate is not None
    assert kl.values.tolist() == [0.1, 0.2, 0.3]
    assert solve_rate.steps.tolist() == [1, 2, 3]


def test_a_folder_without_a_plan_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_sweep(tmp_path / "nowhere")
    assert caught.value.message == f"`{tmp_path / 'nowhere'}` is no sweep: it has no `plan.json`"
    assert caught.value.hint


def test_a_broken_plan_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"sweep": 1}')
    with pytest.raises(HarnessError, match=r"plan\.json"):
        load_sweep(tmp_path)
