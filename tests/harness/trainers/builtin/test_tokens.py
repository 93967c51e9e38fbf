from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from harness.trainers.builtin.rollouts import Rollouts
from harness.trainers.builtin.tokens import METADATA_KEY, write_tokens

RESPONSES = torch.tensor([[3, 1], [1, 1], [0, 2], [2, 1]])
RESPONSE_MASK = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
LOSS_MASK = RESPONSE_MASK & torch.tensor([[True], [True], [False], [False]])


def write(path: Path, *, attempt: int = 2) -> None:
    rollouts = Rollouts(
        tokens=torch.zeros(4, 5, dtype=torch.int64),
        responses=RESPONSES,
        inference_logprobs=torch.tensor([[-0.1, -0.2], [-0.3, 0.0], [-0.5, -0.6], [-0.7, -0.8]]),
        response_mask=RESPONSE_MASK,
        loss_mask=LOSS_MASK,
        rewards=torch.zeros(4),
        advantages=torch.zeros(4),
        is_effective=torch.tensor([True, False]),
        per_prompt=2,
        policy_step=5,
    )
    write_tokens(
        path,
        rollouts,
        trainer_logprobs=rollouts.inference_logprobs - 1,
        advantages=torch.tensor([[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0], [0.0, 0.0]]),
        is_masked=torch.tensor([[True, False], [False, False], [False, False], [False, False]]),
        loss={"type": "ipo", "eps": 0.3},
        seed=4,
        step=9,
        attempt=attempt,
    )


def test_one_row_per_sampled_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens" / "step_000009.parquet"
    write(path)
    columns = pq.read_table(path).to_pydict()
    assert columns["sequence"] == [0, 0, 1, 2, 2, 3, 3]
    assert columns["group"] == [0, 0, 0, 1, 1, 1, 1]
    assert columns["position"] == [0, 1, 0, 0, 1, 0, 1]
    assert columns["token_id"] == [3, 1, 1, 0, 2, 2, 1]
    assert columns["loss_mask"] == [True, True, True, False, False, False, False]
    assert columns["is_masked"] == [True, False, False, False, False, False, False]
    assert columns["advantage"] == [0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    assert columns["attempt"] == [2] * 7
    assert columns["step"] == [9] * 7
    expected = torch.tensor([-0.1, -0.2, -0.3, -0.5, -0.6, -0.7, -0.8])
    assert columns["inference_logprob"] == expected.tolist()
    assert columns["trainer_logprob"] == (expected - 1).tolist()


def test_types_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "step.parquet"
    write(path)
    schema = pq.read_schema(path)
    kinds = {field.name: field.type for field in schema}
    floats = ("trainer_logprob", "inference_logprob", "advantage")
    assert {name: kinds[name] for name in floats} == dict.fromkeys(floats, pa.float32())
    assert kinds["loss_mask"] == kinds["is_masked"] == pa.bool_()
    ints = ("sequence", "group", "position", "attempt", "step", "token_id")
    assert {name: kinds[name] for name in ints} == dict.fromkeys(ints, pa.int32())
    assert json.loads(schema.metadata[METADATA_KEY]) == {
        "loss": {"eps": 0.3, "type": "ipo"},
        "policy_step": 5,
        "seed": 4,
        "step": 9,
    }
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


def test_a_later_attempt_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "step.parquet"
    write(path, attempt=1)
    write(path, attempt=2)
    assert pq.read_table(path)["attempt"].unique().to_pylist() == [2]
    assert [entry.name for entry in tmp_path.iterdir()] == ["step.parquet"]
