"""Runs of the built-in trainer that start from another run's checkpoint."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint import hash_content
from harness.errors import HarnessError
from harness.trainers.builtin.checkpoints import checkpoint_dir, list_checkpoints
from harness.trainers.builtin.train import RunRequest, train

RECIPE: dict[str, Any] = {
    "trainer.optim": {"type": "adamw", "lr": 0.05, "warmup_steps": 8},
    "trainer.engine": {"staleness": 2, "drift": {"scale": 0.5, "end_step": 10}},
    "trainer.warm_start": {"solve_rate": 0.3, "eval_prompts": 64, "eval_every": 5},
    "trainer.checkpoints": {"every": 2, "keep_last": 9},
}
FORK_STEP = 4

MakeFork = Callable[..., RunRequest]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in ("time", "time/step", "attempt")}


@pytest.fixture
def parent(make_request: Any, run_to_end: Any) -> tuple[Path, list[dict[str, Any]]]:
    """The checkpoint after FORK_STEP of a run of seed 0, and the rows of that run."""
    request = make_request(RECIPE, arm="parent", max_steps=8)
    rows = run_to_end(request)
    return checkpoint_dir(request.paths.checkpoints_dir, FORK_STEP), rows


@pytest.fixture
def make_fork(make_request: Any, parent: tuple[Path, Any]) -> MakeFork:
    def make(arm: str, seed: int, changes: dict[str, Any] | None = None) -> RunRequest:
        path = parent[0]
        start = {"step": FORK_STEP, "sha256": hash_content(path)}
        changes = {**RECIPE, "seed": seed, "start_from": start, **(changes or {})}
        request: RunRequest = make_request(changes, arm=arm, max_steps=8)
        return dataclasses.replace(request, start=path)

    return make


def test_a_fork_of_its_parents_seed_and_recipe_goes_on_as_its_parent(
    make_fork: MakeFork, parent: tuple[Path, Any], run_to_end: Any
) -> None:
    rows = run_to_end(make_fork("same", 0))
    assert [row["step"] for row in rows] == [5, 6, 7, 8]
    assert [numbers(row) for row in rows] == [numbers(row) for row in parent[1][FORK_STEP:]]


def test_forks_of_two_seeds_differ_from_their_first_step_and_of_one_seed_never(
    make_fork: MakeFork, run_to_end: Any
) -> None:
    one, again, other = (
        run_to_end(make_fork(arm, seed)) for arm, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert [numbers(row) for row in one] == [numbers(row) for row in again]
    kl = "mismatch_kl/sampled/mean"
    assert all(row[kl] != unlike[kl] for row, unlike in zip(one, other, strict=True))


def test_a_resumed_fork_goes_on_as_an_unbroken_one_and_without_its_parent(
    make_fork: MakeFork, parent: tuple[Path, Any], run_to_end: Any, claim: Any
) -> None:
    unbroken = run_to_end(make_fork("unbroken", 1))
    request = make_fork("resumed", 1)
    run_to_end(dataclasses.replace(request, max_steps=6))
    shutil.rmtree(parent[0])
    claim(request.paths, 2)
    resumed = run_to_end(dataclasses.replace(request, attempt=2))
    assert [row["attempt"] for row in resumed] == [1, 1, 2, 2]
    assert [numbers(row) for row in resumed] == [numbers(row) for row in unbroken]


def test_what_depends_on_the_step_goes_on_and_no_warm_start_is_made(
    make_fork: MakeFork, run_to_end: Any, parent: tuple[Path, Any]
) -> None:
    request = make_fork("fork", 7)
    shutil.rmtree(request.sweep.shared_dir)
    rows = run_to_end(request)
    assert not request.sweep.shared_dir.exists()
    learning_rates = [row["optim/lr"] for row in rows]
    assert learning_rates == pytest.approx([0.05 * step / 8 for step in (5, 6, 7, 8)])
    assert [row["policy_step"] for row in rows] == [2, 3, 4, 5]
    tokens = parent[1][FORK_STEP - 1]["progress/tokens"]
    assert [row["progress/tokens"] - tokens for row in rows] == [64, 128, 192, 256]
    assert list_checkpoints(request.paths.checkpoints_dir) == [6, 8]


@pytest.mark.parametrize(("staleness", "policy_steps"), [(0, [4, 5, 6, 7]), (4, [2, 2, 2, 3])])
def test_a_fork_of_another_staleness_samples_from_the_policies_that_are_there(
    make_fork: MakeFork, run_to_end: Any, staleness: int, policy_steps: list[int]
) -> None:
    rows = run_to_end(make_fork("fork", 0, {"trainer.engine": {"staleness": staleness}}))
    assert [row["policy_step"] for row in rows] == policy_steps


def test_the_fault_of_the_engine_is_the_forks_own(make_fork: MakeFork, run_to_end: Any) -> None:
    drift = {"staleness": 2, "drift": {"scale": 0.5, "end_step": 10, "seed": 1}}
    kl = "mismatch_kl/sampled/mean"
    one, other = (
        run_to_end(make_fork(arm, 0, changes))[0][kl]
        for arm, changes in (("one", {}), ("other", {"trainer.engine": drift}))
    )
    assert one != other


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_checkpoint_that_is_not_the_planned_one_is_refused(
    make_fork: MakeFork, parent: tuple[Path, Any], harm: str
) -> None:
    request = make_fork("fork", 1)
    if harm == "gone":
        shutil.rmtree(parent[0])
    else:
        with (parent[0] / "state.pt").open("ab") as file:
            file.write(b"more")
    message = "has changed since the plan" if harm == "changed" else "there is no checkpoint"
    with pytest.raises(HarnessError, match=message):
        train(request, should_stop=lambda: False)
    assert not request.paths.metrics.exists()


def test_a_fork_never_starts_from_scratch(make_fork: MakeFork) -> None:
    request = dataclasses.replace(make_fork("fork", 1), start=None)
    with pytest.raises(HarnessError, match="says that the run is a fork"):
        train(request, should_stop=lambda: False)


def test_a_checkpoint_of_another_model_is_refused(make_fork: MakeFork) -> None:
    request = make_fork("fork", 1, {"model.expert_dim": 16})
    with pytest.raises(HarnessError, match="is of another model: 1192 parameters, not 1704"):
        train(request, should_stop=lambda: False)
