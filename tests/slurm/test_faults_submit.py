"""Submissions that are interrupted, refused, doubted: nothing is lost and nothing runs twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.cluster import DISPATCHER
from harness.dispatch.reconcile import reconcile
from harness.errors import HarnessError, UsageError
from harness.state.status import RunState, read_states
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.scene import mount
from tests.slurm.submitting import HELD, OTHER_SHAPE, TRAINS, Submitting, make_submitting

Make = Callable[..., Submitting]

RUNS = ["a/seed_0", "a/seed_1", "b/seed_0", "b/seed_1"]
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.fixture
def make(plain_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a sweep of two arms and two seeds, whose arms are arrays of their own and stay held."""
    monkeypatch.setenv("SLURM_CONF", str(plain_cluster.slurm_conf))
    made: list[Submitting] = []

    def make(folder: Path = tmp_path, **options: Any) -> Submitting:
        options = {"resources": OTHER_SHAPE, **HELD, **options}
        made.append(make_submitting(plain_cluster, folder, {"a": TRAINS, "b": TRAINS}, **options))
        return made[-1]

    yield make
    for submitting in made:
        submitting.end()


def assert_complete(submitting: Submitting) -> None:
    """Every run has one live job, every job of SLURM a receipt, every submission its end."""
    assert submitting.live_runs() == dict.fromkeys(RUNS, 1)
    ids = set()
    for paths in submitting.submissions():
        assert paths.receipt.is_file()
        number = submitting.submissions().index(paths)
        names = submitting.receipts(number)
        assert len(names) >= len(submitting.intent(number).arrays)
        for name, (state, _) in names.items():
            receipt = submitting.receipt(name, number)
            assert receipt is not None
            assert (receipt.job_id is not None) == (state == "accepted")
            assert receipt.cluster is None, "a name of its own cluster asks for a database"
            ids.add(receipt.job_id)
    assert {job.array_job_id for job in submitting.live_jobs()} == ids - {None}
    assert submitting.finishing_jobs()
    assert not submitting.paths.lock.exists()
    states = {status.run_id: status.state for status in read_states(submitting.paths)}
    assert states == dict.fromkeys(RUNS, RunState.QUEUED)


KILL = 'kill -9 "$(submitter)"\n'
STAGES = {
    "before the intent": ("scontrol", 'kill -9 $PPID; exec "$real" "$@"', []),
    "after the intent": ("sbatch", f"{KILL} exit 1", [("not_submitted", False)] * 2),
    "sbatch still on its way": (
        "sbatch",
        f'{KILL} sleep 1.5; exec "$real" "$@"',
        [("accepted", True), ("not_submitted", False), ("accepted", False)],
    ),
    "accepted and not answered": (
        "sbatch",
        f'"$real" "$@"; {KILL}',
        [("accepted", True), ("not_submitted", False), ("accepted", False)],
    ),
    "between arrays": (
        "sbatch",
        f'test $(count) = 1 && exec "$real" "$@"; {KILL}',
        [("accepted", False), ("not_submitted", False), ("accepted", False)],
    ),
    "second array accepted": (
        "sbatch",
        f'test $(count) = 1 && exec "$real" "$@"; "$real" "$@"; {KILL}',
        [("accepted", False), ("accepted", True), ("accepted", False)],
    ),
    "before the finishing job": (
        "sbatch",
        f'test $(count) -le 2 && exec "$real" "$@"; {KILL}',
        [("accepted", False)] * 3,
    ),
    "before the receipt": (
        "sbatch",
        f'test $(count) -le 2 && exec "$real" "$@"; "$real" "$@"; {KILL}',
        [("accepted", False), ("accepted", False), ("accepted", True)],
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_killed_submitter_leaves_what_the_same_command_completes(make: Make, stage: str) -> None:
    program, text, receipts = STAGES[stage]
    submitting = make()
    submitting.shim(program, text)
    code, _, _ = submitting.submit()
    assert code == -signal.SIGKILL
    assert len(submitting.submissions()) == (1 if receipts else 0)
    submitting.remove_shims()
    code, out, err = submitting.submit()
    assert code == 0, err
    assert "broke the lock of pid" in err
    assert_complete(submitting)
    if receipts:
        assert list(submitting.receipts(0).values()) == receipts
        missing = sum(2 for state, _ in receipts[:2] if state == "not_submitted")
        assert f"{missing} missing" in out
        assert ("interrupted" in out) == any(r != ("accepted", False) for r in receipts[:2])
    before = submitting.live_jobs()
    assert submitting.submit()[:2] == (0, "0 missing\n")
    assert submitting.live_jobs() == before


@pytest.mark.parametrize(
    "answer",
    [
        f'echo "{TIMED_OUT}" >&2; exit 1',
        "exit 0",
        'echo "your job is very important to us"',
    ],
    ids=["error", "empty answer", "other answer"],
)
def test_job_that_slurm_took_whatever_sbatch_says_is_found_by_its_name(
    make: Make, answer: str
) -> None:
    submitting = make()
    submitting.shim("sbatch", f'"$real" "$@" > /dev/null; {answer}')
    code, _, err = submitting.submit()
    assert (code, err) == (0, "")
    assert submitting.receipts() == dict.fromkeys(("0", "1", "finish"), ("accepted", True))
    assert_complete(submitting)


def test_job_is_found_when_sbatch_hangs_after_it_was_taken(make: Make) -> None:
    submitting = make()
    submitting.shim(
        "sbatch", '"$real" "$@" > "$0.out"; test $(count) = 1 && sleep 60; cat "$0.out"'
    )
    code, _, err = submitting.submit("2")
    assert (code, err) == (0, "")
    assert list(submitting.receipts().values()) == [
        ("accepted", True),
        ("accepted", False),
        ("accepted", False),
    ]
    assert_complete(submitting)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f'echo "{TIMED_OUT}" >&2; exit 1', "Batch job submission failed: Socket timed out"),
        ("exit 0", "`sbatch` gave no job id, it said: nothing"),
        ("sleep 60", "`sbatch` gave no answer within 0.5 s"),
        ("exit 9", "`sbatch` exited 9 and said nothing"),
    ],
    ids=["error", "empty answer", "no answer", "silent error"],
)
def test_job_that_slurm_did_not_take_is_refused_once(make: Make, answer: str, words: str) -> None:
    submitting = make()
    submitting.shim("sbatch", f"count >/dev/null; {answer}")
    code, _, err = submitting.submit("0.5" if "sleep" in answer else "60")
    assert code == 2
    error, hint = err.splitlines()
    assert error.startswith("error: SLURM refused array 1 of 2 (2 runs): ")
    assert words in error
    assert error.endswith("; 0 of 4 runs are queued, 4 are not")
    assert hint.startswith("hint: see to the profile `site`")
    assert len((submitting.shims / "calls").read_text()) == 1
    assert submitting.receipts() == {"0": ("refused", False), "1": ("not_submitted", False)}
    assert submitting.live_jobs() == []
    submitting.remove_shims()
    assert submitting.submit()[0] == 0
    assert_complete(submitting)


def test_array_that_slurm_refuses_leaves_those_before_it_queued(make: Make) -> None:
    resources = {"b": {"partition": "nowhere"}, "c": {"mem": "300M"}}
    submitting = make(resources=resources)
    code, _, err = submitting.submit()
    assert code == 1
    error, hint = err.splitlines()
    assert error == (
        "error: SLURM refused array 2 of 2 (2 runs): invalid partition specified: nowhere;"
        " Batch job submission failed: Invalid partition name specified;"
        " 2 of 4 runs are queued, 2 are not"
    )
    assert hint.endswith("then `harness run toy --on site` completes it")
    receipts = {"0": ("accepted", False), "1": ("refused", False), "finish": ("accepted", False)}
    assert submitting.receipts() == receipts
    assert submitting.live_runs() == {"a/seed_0": 1, "a/seed_1": 1}
    submitting.replan(resources=OTHER_SHAPE)
    assert submitting.submit()[:2] == (0, "2 missing\n")
    assert_complete(submitting)


def test_arrays_after_a_refused_one_are_not_tried(make: Make) -> None:
    submitting = make(resources={"a": {"partition": "nowhere"}})
    submitting.shim("sbatch", 'count >/dev/null; exec "$real" "$@"')
    code, _, err = submitting.submit()
    assert code == 2
    assert "0 of 4 runs are queued" in err
    assert len((submitting.shims / "calls").read_text()) == 1
    assert submitting.receipts() == {"0": ("refused", False), "1": ("not_submitted", False)}
    skipped = submitting.receipt("1")
    assert skipped is not None
    assert skipped.error == "an array before it was not taken"


def test_finishing_job_that_is_refused_is_a_note(make: Make) -> None:
    submitting = make(finish={"partition": "nowhere"})
    code, _, err = submitting.submit()
    assert code == 0
    assert err.startswith("note: no job will render the report (invalid partition specified")
    assert err.count("\n") == 1
    assert submitting.receipts()["finish"] == ("refused", False)
    assert submitting.live_runs() == dict.fromkeys(RUNS, 1)


def test_two_submitters_at_once_are_one(make: Make) -> None:
    submitting = make()
    submitting.shim("sbatch", 'sleep 0.3; exec "$real" "$@"')
    both = [submitting.start() for _ in range(2)]
    ended = [(process.wait(60), *process.communicate()) for process in both]
    [loser] = [error for code, _, error in ended if code == 2]
    assert [code for code, _, _ in ended].count(0) == 1
    assert loser.startswith("error: sweep `toy` is being run by pid ")
    assert len(submitting.submissions()) == 1
    assert_complete(submitting)


@pytest.mark.parametrize(
    ("call", "count", "hint", "missing"),
    [
        (1, "2 of 4 runs are queued, 2 are not", "`harness run toy --on site` completes it, ", 2),
        (2, "all 4 runs are queued", "", 0),
    ],
)
def test_ctrl_c_while_submitting_finishes_the_array_and_says_what_is_queued(
    make: Make, call: int, count: str, hint: str, missing: int
) -> None:
    submitting = make()
    interrupt = f'test $(count) = {call} && kill -INT "$(submitter)"'
    submitting.shim("sbatch", f'{interrupt}; exec "$real" "$@"')
    code, _, err = submitting.submit()
    assert code == 128 + signal.SIGINT
    assert err.splitlines() == [
        "stopping after this array (once more: at once)",
        f"error: stopped while submitting: {count}",
        f"hint: {hint}`harness cancel toy` ends what is queued",
    ]
    assert [state for state, _ in submitting.receipts().values()] == [
        "accepted",
        "not_submitted" if missing else "accepted",
        "accepted",
    ]
    submitting.remove_shims()
    assert submitting.submit()[:2] == (0, f"{missing} missing\n")
    assert_complete(submitting)


def test_second_ctrl_c_ends_at_once_and_is_completed_later(make: Make) -> None:
    submitting = make()
    submitting.shim(
        "sbatch",
        'kill -INT "$(submitter)"; sleep 0.2; kill -INT "$(submitter)"; sleep 1; exec "$real" "$@"',
    )
    code, _, err = submitting.submit()
    assert code != 0
    assert "KeyboardInterrupt" in err  # the command line shows `interrupted`
    submitting.remove_shims()
    assert submitting.submit()[0] == 0
    assert submitting.receipts(0)["0"] == ("accepted", True)
    assert_complete(submitting)


def test_job_that_slurm_takes_late_is_adopted(make: Make) -> None:
    submitting = make(resources={})
    submitting.shim(
        "sbatch",
        f'(sleep 4; "$real" "$@"; touch "$0.taken") > /dev/null 2>&1 &'
        f' echo "{TIMED_OUT}" >&2; exit 1',
    )
    assert submitting.submit()[0] == 2
    wait_until((submitting.shims / "sbatch.taken").exists, "the late job")
    submitting.remove_shims()
    code, out, _ = submitting.submit()
    assert code == 0
    assert "SLURM has 4 of its runs as job" in out
    assert submitting.receipts() == {"0": ("accepted", True), "finish": ("accepted", False)}
    assert_complete(submitting)


def test_job_that_slurm_takes_after_its_runs_were_submitted_again_is_cancelled(make: Make) -> None:
    submitting = make(resources={})
    submitting.shim(
        "sbatch",
        f'(while [ ! -e "{submitting.shims}/go" ]; do sleep 0.1; done;'
        f' "$real" "$@"; touch "$0.taken") > /dev/null 2>&1 & echo "{TIMED_OUT}" >&2; exit 1',
    )
    assert submitting.submit()[0] == 2
    late = (submitting.shims / "sbatch").rename(submitting.shims / "late")
    assert submitting.submit()[0] == 0
    (submitting.shims / "go").touch()
    wait_until((submitting.shims / "sbatch.taken").exists, "the late job")
    assert set(submitting.live_runs().values()) == {2}, late
    code, out, _ = submitting.submit()
    assert (code, out.splitlines()) == (
        0,
        ["cancelled 4 jobs whose runs a newer submission holds", "0 missing"],
    )
    assert submitting.live_runs() == dict.fromkeys(RUNS, 1)


def test_array_that_has_come_and_gone_is_known_by_its_claims(make: Make) -> None:
    submitting = make(sbatch={}, resources={})
    submitting.shim("sbatch", f'"$real" "$@"; {KILL}')
    submitting.submit()
    submitting.remove_shims()
    runs = [submitting.paths.run(*run_id.split("/seed_")) for run_id in RUNS]  # type: ignore[arg-type]
    wait_until(lambda: all(r.attempt(1).exit.is_file() for r in runs), "the end of all runs")
    # squeue forgets ended jobs after MinJobAge
    submitting.shim("squeue", "exit 0")
    code, out, err = submitting.submit()
    assert (code, out.splitlines()[-1]) == (0, "0 missing"), err
    assert submitting.receipts()["0"] == ("accepted", True)


def test_controller_that_dies_while_submitting_leaves_a_question_that_is_settled_later(
    make: Make, plain_cluster: Cluster, tmp_path: Path
) -> None:
    queued, planned = make(folder=tmp_path / "queued"), make(folder=tmp_path / "planned")
    assert queued.submit()[0] == 0
    submitting = make()
    stop = f"{Path(__file__).parents[2]}/slurm/devcluster/fault stop-controller"
    submitting.shim(
        "sbatch",
        f'if [ $(count) = 2 ]; then "$real" "$@" > /dev/null;'
        f" {stop} --name {plain_cluster.name} > /dev/null;"
        f' echo "{TIMED_OUT}" >&2; exit 1; fi; exec "$real" "$@"',
    )
    code, _, err = submitting.submit()
    assert code == 1
    error, hint = err.splitlines()
    assert "whether SLURM took array 2 isn't known, as `squeue` failed" in error
    assert error.endswith("; 2 of 4 runs are queued, 2 are not known to be")
    assert hint.startswith("hint: once SLURM answers, `harness run toy --on site` finds out")
    assert submitting.receipts() == {"0": ("accepted", False)}

    # What else is typed while it is down; each waits some 10 s for SLURM, side by side.
    process = planned.start()
    with ThreadPoolExecutor() as pool:
        cancelling = pool.submit(DISPATCHER.cancel, queued.submissions()[0], None)
        reconciling = pool.submit(reconcile, submitting.paths)
    with pytest.raises(UsageError, match=r"submission 0001-\w+ was interrupted, and whether"):
        reconciling.result()
    assert submitting.receipts() == {"0": ("accepted", False)}, "nothing was written"
    with pytest.raises(HarnessError, match="the request is recorded, but SLURM has not been told"):
        cancelling.result()
    assert len(queued.submissions()[0].cancel_requests()) == 1
    assert process.wait(60) == 2
    error, hint = process.communicate()[1].splitlines()
    assert error.startswith("error: `scontrol` failed: ")
    assert "Unable to contact slurm controller" in error
    assert hint == "hint: `scontrol ping` says more"
    assert not planned.paths.submissions_dir.exists()
    assert not planned.paths.lock.exists()

    submitting.remove_shims()
    plain_cluster.start_controller()
    code, out, _ = submitting.submit()
    assert (code, out.splitlines()[-1]) == (0, "0 missing")
    assert submitting.receipts()["1"] == ("accepted", True)
    DISPATCHER.cancel(queued.submissions()[0], None)
    assert_complete(submitting)


def test_run_that_slurm_holds_after_a_failed_launch_is_released_by_the_same_command(
    make: Make, plain_cluster: Cluster
) -> None:
    submitting = make(resources={}, sbatch={"nodelist": "gpu04"})
    spool = plain_cluster.dir / "spool" / "gpu04"
    mount(spool, "ro")  # where a node puts the batch scripts
    try:
        assert submitting.submit()[0] == 0
        wait_until(lambda: states_of(submitting) == {RunState.STALLED: 4})
        [hint] = {status.hint for status in read_states(submitting.paths)}
        assert hint == "SLURM could not start it; `harness run toy` releases it"
    finally:
        subprocess.run(["umount", str(spool)], check=True)
    plain_cluster.start_node("gpu04")
    code, out, _ = submitting.submit()
    assert code == 0
    assert "held by SLURM after a failed launch" in out
    wait_until(lambda: states_of(submitting) == {RunState.DONE: 4})
    assert len(submitting.submissions()) == 1, "nothing was submitted twice"


def states_of(submitting: Submitting) -> Counter[RunState]:
    return Counter(status.state for status in read_states(submitting.paths))


def test_no_sbatch_on_the_path(make: Make, tmp_path: Path) -> None:
    submitting = make()
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("scontrol", "squeue", "timeout", "uname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    code, _, err = submitting.submit(env={"PATH": str(programs)})
    assert (code, err.splitlines()[0]) == (2, "error: `sbatch` is not on the PATH")
    assert submitting.submissions() == []


def test_receipt_that_cannot_be_written_is_found_later(make: Make) -> None:
    submitting = make()
    submitting.shim(
        "sbatch",
        'folder="$(dirname "$1")/../jobs"; "$real" "$@";'
        ' mv "$folder" "$folder.away"; touch "$folder"',
    )
    code, _, err = submitting.submit()
    assert code == 1
    error, hint = err.splitlines()
    assert error.startswith("error: SLURM took array 1 as job ")
    assert "/jobs/0.json` can't be written: " in error
    assert hint.startswith("hint: make room, then `harness run toy --on site` finds the job")
    submitting.remove_shims()
    jobs_dir = submitting.submissions()[0].jobs_dir
    jobs_dir.unlink()
    assert submitting.submit()[0] == 0
    assert submitting.receipts(0)["0"] == ("accepted", True)
    assert_complete(submitting)


@pytest.mark.parametrize("limit", [1, 0])
def test_full_folder_queues_nothing(make: Make, limit: int) -> None:
    """`ulimit -f` bounds files in blocks of 1 KiB, as a full disk does."""
    submitting = make()
    process = subprocess.run(
        ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "-", *submitting.command()],
        env=submitting.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "can't be written: File too large" in process.stderr
    assert submitting.live_jobs() == []
    assert submitting.submit()[0] == 0
    assert_complete(submitting)


def test_array_that_only_accounting_remembers_is_adopted(
    accounting_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(accounting_cluster.slurm_conf))
    submitting = make_submitting(
        accounting_cluster, tmp_path, {"a": TRAINS}, python="/no/such/python"
    )
    submitting.shim("sbatch", f'"$real" "$@"; {KILL}')
    assert submitting.submit()[0] == -signal.SIGKILL
    name = submitting.intent().arrays[0].job_name
    listed = ("sacct", "-nXP", "--name", name, "-o", "State")
    wait_until(
        lambda: accounting_cluster.run(*listed).stdout.split() == ["FAILED", "FAILED"],
        "the rows of both ends",
    )
    submitting.remove_shims()
    # squeue forgets ended jobs after MinJobAge
    submitting.shim("squeue", "exit 0")
    code, out, err = submitting.submit()
    assert (code, err.count("\n")) == (0, 1), err
    assert "SLURM has 2 of its runs as job" in out
    assert submitting.receipts(0) == {"0": ("accepted", True), "finish": ("not_submitted", False)}
