from __future__ import annotations

from pathlib import Path

import pytest

from harness.checkpoint import OTHER, PRIME_RL, Checkpoint
from harness.errors import UsageError
from harness.trainers.interface import Start
from harness.trainers.prime_rl.start import check_prime_rl_start, prime_rl_resume

FOLDER = Path("/runs/a/checkpoints/step_50")
CONFIG = {"trainer": {"type": "prime_rl", "native": {"max_steps": 100}}}


def test_prime_rl_is_given_the_folder_and_takes_the_step_from_its_name() -> None:
    assert prime_rl_resume(Start(FOLDER, 50)) == {"resume": {"dir": "/runs/a/checkpoints/step_50"}}


def test_a_checkpoint_of_prime_rl_is_accepted_and_others_are_refused() -> None:
    check_prime_rl_start(CONFIG, None)
    check_prime_rl_start(CONFIG, Checkpoint(FOLDER, 50, PRIME_RL))
    with pytest.raises(UsageError, match="is no checkpoint of prime-rl"):
        check_prime_rl_start(CONFIG, Checkpoint(FOLDER, 50, OTHER))


def test_a_resume_of_the_users_own_beside_it_is_refused() -> None:
    config = {"trainer": {"native": {"resume": {"step": 3}}}}
    with pytest.raises(UsageError, match=r"`trainer\.native\.resume` stands beside `start_from`"):
        check_prime_rl_start(config, Checkpoint(FOLDER, 50, PRIME_RL))
