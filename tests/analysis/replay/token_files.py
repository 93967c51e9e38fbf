"""Writes small token records as prime-rl and tables hold them: stand-ins, no trainer has run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.replay.tokens import TokenChunk, TokenSource

TRAINER = [-11.93, -1.609, -0.105]
INFERENCE = [0.0, -0.105, -1.61]


def export_record(**changes: Any) -> dict[str, Any]:
    """Return a record of prime-rl's token export, of three tokens: the first one is padding."""
    length = len(changes.get("loss_mask", [0, 0, 0]))
    nothing = [None] * length
    return {
        "schema_version": 1,
        "step": 7,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "env_name": 'solve [the "task"]',
        "token_ids": list(range(length)),
        "position_ids": list(range(length)),
        "loss_mask": [False, True, True],
        "advantages": [0.0, 0.5, 0.5],
        "inference_logprobs": INFERENCE,
        "trainer_logprobs": TRAINER,
        "entropy": [0.5] * length,
        "mismatch_kl": nothing,
        "importance_ratio": nothing,
        "is_masked": nothing,
        "is_masked_high": nothing,
        "rl_weights": nothing,
        **changes,
    }


def to_lines(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records)


def write_export(
    run: Path,
    records: Sequence[Mapping[str, Any]],
    *,
    step: int = 7,
    rank: int = 0,
    is_stable: bool = True,
) -> Path:
    """Write one file of `<run>/token_exports/step_N`."""
    folder = run / "token_exports" / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank_{rank}.jsonl"
    path.write_text(to_lines(records))
    if is_stable:
        (folder / "STABLE").touch()
    return path


def write_record(
    path: Path,
    *,
    trainer: Sequence[float],
    inference: Sequence[float],
    step: int = 1,
    attempt: int = 1,
    sequence: Sequence[int] | None = None,
    is_masked: Sequence[bool] | None = None,
    loss: Mapping[str, Any] | None = None,
) -> Path:
    """Write a Parquet file with the schema of the built-in trainer's token records."""
    count = len(trainer)
    columns = {
        "trainer_logprob": pa.array(trainer, pa.float32()),
        "inference_logprob": pa.array(inference, pa.float32()),
        "advantage": pa.array([0.5] * count, pa.float32()),
        "loss_mask": pa.array([True] * count, pa.bool_()),
        "is_masked": pa.array(list(is_masked or [False] * count), pa.bool_()),
        "sequence": pa.array(list(sequence or [0] * count), pa.int32()),
        "group": pa.array([0] * count, pa.int32()),
        "position": pa.array(range(count), pa.int32()),
        "attempt": pa.array([attempt] * count, pa.int32()),
        "step": pa.array([step] * count, pa.int32()),
        "token_id": pa.array([0] * count, pa.int32()),
    }
    said = {"loss": dict(loss or {"type": "ipo", "eps": 0.3}), "seed": 0, "step": step}
    table = pa.table(columns).replace_schema_metadata({b"harness": json.dumps(said).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def read_all(source: TokenSource) -> TokenChunk:
    """Return all tokens of the source as one chunk."""
    chunks = list(source.chunks())

    def joined(name: str) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    return TokenChunk(
        joined("trainer_logprobs"),
        joined("inference_logprobs"),
        joined("advantages"),
        joined("sequences"),
        joined("steps"),
        joined("stored_masks"),
    )


def as_float32(values: Sequence[float]) -> list[float]:
    return [float(one) for one in np.array(values, dtype=np.float32)]
