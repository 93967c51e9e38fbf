from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from harness.dispatch.lock import acquire_lock, hold_lock, read_lock, require_no_live_lock
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json, write_json
from harness.records.layout import SweepPaths
from harness.runner.process import host_name, process_start


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "toy")


def write_lock(sweep: SweepPaths, **holder: object) -> None:
    write_json(
        sweep.lock,
        {
            "schema_version": 1,
            "host": host_name(),
            "pid": os.getpid(),
            "pid_started": process_start(os.getpid()),
            "time": time.time() - 180,
            "nonce": "ab",
            **holder,
        },
    )


def pid_started_of_an_ended_process() -> tuple[int, str]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        process.kill()
    return process.pid, started


def test_lock_says_who_holds_it_and_goes_with_its_release(sweep: SweepPaths) -> None:
    lock = acquire_lock(sweep)
    holder = read_lock(sweep)
    assert holder == lock.holder
    assert (holder.host, holder.pid) == (host_name(), os.getpid())
    lock.release()
    assert read_lock(sweep) is None
    require_no_live_lock(sweep)


def test_live_lock_is_respected_and_explained(sweep: SweepPaths) -> None:
    write_lock(sweep)
    with pytest.raises(UsageError) as error:
        acquire_lock(sweep)
    assert error.value.message == (
        f"sweep `toy` is being run by pid {os.getpid()} on {host_name()}, for 3 min"
    )
    assert error.value.hint == "see `harness status toy`, end it with `harness cancel toy`"
    with pytest.raises(UsageError):
        require_no_live_lock(sweep)


def test_lock_of_another_machine_is_respected_and_may_be_deleted(sweep: SweepPaths) -> None:
    write_lock(sweep, host="another-node")
    with pytest.raises(UsageError, match=f"by pid {os.getpid()} on another-node") as error:
        acquire_lock(sweep)
    assert error.value.hint.endswith(f"if that process is certainly gone, delete `{sweep.lock}`")


def test_stale_lock_is_broken_with_a_note(
    sweep: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    pid, started = pid_started_of_an_ended_process()
    write_lock(sweep, pid=pid, pid_started=started)
    require_no_live_lock(sweep)
    lock = acquire_lock(sweep)
    assert read_lock(sweep) == lock.holder
    note = f"note: broke the lock of pid {pid} on {host_name()}, which is gone (taken 3 min ago)\n"
    assert capsys.readouterr().err == note


def test_held_lock_is_released_however_the_body_ends(sweep: SweepPaths) -> None:
    with hold_lock(sweep) as lock:
        assert read_lock(sweep) == lock.holder
    assert read_lock(sweep) is None
    with pytest.raises(KeyboardInterrupt), hold_lock(sweep):
        raise KeyboardInterrupt
    assert read_lock(sweep) is None
    with hold_lock(sweep) as lock:
        lock.release()
        acquire_lock(sweep)  # by another
    assert read_lock(sweep) is not None


def test_lock_that_cannot_be_written_is_refused(sweep: SweepPaths) -> None:
    sweep.root.write_text("a file")
    with pytest.raises(UsageError, match="can't be written") as error, hold_lock(sweep):
        pass
    assert "HARNESS_OUTPUTS" in error.value.hint


def test_release_leaves_the_lock_of_another(sweep: SweepPaths) -> None:
    lock = acquire_lock(sweep)
    write_lock(sweep, nonce="of another")
    lock.release()
    assert read_json(sweep.lock)["nonce"] == "of another"
    sweep.lock.unlink()
    lock.release()


def test_damaged_lock_is_an_error_that_names_it(sweep: SweepPaths) -> None:
    sweep.root.mkdir()
    sweep.lock.write_text("{")
    with pytest.raises(HarnessError, match=r"submit\.lock") as error:
        acquire_lock(sweep)
    assert error.value.hint == "delete it once no `harness run` of the sweep is alive"


def _compete(root: str, results: Queue[str]) -> None:
    try:
        acquire_lock(SweepPaths(Path(root)))
    except UsageError:
        results.put("refused")
    else:
        results.put("got it")
        time.sleep(60)  # hold it until the test has counted


def test_of_many_that_break_a_stale_lock_exactly_one_gets_it(sweep: SweepPaths) -> None:
    pid, started = pid_started_of_an_ended_process()
    write_lock(sweep, pid=pid, pid_started=started)
    context = multiprocessing.get_context("fork")
    results: Queue[str] = context.Queue()
    processes = [
        context.Process(target=_compete, args=(str(sweep.root), results), daemon=True)
        for _ in range(8)
    ]
    for process in processes:
        process.start()
    got = sorted(results.get(timeout=30) for _ in processes)
    for process in processes:
        process.kill()
        process.join()
    assert got == ["got it"] + ["refused"] * 7
