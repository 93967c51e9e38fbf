"""Token records: what the loss of one step saw, one Parquet file per recorded step."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from harness.records.files import write_atomic
from harness.trainers.builtin.rollouts import Rollouts

METADATA_KEY = b"harness"
"""Key of the JSON object in the Parquet file's metadata."""


def write_tokens(
    path: Path,
    rollouts: Rollouts,
    *,
    trainer_logprobs: Tensor,
    advantages: Tensor,
    is_masked: Tensor,
    loss: Mapping[str, Any],
    seed: int,
    step: int,
    attempt: int,
) -> None:
    """Write one row per sampled token to `path`, published by rename; replaces an earlier one.

    Columns: trainer_logprob, inference_logprob, advantage (float32, nats and rewards), loss_mask,
    is_masked (bool), sequence, group, position (in the response), attempt, step, token_id
    (int32). Metadata: loss knobs, seed, step and policy_step.

    Args:
        trainer_logprobs, advantages, is_masked: [sequences, response tokens], as the loss got and
            gave them.
    """
    is_sampled = rollouts.response_mask
    sequence, position = torch.nonzero(is_sampled, as_tuple=True)
    num_rows = len(sequence)
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "trainer_logprob": (pa.float32(), trainer_logprobs.detach()[is_sampled]),
        "inference_logprob": (pa.float32(), rollouts.inference_logprobs[is_sampled]),
        "advantage": (pa.float32(), advantages[is_sampled]),
        "loss_mask": (pa.bool_(), rollouts.loss_mask[is_sampled]),
        "is_masked": (pa.bool_(), is_masked[is_sampled]),
        "sequence": (pa.int32(), sequence),
        "group": (pa.int32(), sequence // rollouts.per_prompt),
        "position": (pa.int32(), position),
        "attempt": (pa.int32(), np.full(num_rows, attempt)),
        "step": (pa.int32(), np.full(num_rows, step)),
        "token_id": (pa.int32(), rollouts.responses[is_sampled]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    metadata = {
        "loss": dict(loss),
        "policy_step": rollouts.policy_step,
        "seed": seed,
        "step": step,
    }
    arrays = [pa.array(_to_numpy(values)).cast(kind) for kind, values in columns.values()]
    table = pa.Table.from_arrays(arrays, schema=schema).replace_schema_metadata(
        {METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()}
    )
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    write_atomic(path, content.getvalue())


def _to_numpy(values: Tensor | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.cpu().numpy() if isinstance(values, Tensor) else values
