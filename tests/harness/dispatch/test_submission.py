from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from harness.dispatch.interface import Order
from harness.dispatch.requests import cancelled_runs, write_cancel_request
from harness.dispatch.submission import open_submission, write_receipt
from harness.errors import HarnessError
from harness.profile import LocalProfile, Profile
from harness.records.layout import SweepPaths
from harness.records.model import ArrayPlan, Intent, PlannedRun, Receipt, read_record
from harness.slurm_profile import SlurmProfile


@pytest.fixture
def order(tmp_path: Path) -> Order:
    run = PlannedRun("ipo", 0, "identity", 10)
    profile = Profile("here", LocalProfile(slots=2))
    return Order(SweepPaths(tmp_path / "toy"), (run,), profile, "c" * 64, Path("code"))


def test_ids_count_up_and_end_in_the_nonce(order: Order) -> None:
    opened = [open_submission(order) for _ in range(3)]
    assert [s.paths.id.partition("-")[0] for s in opened] == ["0001", "0002", "0003"]
    assert [s.paths.id.partition("-")[2] for s in opened] == [s.intent.nonce for s in opened]
    assert [s.id for s in order.sweep.submissions()] == [s.paths.id for s in opened]


def test_folder_without_intent_keeps_its_number(order: Order) -> None:
    (order.sweep.submissions_dir / "0041-abcdef").mkdir(parents=True)
    (order.sweep.submissions_dir / "notes").mkdir()
    assert open_submission(order).paths.id.startswith("0042-")


def test_numbers_end_with_an_error_not_out_of_order(order: Order) -> None:
    (order.sweep.submissions_dir / "9999-abcdef").mkdir(parents=True)
    with pytest.raises(HarnessError, match="is full"):
        open_submission(order)


def test_intent_holds_the_whole_order(order: Order) -> None:
    submission = open_submission(order)
    intent = read_record(Intent, submission.paths.intent)
    assert intent == submission.intent
    assert intent.runs == order.runs
    assert (intent.profile, intent.settings["type"], intent.settings["slots"]) == (
        "here",
        "local",
        2,
    )
    assert intent.code_dir == str(Path.cwd() / "code")


def test_intent_holds_arrays_and_user_and_the_nonce_that_names_jobs(order: Order) -> None:
    array = ArrayPlan(0, "toy@abcdef.0", ("ipo/seed_0",), {"type": "slurm"}, 1, None)
    submission = open_submission(order, "abcdef", arrays=(array,), user="me")
    intent = read_record(Intent, submission.paths.intent)
    assert (intent.nonce, intent.arrays, intent.user) == ("abcdef", (array,), "me")
    assert submission.paths.id == "0001-abcdef"
    assert intent.planned_gpu_hours is None  # this profile says nothing of GPUs and time


def test_intent_holds_the_gpu_hours_that_its_runs_may_take(order: Order) -> None:
    whole = asdict(SlurmProfile(nodes=2, gpus_per_node=8, time=90))
    small = asdict(SlurmProfile(gpus_per_node=1, time=30))
    arrays = (
        ArrayPlan(0, "toy@abcdef.0", ("ipo/seed_0", "ipo/seed_1"), whole),
        ArrayPlan(1, "toy@abcdef.1", ("none/seed_0",), small),
    )
    intent = read_record(Intent, open_submission(order, "abcdef", arrays=arrays).paths.intent)
    assert intent.planned_gpu_hours == 2 * 2 * 8 * 1.5 + 0.5


def test_receipt_holds_outcomes_and_times(order: Order) -> None:
    submission = open_submission(order)
    write_receipt(submission, {}, {"ipo/seed_0": "done"})
    receipt = read_record(Receipt, submission.paths.receipt)
    assert (receipt.id, receipt.outcomes) == (submission.paths.id, {"ipo/seed_0": "done"})
    assert receipt.start == submission.intent.time <= receipt.end


def test_receipt_that_cannot_be_written_is_named(order: Order) -> None:
    submission = open_submission(order)
    submission.paths.receipt.mkdir()
    (submission.paths.receipt / "in_the_way").touch()
    with pytest.raises(HarnessError, match=r"receipt\.json` can't be written"):
        write_receipt(submission, {}, {})


def test_requests_add_up(order: Order) -> None:
    paths = open_submission(order).paths
    runs = ["a/seed_0", "b/seed_0", "c/seed_0"]
    assert cancelled_runs(paths, runs) == set()
    write_cancel_request(paths, ["a/seed_0", "elsewhere/seed_9"])
    write_cancel_request(paths, ["b/seed_0"])
    assert cancelled_runs(paths, runs) == {"a/seed_0", "b/seed_0"}
    write_cancel_request(paths, None)
    assert cancelled_runs(paths, runs) == set(runs)
