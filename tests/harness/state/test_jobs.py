"""Which of SLURM's jobs is whose, and how often SLURM is asked.

The commands in here are shims: scripts that stand on the PATH in place of SLURM's and say so.
What a real cluster answers is tested in tests/slurm/test_state.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.scheduler.jobs import SACCT_FIELDS, SEPARATOR, SQUEUE_FIELDS, Job
from harness.state.jobs import CLOCK_SLACK_S, Answer, Element, JobTable, is_of

SINCE = 1_000_000.0
ELEMENT = Element(
    submission="0001-1f2e3d",
    nonce="1f2e3d",
    run_id="a/seed_0",
    array=0,
    index=3,
    job_id="12",
    cluster=None,
    user="root",
    since=SINCE,
)
MARKED = "s/a/0@1f2e3d.0"
COMMENT = "harness 0001-1f2e3d 0"
JOB = Job("12", 3, "RUNNING", name=MARKED, submit_time=SINCE + 5, user="root")


@dataclass
class Shims:
    """squeue and sacct that print what they are told and log each call."""

    folder: Path

    def squeue(self, *jobs: Job, body: str = "") -> None:
        values = [
            {
                "ArrayJobID": job.array_job_id,
                "ArrayTaskID": "N/A" if job.index is None else str(job.index),
                "State": job.state,
                "UserName": job.user,
                "SubmitTime": str(int(job.submit_time)),
                "Cluster": job.cluster,
                "Name": job.name,
                "Comment": job.comment,
            }
            for job in jobs
        ]
        lines = ["".join(v.get(f, "") + SEPARATOR for f in SQUEUE_FIELDS) for v in values]
        self._write("squeue", lines, body)

    def sacct(self, *jobs: Job, body: str = "") -> None:
        values = [
            {
                "JobID": job.job_id,
                "State": job.state,
                "User": job.user,
                "Submit": str(int(job.submit_time)),
                "Cluster": job.cluster,
                "JobName": job.name,
            }
            for job in jobs
        ]
        lines = [SEPARATOR.join(v.get(f, "") for f in SACCT_FIELDS) for v in values]
        self._write("sacct", lines, body)

    def calls(self) -> list[str]:
        """Return the calls since the last look, and their options."""
        log = self.folder / "calls"
        made = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return made

    def _write(self, name: str, lines: list[str], body: str) -> None:
        answer = self.folder / f"{name}.txt"
        answer.write_text("".join(f"{line}\n" for line in lines))
        path = self.folder / name
        path.write_text(
            f"#!/bin/bash\n# A shim of a test, not SLURM's {name}.\n"
            f'echo "{name} $*" >> "{self.folder}/calls"\n{body}\ncat "{answer}"\n'
        )
        path.chmod(0o755)


@pytest.fixture
def shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shims:
    """Shims of a cluster without jobs whose accounting knows none."""
    folder = tmp_path / "shims"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    made = Shims(folder)
    made.squeue()
    made.sacct()
    return made


def ask(*elements: Element, table: JobTable | None = None) -> Answer:
    """Refresh and return the answer about the first element."""
    table = table or JobTable()
    table.refresh(elements)
    answer = table.answer(elements[0])
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("values", "is_ours"),
    [
        ({}, True),
        ({"name": "s@1f2e3d.0"}, True),
        ({"name": "script.sh", "comment": COMMENT}, True),
        ({"name": "script.sh"}, True),
        ({"submit_time": 0.0}, True),
        ({"name": "script.sh", "submit_time": SINCE - CLOCK_SLACK_S + 1}, True),
        ({"name": "script.sh", "submit_time": SINCE - CLOCK_SLACK_S - 1}, False),
        ({"name": "s@1f2e3d.1"}, False),
        ({"name": "s/a/0@abcdef.0"}, False),
        ({"name": "script.sh", "comment": "harness 0002-abcdef 0"}, False),
        ({"user": "ada"}, False),
        ({"name": "script.sh", "user": "ada"}, False),
    ],
)
def test_ids_are_used_again(values: dict[str, Any], is_ours: bool) -> None:
    assert is_of(replace(JOB, **values), ELEMENT) is is_ours


@pytest.mark.parametrize(
    ("of_job", "of_element", "is_ours"),
    [("big", "big", True), ("big", "small", False), ("big", None, True), ("", "big", True)],
)
def test_same_id_on_another_cluster_is_another_job(
    of_job: str, of_element: str | None, is_ours: bool
) -> None:
    element = replace(ELEMENT, cluster=of_element)
    assert is_of(replace(JOB, cluster=of_job), element) is is_ours


def test_nothing_is_asked_about_nothing(shims: Shims) -> None:
    table = JobTable()
    table.refresh([])
    assert (shims.calls(), table.error, table.answer(ELEMENT)) == ([], "", None)


def test_job_in_the_queue(shims: Shims) -> None:
    shims.squeue(JOB)
    table = JobTable()
    assert ask(ELEMENT, table=table) == Answer(JOB, is_array_known=True)
    assert table.find("0001-1f2e3d", "a/seed_0") == JOB
    assert table.find("0001-1f2e3d", "b/seed_0") is None
    assert [call.split()[0] for call in shims.calls()] == ["squeue"]


def test_ended_job_without_an_index_speaks_for_elements_without_their_own(shims: Shims) -> None:
    array = replace(JOB, index=None, state="CANCELLED")
    shims.squeue(array, replace(JOB, index=4))
    assert ask(ELEMENT).job == array
    assert ask(replace(ELEMENT, index=4)).job == replace(JOB, index=4)
    shims.squeue(replace(array, state="PENDING"))
    assert ask(ELEMENT) == Answer(None, is_array_known=True)


def test_array_whose_id_was_never_written_is_found_by_its_mark(shims: Shims) -> None:
    shims.squeue(replace(JOB, array_job_id="7", name="other@1f2e3d.9"), JOB)
    assert ask(replace(ELEMENT, job_id=None)).job == JOB
    shims.squeue(replace(JOB, name="x", comment=COMMENT))
    assert ask(replace(ELEMENT, job_id=None)).job == replace(JOB, name="x", comment=COMMENT)
    shims.squeue(replace(JOB, name="x"))
    assert ask(replace(ELEMENT, job_id=None)).job is None
    assert not [call for call in shims.calls() if call.startswith("sacct")]


def test_accounting_is_believed_only_about_ends(shims: Shims) -> None:
    for state in ("RUNNING", "PENDING", "REQUEUED"):
        shims.sacct(replace(JOB, state=state))
        assert ask(ELEMENT).job is None
    for state in ("TIMEOUT", "HIBERNATING"):
        shims.sacct(replace(JOB, state=state))
        assert ask(ELEMENT).job == replace(JOB, state=state)
    assert ask(replace(ELEMENT, needs_end=False)).job is None


def test_one_call_of_each_command_for_all_runs_of_all_users(shims: Shims) -> None:
    others = [
        replace(ELEMENT, run_id=f"b/seed_{i}", index=i, job_id=str(20 + i % 3)) for i in range(30)
    ]
    ask(*others, replace(ELEMENT, user="ada"))
    squeue, sacct = shims.calls()
    assert "--user=ada,root" in squeue
    assert "--user=ada,root" in sacct
    assert "--jobs=12,20,21,22" in sacct


@pytest.mark.parametrize(
    ("named", "option"),
    [
        ((None, None), None),
        (("big", "big"), "--clusters=big"),
        (("small", "big"), "--clusters=big,small"),
        (("big", None), "--clusters=all"),
    ],
)
def test_clusters_that_slurm_named_are_asked(
    shims: Shims, named: tuple[str | None, str | None], option: str | None
) -> None:
    ask(*(replace(ELEMENT, run_id=f"r{i}", cluster=c) for i, c in enumerate(named)))
    for call in shims.calls():
        assert [word for word in call.split() if word.startswith("--clusters")] == (
            [option] if option else []
        )


def test_end_is_asked_once_and_again_after_a_new_start(shims: Shims) -> None:
    table = JobTable()
    failed = replace(JOB, state="FAILED")
    shims.sacct(failed)
    assert ask(ELEMENT, table=table).job == failed
    shims.calls()
    assert ask(ELEMENT, table=table).job == failed
    assert [call.split()[0] for call in shims.calls()] == ["squeue"]
    shims.squeue(JOB)
    assert ask(ELEMENT, table=table).job == JOB
    shims.squeue()
    shims.sacct(replace(JOB, state="TIMEOUT"))
    assert ask(ELEMENT, table=table).job == replace(JOB, state="TIMEOUT")


@pytest.mark.parametrize(
    ("said", "is_asked_again"),
    [
        ("Slurm accounting storage is disabled", False),
        ("slurm_persist_conn_open_without_init: failed to open persistent connection", True),
    ],
)
def test_accounting_that_fails_leaves_the_queue_s_word(
    shims: Shims, said: str, is_asked_again: bool
) -> None:
    table = JobTable()
    shims.sacct(body=f"echo '{said}' >&2; exit 1")
    assert ask(ELEMENT, table=table) == Answer()
    assert table.error == ""
    shims.calls()
    ask(ELEMENT, table=table)
    assert ("sacct" in [call.split()[0] for call in shims.calls()]) is is_asked_again


def test_queue_that_fails_is_an_error_of_every_run(shims: Shims) -> None:
    table = JobTable()
    shims.squeue(body="echo 'squeue: error: no controller' >&2; exit 1")
    assert ask(ELEMENT, table=table) == Answer(error="`squeue` failed: no controller")
    assert table.error == "`squeue` failed: no controller"
    assert [call.split()[0] for call in shims.calls()] == ["squeue"]
    shims.squeue(JOB)
    assert ask(ELEMENT, table=table).job == JOB
    assert table.error == ""


def test_absence_proves_nothing_where_jobs_of_others_are_hidden(
    shims: Shims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65_534)
    element = replace(ELEMENT, user="ada")
    assert ask(element).error == "it shows no job of `ada` to `nobody`"
    shims.squeue(replace(JOB, user="ada", array_job_id="99"))
    assert ask(element) == Answer()
