from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.interface import RunName
from harness.trainers.prime_rl.owned import (
    find_labels,
    name_document,
    pre_run_command,
    refuse_unusable,
    run_id,
    run_name,
    take_owned,
)
from tests.harness.trainers.prime_rl.arms import NAME, SHOWN


def _source(*labels: str) -> dict[str, Any]:
    return {"name": "swe", "env": {"agent": {"runtime": {"labels": list(labels)}}}}


def _labelled(command: str, *labels: str) -> dict[str, Any]:
    return {
        "slurm": {"pre_run_command": command},
        "orchestrator": {"train": {"source": [_source(*labels)]}},
    }


def test_a_run_is_called_by_its_sweep_arm_and_seed() -> None:
    assert run_name(NAME) == SHOWN


def test_the_run_id_is_32_hex_digits_that_each_part_of_the_name_changes() -> None:
    # sha256 of "toy/ipo/seed_3/0000000000000000/"
    assert run_id(NAME) == "904abf02c134e3fd582d45be02d46b5e"
    others: list[dict[str, Any]] = [
        {"sweep": "b"},
        {"arm": "b"},
        {"seed": 4},
        {"identity": "1"},
        {"nonce": "1"},
    ]
    ids = {run_id(dataclasses.replace(NAME, **other)) for other in others}
    assert len(ids | {run_id(NAME)}) == 6


def test_the_loss_and_what_names_a_run_are_taken_out() -> None:
    document = {
        "run": {"name": "mine", "dir": "there"},
        "output_dir": "outputs",
        "max_steps": 1000,
        "clean": False,
        "resume": {},
        "monitors": {
            "wandb": {"project": "swe", "name": "mine", "group": "g", "tags": ["a"]},
            "prime": {"name": "mine"},
        },
        "slurm": {
            "job_name": "mine",
            "partition": "all",
            "time": "24:00:00",
            "pre_run_command": "true",
        },
        "trainer": {"loss": {"type": "ipo", "ipo_threshold": 0.1}, "max_steps": 1000},
        "orchestrator": {"max_steps": 1000, "batch_size": 256, "wandb": {"name": "o"}},
        "weight_broadcast": {"type": "nixl", "session_id": "mine"},
    }
    before = copy.deepcopy(document)
    rest, taken = take_owned(document)
    assert document == before
    assert rest == {
        "monitors": {"wandb": {"project": "swe"}, "prime": {}},
        "slurm": {"pre_run_command": "true"},
        "orchestrator": {"batch_size": 256, "wandb": {}},
        "weight_broadcast": {"type": "nixl"},
    }
    assert taken == {
        "trainer.loss.type": "ipo",
        "trainer.loss.ipo_threshold": 0.1,
        "run.name": "mine",
        "run.dir": "there",
        "output_dir": "outputs",
        "max_steps": 1000,
        "trainer.max_steps": 1000,
        "orchestrator.max_steps": 1000,
        "monitors.wandb.name": "mine",
        "monitors.wandb.group": "g",
        "monitors.wandb.tags": ["a"],
        "orchestrator.wandb.name": "o",
        "monitors.prime.name": "mine",
        "slurm.job_name": "mine",
        "slurm.partition": "all",
        "slurm.time": "24:00:00",
        "weight_broadcast.session_id": "mine",
    }
    assert take_owned(rest) == (rest, {})


def test_tables_that_say_something_by_being_there_stay() -> None:
    document: dict[str, Any] = {"ckpt": {}, "inference": {}, "monitors": {"wandb": {}}, "slurm": {}}
    assert take_owned(document) == (document, {})


def test_a_fork_stays() -> None:
    document = {"resume": {"dir": "/runs/a/checkpoints/step_50"}}
    assert take_owned(document) == (document, {})
    assert take_owned({"resume": {"step": "None"}, "trainer": {"resume": {}}}) == ({}, {})


def test_something_else_than_a_table_is_refused() -> None:
    with pytest.raises(UsageError, match="`trainer` is 3, want a table"):
        take_owned({"trainer": 3})


@pytest.mark.parametrize(
    ("document", "error", "hint"),
    [
        ({"clean": True}, "`clean` is True", "leave it out"),
        ({"dry_run": True}, "`dry_run` is True", "leave it out"),
        ({"resume": {"step": 5}}, "`resume.step` is 5", "`resume.dir`"),
        ({"trainer": {"resume": {"step": 5}}}, "`trainer.resume.step` is 5", "`resume.dir`"),
        ({"monitors": {"file": "None"}}, "`monitors.file` is null", "leave it out"),
        (
            {"orchestrator": {"monitors": {"file": None}}},
            "`orchestrator.monitors.file` is null",
            "leave it out",
        ),
        (
            {"monitors": {"file": {"path": "/tmp/m.jsonl"}}},
            "`monitors.file.path` is '/tmp/m.jsonl'",
            "leave it out",
        ),
        ({"monitors": {"file": {"path": "m.jsonl"}}}, "is 'm.jsonl'", "leave it out"),
        ({"env_vars": {"PRL_RUN_ID": "x"}}, "`env_vars.PRL_RUN_ID` is 'x'", "gets its own"),
        *(
            ({part: {"env_vars": {name: "0"}}}, f"`{part}.env_vars.{name}` is '0'", "gets its own")
            for part in ("trainer", "orchestrator", "inference")
            for name in ("PRL_RUN_NAME", "WANDB_RUN_ID", "WANDB_SHARED_MODE", "WANDB_SHARED_LABEL")
        ),
        (
            {"inference": {"deployment": {"decode_env_vars": {"CUDA_VISIBLE_DEVICES": "0"}}}},
            "`inference.deployment.decode_env_vars.CUDA_VISIBLE_DEVICES` is '0'",
            "gets its own",
        ),
    ],
)
def test_what_the_harness_cannot_run_is_refused(
    document: dict[str, Any], error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        refuse_unusable(take_owned(document)[0], "`base.toml`")
    assert raised.value.message.startswith("`base.toml`: ")
    assert error in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "document",
    [
        {"monitors": {"file": {}}},
        {"monitors": {"file": {"path": "metrics.jsonl"}}},
        {"resume": {"dir": "/a/step_5"}},
        {"env_vars": {"WANDB_MODE": "offline"}, "trainer": {"env_vars": {"A": "1"}}},
    ],
)
def test_what_arms_may_share_passes(document: dict[str, Any]) -> None:
    refuse_unusable(document, "`base.toml`")


def test_a_named_document_shares_nothing_with_those_of_other_runs() -> None:
    document: dict[str, Any] = {
        "monitors": {"wandb": {"project": "swe"}, "prime": {}},
        "trainer": {"monitors": {"wandb": {}}, "wandb": "None"},
        "ckpt": {"output_dir": "/scratch/ckpt/", "interval": 50},
        "weight_broadcast": {"type": "nixl"},
        "slurm": {"pre_run_command": "prime sandbox delete --label swe"},
        "orchestrator": {
            "train": {"source": [_source("swe", "x"), _source("swe")]},
            "eval": {"source": [_source("swe-eval")]},
            "labels": [1],
        },
    }
    name_document(document, NAME, Path("/out/trainer"))
    wandb = {"name": SHOWN, "group": "toy", "tags": ["toy", "ipo", "seed 3"]}
    assert document == {
        "run": {"name": SHOWN},
        "output_dir": "/out/trainer",
        "monitors": {"wandb": {"project": "swe", **wandb}, "prime": {}},
        "trainer": {"monitors": {"wandb": wandb}, "wandb": "None"},
        "ckpt": {"output_dir": f"/scratch/ckpt/{SHOWN}", "interval": 50},
        "weight_broadcast": {"type": "nixl", "session_id": run_id(NAME)},
        "slurm": {
            "job_name": SHOWN,
            "pre_run_command": f"prime sandbox delete --label swe-{SHOWN}",
        },
        "orchestrator": {
            "train": {"source": [_source(f"swe-{SHOWN}", f"x-{SHOWN}"), _source(f"swe-{SHOWN}")]},
            "eval": {"source": [_source(f"swe-eval-{SHOWN}")]},
            "labels": [1],
        },
    }


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("delete --label swe -y", "delete --label swe-R -y"),
        ("delete --label=swe,swe-eval;", "delete --label=swe-R,swe-eval-R;"),
        ("delete --label 'swe' \"swe\"", "delete --label 'swe-R' \"swe-R\""),
        ("cd /data/swe/x && rm -f swe.log", "cd /data/swe/x && rm -f swe.log"),
        ("echo ${swe} my-swe swe2", "echo ${swe} my-swe swe2"),
    ],
)
def test_labels_are_replaced_where_they_stand_as_words(command: str, named: str) -> None:
    document = _labelled(command, "swe", "swe-eval")
    assert pre_run_command(document, NAME) == named.replace("-R", f"-{SHOWN}")


def test_without_labels_a_command_stays_as_it_is() -> None:
    assert pre_run_command({"slurm": {"pre_run_command": "echo a"}}, NAME) == "echo a"
    assert pre_run_command({"slurm": {}}, NAME) is None
    assert pre_run_command({}, NAME) is None


def test_labels_are_found_once_each_in_order() -> None:
    assert find_labels(_labelled("", "b", "a", "b")) == ["b", "a"]


def test_names_of_other_runs_are_other_names() -> None:
    assert run_name(RunName("toy", "ipo", 4, "")) == "toy-ipo-s4"
