from __future__ import annotations

from typing import Any

import torch

from harness.trainers.builtin.config import DriftConfig, EngineConfig, parse_config
from harness.trainers.builtin.engine import make_engine
from harness.trainers.builtin.model import make_model
from harness.trainers.builtin.tasks import make_task
from harness.trainers.builtin.warm_start import warm_start_key

UNSTABLE: dict[str, Any] = {"trainer.optim": {"type": "sgd", "lr": 8.0, "max_grad_norm": None}}


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: row[key] for key in row if key not in ("time", "time/step", "attempt")}
        for row in rows
    ]


def test_a_replicate_repeats_itself_and_neither_its_arm_nor_another(
    make_request: Any, run_to_end: Any
) -> None:
    def run(arm: str, **top: int) -> list[dict[str, Any]]:
        return without_times(run_to_end(make_request({**UNSTABLE, **top}, arm=arm)))

    first = run("first", replicate=1)
    assert run("again", replicate=1) == first
    plain, other = run("plain"), run("other", replicate=2)
    assert first != plain
    assert first != other
    assert plain != other


def test_the_fault_of_a_replicates_engine_is_its_own(make_config: Any) -> None:
    config = parse_config(make_config())
    task = make_task(config.task)
    model = make_model(
        config.model,
        vocabulary_size=task.vocabulary_size,
        num_positions=task.num_positions,
        device=torch.device("cpu"),
    )
    faulty = EngineConfig(drift=DriftConfig(scale=1.0))
    noises = [
        make_engine(model, faulty, seed=0, **options).drift_noise
        for options in ({}, {"replicate": 0}, {"replicate": 1})
    ]
    assert noises[0] is not None
    assert noises[1] is not None
    assert noises[2] is not None
    assert torch.equal(noises[0], noises[1])
    assert not torch.equal(noises[0], noises[2])


def test_replicates_share_the_warm_start_of_their_seed(make_request: Any, run_to_end: Any) -> None:
    changes = {"trainer.warm_start": {"solve_rate": 0.2, "eval_every": 5, "eval_prompts": 64}}
    plain = make_request(changes, arm="plain")
    again = make_request({**changes, "replicate": 1}, arm="again")
    for request in (again, plain):
        run_to_end(request)
    key = warm_start_key(parse_config(plain.config))
    assert warm_start_key(parse_config(again.config)) == key
    assert [path.name for path in plain.sweep.shared_dir.iterdir()] == [
        plain.sweep.warm_start_dir(key).name
    ]


def test_a_resumed_replicate_equals_an_unbroken_one(make_request: Any, run_to_end: Any) -> None:
    changes = {**UNSTABLE, "replicate": 1, "trainer.checkpoints": {"every": 2}}
    whole = without_times(run_to_end(make_request(changes, arm="whole")))
    run_to_end(make_request(changes, arm="parts", max_steps=2))
    parts = without_times(run_to_end(make_request(changes, arm="parts", attempt=2)))
    assert parts == whole
