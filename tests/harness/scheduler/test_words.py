from __future__ import annotations

import pytest

from harness.scheduler.words import KNOWN_WORDS, Phase, is_held_after_failure, phase_of

WORDS_OF_22_05 = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "CONFIGURING",
    "COMPLETING",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RUNNING",
    "RESV_DEL_HOLD",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
]
ADDED_UNTIL_24_11 = ["LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"]


def test_every_word_of_slurm_is_known() -> None:
    assert sorted(KNOWN_WORDS) == sorted([*WORDS_OF_22_05, *ADDED_UNTIL_24_11])
    assert all(phase_of(word) is not Phase.UNKNOWN for word in KNOWN_WORDS)


@pytest.mark.parametrize("word", ["EXPEDITING", "", "running", "COMPLETED,COMPLETING"])
def test_any_other_word_says_nothing(word: str) -> None:
    assert phase_of(word) is Phase.UNKNOWN


def test_only_words_that_end_a_job_for_good_are_an_end() -> None:
    assert {word for word in KNOWN_WORDS if phase_of(word) is Phase.ENDED} == {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }


@pytest.mark.parametrize(
    ("reason", "is_held"),
    [
        ("launch failed requeued held", True),
        ("launch_failed_requeued_held", True),
        ("launch failed limit exceeded requeued held", True),
        ("JobHeldUser", False),
        ("job requeued in held state", False),
        ("BeginTime", False),
        ("", False),
    ],
)
def test_only_a_hold_after_a_failed_launch_is_one(reason: str, is_held: bool) -> None:
    assert is_held_after_failure(reason) is is_held
