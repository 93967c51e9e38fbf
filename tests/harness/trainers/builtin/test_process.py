"""The trainer as the runner starts it: a process of its own, driven by environment variables."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import time
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.records.layout import MAX_STEPS_ENV, RUN_DIR_ENV, RunPaths
from harness.trainers.builtin.__main__ import parse_request
from harness.trainers.builtin.checkpoints import list_checkpoints
from harness.trainers.builtin.train import RunRequest

WARM_STARTED = {
    "trainer.warm_start": {"solve_rate": 0.3, "lr": 0.01, "eval_every": 10},
    "trainer.checkpoints": {"every": 10, "keep_last": 2},
    "trainer.optim": {"type": "adamw", "lr": 0.01},
    "loss": {"type": "icepop"},
}
TOO_MANY_STEPS = 100_000


def start(arguments: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(**arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_for_rows(paths: RunPaths, num_rows: int, process: subprocess.Popen[str]) -> None:
    while not paths.metrics.exists() or paths.metrics.read_bytes().count(b"\n") < num_rows:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.002)


def in_force(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without those that a later attempt supersedes, without what may differ."""
    first = {row["attempt"]: row["step"] for row in reversed(rows)}
    return [
        {key: row[key] for key in row if key != "attempt" and not key.startswith("time")}
        for row in rows
        if row["step"] < first.get(row["attempt"] + 1, TOO_MANY_STEPS)
    ]


def test_a_killed_and_resumed_run_equals_an_unbroken_one_bit_for_bit(
    make_request: Any, run_to_end: Any, read_rows: Any, claim: Any, process_arguments: Any
) -> None:
    request: RunRequest = make_request(WARM_STARTED, arm="killed", max_steps=TOO_MANY_STEPS)
    process = start(process_arguments(request))
    wait_for_rows(request.paths, 23, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    num_before = len(request.paths.metrics.read_text().splitlines())
    # As if it had been killed in the middle of its last line.
    torn = request.paths.metrics.read_bytes()[:-20]
    request.paths.metrics.write_bytes(torn)
    claim(request.paths, 2)
    last = num_before + 15
    resumed = dataclasses.replace(request, attempt=2, max_steps=last)
    output = subprocess.run(**process_arguments(resumed), capture_output=True)
    assert output.returncode == 0, output.stderr
    assert "continuing after step" in output.stdout

    lines = request.paths.metrics.read_text().splitlines()
    rows = []
    for line in lines:
        if line == torn.decode().splitlines()[-1]:
            continue  # the torn one
        rows.append(json.loads(line))
    second = [row["step"] for row in rows if row["attempt"] == 2]
    assert second == list(range(second[0], last + 1))
    assert (second[0] - 1) % 10 == 0

    unbroken = run_to_end(make_request(WARM_STARTED, arm="unbroken", max_steps=last))
    assert [row["step"] for row in unbroken] == list(range(1, last + 1))
    assert in_force(rows) == in_force(unbroken)


def test_sigterm_ends_with_143_and_a_checkpoint_of_the_last_row(
    make_request: Any, read_rows: Any, process_arguments: Any
) -> None:
    request = make_request(WARM_STARTED, max_steps=TOO_MANY_STEPS)
    process = start(process_arguments(request))
    wait_for_rows(request.paths, 3, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 143, output
    steps = [row["step"] for row in read_rows(request.paths)]
    assert steps == list(range(1, len(steps) + 1))
    assert list_checkpoints(request.paths.checkpoints_dir)[-1] == steps[-1]


def test_sigterm_during_the_warm_start_ends_with_143(
    make_request: Any, process_arguments: Any
) -> None:
    warm_start = {"solve_rate": 1.0, "lr": 1e-9, "max_steps": TOO_MANY_STEPS}
    request = make_request({"trainer.warm_start": warm_start})
    process = start(process_arguments(request))
    # Nothing is written before the first row: the signal handler shows in the process's mask.
    caught = f"/proc/{process.pid}/status"
    while not _catches_sigterm(caught):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 143, output
    assert not request.sweep.shared_dir.exists()


def _catches_sigterm(status_path: str) -> bool:
    with open(status_path) as file:  # noqa: PTH123
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def test_a_failure_is_one_error_line_and_one_hint(
    make_request: Any, process_arguments: Any
) -> None:
    warm_start = {"solve_rate": 1.0, "max_steps": 2}
    request = make_request({"trainer.warm_start": warm_start})
    output = subprocess.run(**process_arguments(request), capture_output=True)
    assert output.returncode == 1
    error, hint = output.stderr.splitlines()
    assert error.startswith("error: the warm start of `task.type` 'reverse' did not reach")
    assert hint.startswith("hint: raise `trainer.warm_start.max_steps`")


def test_parse_request_reads_the_environment(make_request: Any, process_arguments: Any) -> None:
    request = make_request(max_steps=12, attempt=3)
    assert parse_request(process_arguments(request)["env"]) == request


@pytest.mark.parametrize("value", ["", "-1", "many", "1.5"])
def test_parse_request_refuses_what_is_no_count(
    make_request: Any, process_arguments: Any, value: str
) -> None:
    environment = process_arguments(make_request())["env"] | {MAX_STEPS_ENV: value}
    with pytest.raises(HarnessError, match=f"`{MAX_STEPS_ENV}` can't be '{value}'"):
        parse_request(environment)


def test_parse_request_names_a_missing_variable(make_request: Any, process_arguments: Any) -> None:
    environment = process_arguments(make_request())["env"]
    del environment[RUN_DIR_ENV]
    with pytest.raises(HarnessError, match=f"lacks `{RUN_DIR_ENV}`"):
        parse_request(environment)
