"""Answers of squeue and sacct, as SLURM 22.05 prints them, and odd ones."""

from __future__ import annotations

import pytest

from harness.scheduler.jobs import (
    SACCT_FIELDS,
    SEPARATOR,
    SQUEUE_FIELDS,
    Job,
    expand_indices,
    parse_duration,
    parse_sacct,
    parse_squeue,
)

SQUEUE = {
    "ArrayJobID": "12",
    "ArrayTaskID": "3",
    "State": "RUNNING",
    "UserName": "ada",
    "NodeList": "gpu01",
    "TimeUsed": "1-02:03:04",
    "TimeLimit": "2-00:00:00",
    "exit_code": "0",
    "SubmitTime": "1796012909",
    "StartTime": "1796012910",
    "RestartCnt": "1",
    "Cluster": "big",
    "Reason": "None",
    "Name": "sweep/arm/0@1f.0",
    "Comment": "harness 0001-1f 0",
}
SACCT = {
    "JobID": "12_3",
    "State": "TIMEOUT",
    "User": "ada",
    "NodeList": "gpu01",
    "ElapsedRaw": "93784",
    "TimelimitRaw": "2880",
    "ExitCode": "0:15",
    "Submit": "1796012909",
    "Start": "1796012910",
    "Cluster": "big",
    "Reason": "None",
    "JobName": "sweep/arm/0@1f.0",
    "Comment": "",
}


def squeue_line(**values: str) -> str:
    assert tuple(SQUEUE) == SQUEUE_FIELDS
    assert not values.keys() - SQUEUE.keys()
    return "".join(f"{value}{SEPARATOR}" for value in (SQUEUE | values).values()) + "\n"


def sacct_line(**values: str) -> str:
    assert tuple(SACCT) == SACCT_FIELDS
    assert not values.keys() - SACCT.keys()
    return SEPARATOR.join((SACCT | values).values()) + "\n"


def ids(jobs: list[Job]) -> list[str]:
    return [job.job_id for job in jobs]


def test_running_element_of_an_array() -> None:
    assert parse_squeue(squeue_line()) == [
        Job(
            array_job_id="12",
            index=3,
            state="RUNNING",
            reason="",
            name="sweep/arm/0@1f.0",
            comment="harness 0001-1f 0",
            nodes="gpu01",
            elapsed_s=93_784.0,
            limit_s=172_800.0,
            exit_code="0:0",
            submit_time=1_796_012_909.0,
            start_time=1_796_012_910.0,
            restarts=1,
            cluster="big",
            user="ada",
        )
    ]


def test_waiting_job_without_nodes_start_or_limit() -> None:
    line = squeue_line(
        ArrayTaskID="N/A",
        State="PENDING",
        NodeList="",
        TimeUsed="0:00",
        TimeLimit="UNLIMITED",
        StartTime="N/A",
        RestartCnt="0",
        Reason="Nodes required for job are DOWN, DRAINED or reserved",
        Comment="(null)",
    )
    [job] = parse_squeue(line)
    assert (job.job_id, job.index, job.nodes, job.comment) == ("12", None, "", "")
    assert (job.elapsed_s, job.limit_s, job.start_time, job.restarts) == (0.0, None, None, 0)
    assert job.reason == "Nodes required for job are DOWN, DRAINED or reserved"


def test_elements_that_squeue_lists_together_become_one_job_each() -> None:
    jobs = parse_squeue(squeue_line(ArrayTaskID="3-5,9%2", State="PENDING", Reason="Priority"))
    assert ids(jobs) == ["12_3", "12_4", "12_5", "12_9"]
    assert {job.reason for job in jobs} == {"Priority"}


def test_list_of_elements_that_is_cut_short_is_refused() -> None:
    with pytest.raises(ValueError, match="not a whole list"):
        parse_squeue(squeue_line(ArrayTaskID="1,3,5,7,9,11,13,..."))


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("3", [3]),
        ("3-7,9%2", [3, 4, 5, 6, 7, 9]),
        ("1-5:2", [1, 3, 5]),
        ("0,4-8:4", [0, 4, 8]),
        ("[3-4%100]", [3, 4]),
    ],
)
def test_lists_of_elements(text: str, indices: list[int]) -> None:
    assert list(expand_indices(text)) == indices


@pytest.mark.parametrize("text", ["", "N/A", "3-", "3,,4", "1-4,...", "0x7"])
def test_other_text_is_no_list_of_elements(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole list"):
        list(expand_indices(text))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("59", 59),
        ("3:04", 184),
        ("02:03:04", 7_384),
        ("1-02:03:04", 93_784),
        ("365-00:00:00", 31_536_000),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("N/A", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("number", "shown"), [("0", "0:0"), ("768", "3:0"), ("32512", "127:0"), ("9", "0:9")]
)
def test_squeue_s_exit_codes_are_taken_apart(number: str, shown: str) -> None:
    assert parse_squeue(squeue_line(exit_code=number))[0].exit_code == shown


def test_text_of_users_moves_no_field() -> None:
    comment = f"a|b{SEPARATOR}c, d e"
    [job] = parse_squeue(squeue_line(Name="a|b c", Comment=comment))
    assert (job.name, job.comment, job.user) == ("a|b c", comment, "ada")


def test_lines_that_are_no_jobs_are_passed_over() -> None:
    text = "CLUSTER: big\n" + squeue_line(Comment="two\nlines") + "\n" + squeue_line(ArrayJobID="?")
    assert ids(parse_squeue(text)) == ["12_3"]
    assert parse_squeue("") == []
    assert ids(parse_sacct("garbage\n" + sacct_line() + sacct_line(JobID="12_3.batch"))) == ["12_3"]


def test_job_of_accounting() -> None:
    assert parse_sacct(sacct_line(State="CANCELLED by 0")) == [
        Job(
            array_job_id="12",
            index=3,
            state="CANCELLED",
            reason="",
            name="sweep/arm/0@1f.0",
            comment="",
            nodes="gpu01",
            elapsed_s=93_784.0,
            limit_s=172_800.0,
            exit_code="0:15",
            submit_time=1_796_012_909.0,
            start_time=1_796_012_910.0,
            restarts=None,
            cluster="big",
            user="ada",
        )
    ]


def test_elements_that_sacct_lists_together_become_one_job_each() -> None:
    line = sacct_line(JobID="12_[4,6-7%2]", NodeList="None assigned", Start="Unknown")
    jobs = parse_sacct(line)
    assert ids(jobs) == ["12_4", "12_6", "12_7"]
    assert (jobs[0].nodes, jobs[0].start_time) == ("", None)


@pytest.mark.parametrize("newest_stands", ["first", "last"])
def test_newest_start_of_a_requeued_job_speaks_for_it(newest_stands: str) -> None:
    lines = [
        sacct_line(State="NODE_FAIL"),
        sacct_line(State="REQUEUED", Submit="1796012950", Start="1796012960"),
        sacct_line(State="PREEMPTED", Submit="1796012970", Start="1796012980"),
        sacct_line(State="COMPLETED", Submit="1796012970", Start="1796012990"),
    ]
    if newest_stands == "first":
        lines.reverse()
    assert [job.state for job in parse_sacct("".join(lines))] == ["COMPLETED"]


def test_requeued_job_that_waits_is_newer_than_its_earlier_start() -> None:
    lines = [sacct_line(State="PENDING", Start="Unknown"), sacct_line(State="REQUEUED")]
    assert [job.state for job in parse_sacct("".join(lines))] == ["PENDING"]


def test_same_id_on_two_clusters_is_two_jobs() -> None:
    text = sacct_line() + sacct_line(Cluster="small", State="FAILED")
    assert [(job.cluster, job.state) for job in parse_sacct(text)] == [
        ("big", "TIMEOUT"),
        ("small", "FAILED"),
    ]


def test_ten_thousand_lines() -> None:
    text = "".join(squeue_line(ArrayTaskID=str(i)) for i in range(10_000))
    assert ids(parse_squeue(text)) == [f"12_{i}" for i in range(10_000)]
    text = "".join(sacct_line(JobID=f"12_{i}") for i in range(10_000))
    assert ids(parse_sacct(text)) == [f"12_{i}" for i in range(10_000)]
