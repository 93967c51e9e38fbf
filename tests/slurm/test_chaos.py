"""A sweep of the built-in trainer comes to its end whatever happens to what runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.chaos import Chaos
from tests.slurm.cluster import Cluster


@pytest.mark.slow
def test_five_faults_at_random_moments_lose_nothing_and_run_nothing_twice(
    plain_cluster: Cluster, tmp_path: Path
) -> None:
    tally = Chaos(plain_cluster, tmp_path, num_seeds=8, max_steps=100, seed=3).run(num_faults=5)
    print(tally)
    assert tally.wrong == []
    assert tally.states == {"done": 24}
    assert sum(tally.faults.values()) == 5
