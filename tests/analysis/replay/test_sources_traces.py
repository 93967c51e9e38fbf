"""prime-rl's trace streams joined with the trainer's annotations."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis.replay.sources import open_tokens
from harness.errors import UsageError
from tests.analysis.replay.token_files import as_float32, read_all, to_lines

# A skippable frame, as the table of a seekable zstd file is one.
SEEK_TABLE = struct.pack("<II", 0x184D2A5E, 4) + b"\0\0\0\0"


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", "off")


def node(
    parent: int | None,
    mask: Sequence[bool],
    logprobs: Sequence[float | None] = (),
    **more: Any,
) -> dict[str, Any]:
    return {
        "parent": parent,
        "token_ids": list(range(len(mask))),
        "mask": list(mask),
        "logprobs": list(logprobs),
        **more,
    }


def episode(trace_id: str, nodes: Sequence[dict[str, Any]], step: int = 3) -> dict[str, Any]:
    work = {"type": "train", "step": step}
    return {
        "id": f"episode-{trace_id}",
        "run": {"type": "train", "work": work},
        "traces": [{"id": trace_id, "nodes": list(nodes)}],
    }


def annotation(trace_id: str, index: int = 0, **streams: Any) -> dict[str, Any]:
    branch = {"index": index, **streams}
    return {"version": 1, "trace_id": trace_id, "info": {}, "branches": [branch]}


# Two prompt tokens, three sampled ones, one of a tool, one sampled.
NODES = [
    node(None, [False, False]),
    node(0, [True, True, True], [-0.1234, -0.5, -1.25], advantages=[1.5, 1.5, 1.5]),
    node(1, [False, True], [-2.0001], advantages=[1.5]),
]
TRAINER = [None, None, -0.1111, -0.5432, None, None, -2.1234]


def write_run(
    run: Path,
    episodes: Sequence[dict[str, Any]],
    annotations: Sequence[dict[str, Any]],
    more: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write one sealed chunk of episodes, two frames long, and a live one of annotations."""
    traces = run / "monitors" / "file" / "traces"
    (traces / "train").mkdir(parents=True)
    (traces / "annotations" / "trainer").mkdir(parents=True)
    codec = pa.Codec("zstd")
    text = to_lines(episodes).encode()
    # A line may be split between frames.
    frames = [codec.compress(part).to_pybytes() for part in (text[:50], text[50:])]
    (traces / "train" / "00000.jsonl.zst").write_bytes(b"".join(frames) + SEEK_TABLE)
    (traces / "annotations" / "trainer" / "00000.jsonl").write_text(to_lines(annotations))
    if more:
        (traces / "annotations" / "orchestrator").mkdir()
        path = traces / "annotations" / "orchestrator" / "00000.jsonl"
        path.write_text(to_lines(more))
    return traces


def test_compact_values_are_aligned_by_the_mask_of_their_node(tmp_path: Path) -> None:
    write_run(tmp_path, [episode("a", NODES)], [annotation("a", trainer_logprobs=TRAINER)])
    source = open_tokens([str(tmp_path)])
    tokens = read_all(source)
    assert tokens.trainer_logprobs.tolist() == as_float32([-0.1111, -0.5432, -2.1234])
    assert tokens.inference_logprobs.tolist() == as_float32([-0.1234, -0.5, -2.0001])
    assert tokens.advantages is not None
    assert tokens.steps is not None
    assert tokens.advantages.tolist() == [1.5, 1.5, 1.5]
    assert tokens.steps.tolist() == [3, 3, 3]
    assert tokens.stored_masks is None
    (file,) = source.files()
    assert file.excluded == {"outside the loss mask": 4}


def test_branches_are_counted_by_their_leaves(tmp_path: Path) -> None:
    nodes = [
        node(None, [False]),
        node(0, [True], [-0.5]),
        node(0, [True, True], [-0.25, -0.75]),
    ]
    annotations = [
        annotation("a", 1, trainer_logprobs=[None, -3.0, -4.0]),
        annotation("a", 0, trainer_logprobs=[None, -1.0]),
    ]
    write_run(tmp_path, [episode("a", nodes)], annotations)
    tokens = read_all(open_tokens([str(tmp_path)]))
    assert tokens.trainer_logprobs.tolist() == [-3.0, -4.0, -1.0]
    assert tokens.inference_logprobs.tolist() == [-0.25, -0.75, -0.5]
    assert tokens.sequences is not None
    assert tokens.sequences.tolist() == [0, 0, 1]


def test_decisions_and_advantages_of_annotations_are_read(tmp_path: Path) -> None:
    stored = [None, None, False, True, None, None, False]
    credit = [None, None, 0.5, -0.5, None, None, 0.25]
    write_run(
        tmp_path,
        [episode("a", NODES)],
        [annotation("a", trainer_logprobs=TRAINER, is_masked=stored)],
        [annotation("a", advantages=credit)],
    )
    tokens = read_all(open_tokens([str(tmp_path)]))
    assert tokens.stored_masks is not None
    assert tokens.advantages is not None
    assert tokens.stored_masks.tolist() == [False, True, False]
    assert tokens.advantages.tolist() == [0.5, -0.5, 0.25]


def test_a_token_without_decision_is_left_out_where_others_have_one(tmp_path: Path) -> None:
    stored = [None, None, False, True, None, None, None]
    write_run(
        tmp_path,
        [episode("a", NODES)],
        [annotation("a", trainer_logprobs=TRAINER, is_masked=stored)],
    )
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 2
    assert source.files()[0].excluded == {"outside the loss mask": 4, "no stored decision": 1}


def test_the_newest_annotation_of_a_branch_wins(tmp_path: Path) -> None:
    again = [None, None, -1.0, -1.0, None, None, -1.0]
    write_run(
        tmp_path,
        [episode("a", NODES)],
        [annotation("a", trainer_logprobs=TRAINER), annotation("a", trainer_logprobs=again)],
    )
    source = open_tokens([str(tmp_path)])
    assert read_all(source).trainer_logprobs.tolist() == [-1.0, -1.0, -1.0]
    assert source.files()[0].excluded["superseded by a resume"] == 3


def test_annotations_that_do_not_fit_their_trace_are_counted(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        [episode("a", NODES), episode("b", NODES)],
        [
            annotation("a", trainer_logprobs=TRAINER),
            annotation("b", trainer_logprobs=[*TRAINER, -1.0]),
            annotation("c", trainer_logprobs=[None, -1.0]),
        ],
    )
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 3
    assert source.files()[0].excluded["annotation that doesn't fit its trace"] == 5


def test_a_torn_last_line_of_the_live_chunk_is_counted(tmp_path: Path) -> None:
    traces = write_run(tmp_path, [episode("a", NODES)], [annotation("a", trainer_logprobs=TRAINER)])
    live = traces / "annotations" / "trainer" / "00000.jsonl"
    line = json.dumps(annotation("b", trainer_logprobs=TRAINER))
    live.write_text(live.read_text() + line[:40])
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 3
    assert source.files()[0].num_bad_lines == 1


def test_rounding_is_found_out_from_the_values(tmp_path: Path) -> None:
    nodes = [node(None, [True] * 8, [-0.1234 * (1 + place) for place in range(8)])]
    trainer = [round(-0.0123 * (1 + place), 4) for place in range(8)]
    write_run(tmp_path, [episode("a", nodes)], [annotation("a", trainer_logprobs=trainer)])
    assert open_tokens([str(tmp_path)]).decimals == 4


def test_a_sealed_chunk_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    traces = write_run(tmp_path, [episode("a", NODES)], [annotation("a", trainer_logprobs=TRAINER)])
    chunk = traces / "train" / "00000.jsonl.zst"
    chunk.write_bytes(chunk.read_bytes()[:-20])
    with pytest.raises(UsageError, match="00000.jsonl.zst` can't be unpacked"):
        read_all(open_tokens([str(tmp_path)]))


def test_a_chunk_alone_is_an_error(tmp_path: Path) -> None:
    traces = write_run(tmp_path, [episode("a", NODES)], [annotation("a", trainer_logprobs=TRAINER)])
    with pytest.raises(UsageError, match="is a chunk of a stream"):
        open_tokens([str(traces / "train" / "00000.jsonl.zst")])
    with pytest.raises(UsageError, match="annotations, which mean nothing without"):
        open_tokens([str(traces / "annotations" / "trainer" / "00000.jsonl")])


def test_steps_are_used_only_where_all_episodes_name_one(tmp_path: Path) -> None:
    unnamed = episode("b", NODES)
    del unnamed["run"]
    write_run(
        tmp_path,
        [episode("a", NODES), unnamed],
        [annotation(one, trainer_logprobs=TRAINER) for one in ("a", "b")],
    )
    tokens = read_all(open_tokens([str(tmp_path)]))
    assert len(tokens) == 6
    assert tokens.steps is None


def test_numbers_that_no_float_holds_do_not_fit(tmp_path: Path) -> None:
    values = [*TRAINER[:-1], -(10**400)]
    write_run(
        tmp_path,
        [episode("a", NODES), episode("b", NODES, step=10**30)],
        [annotation("a", trainer_logprobs=values), annotation("b", trainer_logprobs=TRAINER)],
    )
    source = open_tokens([str(tmp_path)])
    assert read_all(source).steps is None
    assert source.files()[0].excluded["annotation that doesn't fit its trace"] == 3


@pytest.mark.parametrize(
    ("changes", "streams"),
    [
        ({"mask": 5}, {}),
        ({"logprobs": {"a": 1, "b": 2, "c": 3}}, {}),
        ({"advantages": 3}, {}),
        ({}, {"index": [0]}),
        ({}, {"is_masked": [None, None, "no", True, None, None, False]}),
    ],
)
def test_what_is_of_another_type_does_not_fit(
    tmp_path: Path, changes: dict[str, Any], streams: dict[str, Any]
) -> None:
    odd = [NODES[0], {**NODES[1], **changes}, NODES[2]]
    write_run(
        tmp_path,
        [episode("a", odd), episode("\ud800", NODES)],
        [
            annotation("a", **{"index": 0, "trainer_logprobs": TRAINER, **streams}),
            annotation("\ud800", trainer_logprobs=TRAINER),
        ],
    )
    source = open_tokens([str(tmp_path)])
    assert len(read_all(source)) == 3
    assert source.files()[0].excluded["annotation that doesn't fit its trace"] == 3
