"""The local queue over real runners and programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.dispatch.interface import Order, Preview, Result, Snapshot, load_dispatcher
from harness.dispatch.local import LocalDispatcher, count_slots
from harness.dispatch.lock import acquire_lock, read_lock
from harness.errors import UsageError
from harness.profile import LocalProfile, Profile
from harness.records.model import Intent, Receipt, read_record
from harness.runner.process import environment_of, process_start
from harness.state.cancel import cancel
from harness.state.status import RunState

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]
    WaitUntil = Callable[..., None]

TRAINS = ("trains", "METRICS", "0")
TRAINS_SLOWLY = ("trains", "METRICS", "0.02")
FOREVER = 1_000_000


def follow(
    sweep: DiskSweep,
    show: Callable[[Snapshot], None] = lambda _snapshot: None,
    **settings: Any,
) -> Result:
    profile = Profile("test", LocalProfile(**{"grace_s": 5.0, **settings}))
    order = Order(sweep.paths, sweep.plan.runs, profile, code_hash="0" * 64)
    return LocalDispatcher().submit(order).follow(show)


def trainer_pid(sweep: DiskSweep, arm: str) -> int | None:
    beat = sweep.heartbeat(arm)
    return None if beat is None else beat.trainer_pid


def is_gone(pid: int) -> bool:
    return process_start(pid) == ""


def test_one_failed_run_does_not_stop_the_others(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"bad": ("raises", "METRICS"), "ok": TRAINS}, seeds=[0, 1])
    result = follow(sweep, slots=2)
    assert [(o.run.run_id, o.state) for o in result.outcomes] == [
        ("bad/seed_0", RunState.FAILED),
        ("ok/seed_0", RunState.DONE),
        ("bad/seed_1", RunState.FAILED),
        ("ok/seed_1", RunState.DONE),
    ]
    assert result.outcomes[0].error == "ValueError: the batch is empty"
    assert not result.is_all_done
    assert result.interrupted_by is None
    receipt = read_record(Receipt, sweep.paths.submission(result.submission).receipt)
    assert receipt.outcomes == {o.run.run_id: str(o.state) for o in result.outcomes}
    assert not sweep.paths.lock.exists()


def test_preview_of_a_local_queue_is_empty_and_refuses_as_submit_does(
    make_sweep: MakeSweep,
) -> None:
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile())
    order = Order(sweep.paths, sweep.plan.runs, profile, code_hash="0" * 64)
    assert LocalDispatcher().preview(order) == Preview()
    twice = Order(sweep.paths, sweep.plan.runs * 2, profile, code_hash="0" * 64)
    with pytest.raises(UsageError, match="a run stands twice"):
        LocalDispatcher().preview(twice)
    assert sweep.paths.submissions() == []


def test_intent_stands_before_the_first_run_starts(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile(slots=1))
    order = Order(sweep.paths, sweep.plan.runs, profile, "f" * 64, code_dir=None)
    handle = LocalDispatcher().submit(order)
    intent = read_record(Intent, handle.submission.intent)
    assert intent.runs == sweep.plan.runs
    assert (intent.profile, intent.settings["slots"], intent.pid) == ("test", 1, os.getpid())
    assert sweep.run("ok").attempts() == []
    assert handle.follow(lambda _snapshot: None).is_all_done
    assert sweep.claim("ok").nonce == intent.nonce


def test_a_lock_that_is_handed_over_goes_with_the_queue(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile(slots=1))
    order = Order(sweep.paths, sweep.plan.runs, profile, "f" * 64)
    lock = acquire_lock(sweep.paths)
    handle = LocalDispatcher().submit(order, lock)
    assert read_lock(sweep.paths) == lock.holder
    assert handle.follow(lambda _snapshot: None).is_all_done
    assert read_lock(sweep.paths) is None


def test_a_lock_that_is_handed_over_is_released_where_the_order_is_refused(
    make_sweep: MakeSweep,
) -> None:
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile(slots=1))
    order = Order(sweep.paths, sweep.plan.runs * 2, profile, "f" * 64)
    with pytest.raises(UsageError, match="a run stands twice") as error:
        LocalDispatcher().submit(order, acquire_lock(sweep.paths))
    assert error.value.hint
    assert read_lock(sweep.paths) is None


def test_runs_start_in_the_given_order(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS, "b": TRAINS}, seeds=[3, 1])
    follow(sweep, slots=1)
    claims = {r.run_id: sweep.run(r.arm, r.seed).attempt(1).claim for r in sweep.plan.runs}
    times = {run_id: json.loads(path.read_text())["time"] for run_id, path in claims.items()}
    assert sorted(times, key=lambda run_id: times[run_id]) == [
        "a/seed_3",
        "b/seed_3",
        "a/seed_1",
        "b/seed_1",
    ]


def test_no_more_runs_than_slots_at_once(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, seeds=range(5))
    counts: list[int] = []

    def count(snapshot: Snapshot) -> None:
        counts.append(sum(p.state is RunState.RUNNING for p in snapshot.runs))

    assert follow(sweep, count, slots=2).is_all_done
    assert max(counts) == 2
    assert counts[-1] == 0


def test_snapshots_show_steps_speed_and_the_end(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=120)
    seen: list[Snapshot] = []
    follow(sweep, seen.append, slots=1)
    running = [s.runs[0] for s in seen if s.runs[0].step and s.runs[0].state is RunState.RUNNING]
    assert any(p.steps_per_s and p.eta_s is not None and p.mismatch_kl for p in running)
    last = seen[-1].runs[0]
    assert (last.state, last.step, last.solve_rate) == (RunState.DONE, 120, 0.5)


def test_gpus_are_leased_to_one_run_at_a_time(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    # The ids are pretended: nothing here touches a GPU.
    arms = dict.fromkeys("abc", TRAINS_SLOWLY)
    sweep = make_sweep(arms, max_steps=FOREVER)
    queue = sweep.start_queue({"slots": 3, "gpus": ["5", "7", "9", "11"], "gpus_per_run": 2})
    wait_until(lambda: trainer_pid(sweep, "a") and trainer_pid(sweep, "b"))
    leases = [
        environment_of(pid)["CUDA_VISIBLE_DEVICES"]
        for arm in "ab"
        if (pid := trainer_pid(sweep, arm)) is not None
    ]
    assert sorted(leases) == ["5,7", "9,11"]
    assert sweep.run("c").attempts() == []
    queue.process.send_signal(signal.SIGINT)
    queue.wait()
    assert sweep.exit("a").gpus == ("5", "7")


def test_freed_gpus_are_leased_again(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS}, seeds=range(4))
    assert follow(sweep, slots=4, gpus=["5", "7"], gpus_per_run=1).is_all_done
    gpus = [sweep.run("ok", seed).attempt(1).exit for seed in range(4)]
    held = [json.loads(path.read_text())["gpus"] for path in gpus]
    assert {tuple(ids) for ids in held} == {("5",), ("7",)}


def test_more_gpus_per_run_than_there_are_is_refused(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    with pytest.raises(UsageError, match="`gpus_per_run` is 3, and there are 2 GPUs"):
        follow(sweep, gpus=["0", "1"], gpus_per_run=3)
    assert sweep.paths.submissions() == []


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"slots": 7}, 7),
        ({"slots": 7, "gpus": ["0", "1"]}, 2),
        ({"slots": 7, "gpus": ["0", "1", "2"], "gpus_per_run": 2}, 1),
        ({"slots": 7, "gpus": ["0", "1"], "gpus_per_run": 0}, 7),
        ({"slots": 7, "gpus": []}, 7),
        ({"threads": 10_000}, 1),
    ],
)
def test_count_slots(settings: dict[str, Any], slots: int) -> None:
    assert count_slots(Profile("test", LocalProfile(**settings))) == slots


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_everything_and_leaves_cancelled_records(
    make_sweep: MakeSweep, wait_until: WaitUntil, number: signal.Signals
) -> None:
    sweep = make_sweep({"a": TRAINS_SLOWLY, "b": TRAINS}, max_steps=FOREVER)
    queue = sweep.start_queue({"slots": 1})
    wait_until(lambda: sweep.run("a").metrics.exists() and trainer_pid(sweep, "a"))
    pid = trainer_pid(sweep, "a")
    assert pid is not None
    queue.process.send_signal(number)
    code, out, err = queue.wait()
    assert (code, err) == (128 + number, "")
    assert json.loads(out) == {"a/seed_0": "cancelled", "b/seed_0": "cancelled"}
    assert (sweep.exit("a").reason, sweep.exit("a").code) == ("cancelled", 143)
    assert sweep.run("b").attempts() == []
    assert is_gone(pid)
    assert not sweep.paths.lock.exists()


def test_second_signal_ends_the_grace(make_sweep: MakeSweep, wait_until: WaitUntil) -> None:
    sweep = make_sweep({"deaf": ("ignores_sigterm", "METRICS")})
    queue = sweep.start_queue({"grace_s": 3600})
    wait_until(sweep.run("deaf").metrics.exists)
    queue.process.send_signal(signal.SIGINT)
    sent = [signal.SIGINT]

    def has_ended() -> bool:
        if queue.process.poll() is None and len(sent) < 100:
            sent.append(signal.SIGINT)
            queue.process.send_signal(signal.SIGINT)
        return queue.process.poll() is not None

    wait_until(has_ended)
    queue.wait()
    assert (sweep.exit("deaf").reason, sweep.exit("deaf").signal) == ("cancelled", signal.SIGKILL)


def test_nothing_survives_a_killed_queue(
    make_sweep: MakeSweep, wait_until: WaitUntil, tmp_path: Path
) -> None:
    pid_file = tmp_path / "grandchild.pid"
    sweep = make_sweep({"leaves": ("leaves_grandchild", "METRICS", str(pid_file), "stay")})
    queue = sweep.start_queue({"slots": 1})
    wait_until(lambda: pid_file.exists() and trainer_pid(sweep, "leaves"))
    pids = [sweep.claim("leaves").pid, int(pid_file.read_text()), trainer_pid(sweep, "leaves")]
    queue.process.kill()
    queue.wait()
    wait_until(lambda: all(is_gone(pid) for pid in pids if pid is not None), "their end")
    assert sweep.exit("leaves").reason == "cancelled"
    assert follow(make_sweep({"leaves": TRAINS}), slots=1).is_all_done


def test_nothing_survives_a_killed_runner(
    make_sweep: MakeSweep, wait_until: WaitUntil, tmp_path: Path
) -> None:
    pid_file = tmp_path / "grandchild.pid"
    arms = {"leaves": ("leaves_grandchild", "METRICS", str(pid_file), "stay"), "ok": TRAINS}
    sweep = make_sweep(arms)
    queue = sweep.start_queue({"slots": 1})
    wait_until(lambda: pid_file.exists() and trainer_pid(sweep, "leaves"))
    os.kill(sweep.claim("leaves").pid, signal.SIGKILL)
    code, out, _ = queue.wait()
    assert (code, json.loads(out)) == (0, {"leaves/seed_0": "lost", "ok/seed_0": "done"})
    assert is_gone(int(pid_file.read_text()))
    pid = trainer_pid(sweep, "leaves")
    assert pid is not None
    assert is_gone(pid)


def test_cancel_from_another_shell_drops_waiting_and_stops_running_runs(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    arms = {"a": TRAINS_SLOWLY, "b": TRAINS_SLOWLY, "c": TRAINS_SLOWLY}
    sweep = make_sweep(arms, max_steps=FOREVER)
    queue = sweep.start_queue({"slots": 1})
    wait_until(lambda: trainer_pid(sweep, "a"))
    would_end = cancel(sweep.paths, ["b/seed_0"], dry_run=True)
    assert [(s.run_id, s.state) for s in would_end.runs] == [("b/seed_0", RunState.QUEUED)]
    [submission] = sweep.paths.submissions()
    assert submission.cancel_requests() == []
    cancel(sweep.paths, ["b/seed_0"])
    cancel(sweep.paths, ["a/seed_0"])
    wait_until(lambda: trainer_pid(sweep, "c"), "the start of c")
    assert sweep.exit("a").reason == "cancelled"
    assert sweep.run("b").attempts() == []
    again = cancel(sweep.paths)
    assert [s.run_id for s in again.runs] == ["c/seed_0"]
    assert [s.run_id for s in again.unaffected] == ["a/seed_0", "b/seed_0"]
    code, out, _ = queue.wait()
    assert code == 0
    assert set(json.loads(out).values()) == {"cancelled"}


def test_cancel_names_an_unknown_run(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    with pytest.raises(UsageError, match="`toy` has no run `okay/seed_0`") as error:
        cancel(sweep.paths, ["okay/seed_0"])
    assert error.value.hint == "did you mean `ok/seed_0`?"


def test_second_queue_of_a_sweep_is_refused_and_harms_nothing(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=FOREVER)
    queue = sweep.start_queue()
    wait_until(lambda: trainer_pid(sweep, "ok"))
    with pytest.raises(UsageError, match=f"is being run by pid {queue.pid} on "):
        follow(sweep)
    assert len(sweep.paths.submissions()) == 1
    queue.process.send_signal(signal.SIGINT)
    assert json.loads(queue.wait()[1]) == {"ok/seed_0": "cancelled"}


def test_run_again_does_only_what_is_missing(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    assert follow(sweep).is_all_done
    assert follow(sweep).is_all_done
    assert [a.number for a in sweep.run("ok").attempts()] == [1]


def test_error_in_the_display_ends_the_runs(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS_SLOWLY}, max_steps=FOREVER)

    def break_down(snapshot: Snapshot) -> None:
        if snapshot.runs[0].step:
            raise RuntimeError("no display")

    with pytest.raises(RuntimeError, match="no display"):
        follow(sweep, break_down)
    assert sweep.exit("ok").reason == "cancelled"
    assert is_gone(sweep.claim("ok").pid)
    assert not sweep.paths.lock.exists()


def test_shell_of_the_user_does_not_leak_into_runs(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PRL_RUN_ID", "WANDB_RUN_ID", "HARNESS_ATTEMPT", "HARNESS_ANYTHING"):
        monkeypatch.setenv(name, "of the shell")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("KEPT", "a b")
    sweep = make_sweep({"env": ("prints_environment", "METRICS")})
    assert follow(sweep, threads=3).is_all_done
    env = json.loads(sweep.run("env").attempt(1).log.read_text())
    assert "of the shell" not in env.values()
    assert (env["OMP_NUM_THREADS"], env["MKL_NUM_THREADS"], env["KEPT"]) == ("3", "3", "a b")
    assert "HARNESS_PARENT_PID" not in env


def test_runs_import_the_frozen_code(make_sweep: MakeSweep, tmp_path: Path) -> None:
    code_dir = tmp_path / "code"
    package = code_dir / "harness"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "runner.py").write_text("raise SystemExit('frozen')\n")
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile())
    order = Order(sweep.paths, sweep.plan.runs, profile, "0" * 64, code_dir)
    result = LocalDispatcher().submit(order).follow(lambda _snapshot: None)
    assert [(o.state, o.error) for o in result.outcomes] == [(RunState.FAILED, "frozen")]


def test_code_folder_that_cannot_be_imported_from_is_refused(
    make_sweep: MakeSweep, tmp_path: Path
) -> None:
    sweep = make_sweep({"ok": TRAINS})
    profile = Profile("test", LocalProfile())
    order = Order(sweep.paths, sweep.plan.runs, profile, "0" * 64, tmp_path / "a:b")
    with pytest.raises(UsageError, match="can't import from a path with `:`"):
        LocalDispatcher().submit(order)


def test_run_that_stands_twice_is_refused(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": TRAINS})
    order = Order(sweep.paths, sweep.plan.runs * 2, Profile("test", LocalProfile()), "0" * 64)
    with pytest.raises(UsageError, match="a run stands twice"):
        LocalDispatcher().submit(order)


def test_unknown_dispatcher_is_refused() -> None:
    assert isinstance(load_dispatcher("local"), LocalDispatcher)
    with pytest.raises(UsageError, match="no dispatcher `locl`"):
        load_dispatcher("locl")
