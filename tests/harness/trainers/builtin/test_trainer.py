from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.records.layout import RunPaths
from harness.trainers.builtin.trainer import TRAINER
from harness.trainers.interface import Launch, RunName

NAME = RunName("sweep", "arm", 0, "0" * 16)


def make_trainer_group(tokens_every: int) -> dict[str, Any]:
    return {"trainer": {"tokens": {"every": tokens_every}}}


def test_files_name_what_the_trainer_writes() -> None:
    files = TRAINER.files(make_trainer_group(tokens_every=5), NAME)
    assert (files.metrics, files.metrics_format) == ("trainer/metrics.jsonl", "prime_rl")
    assert (files.tokens, files.tokens_format) == ("trainer/tokens", "harness_parquet")
    assert files.checkpoints == "trainer/checkpoints"


def test_files_name_no_tokens_where_none_are_recorded() -> None:
    files = TRAINER.files(make_trainer_group(tokens_every=0), NAME)
    assert (files.tokens, files.tokens_format) == (None, None)


def test_check_refuses_keys_that_contradict_each_other(make_config: Any) -> None:
    TRAINER.check(make_config())
    with pytest.raises(UsageError, match=r"`model\.num_heads`: 3"):
        TRAINER.check(make_config({"model.num_heads": 3}))


def test_check_refuses_a_task_that_only_other_trainers_know(make_config: Any) -> None:
    with pytest.raises(UsageError, match=r"`task\.type`: no task 'external'"):
        TRAINER.check(make_config({"task": {"type": "external", "name": "swe"}}))


def test_check_refuses_a_loss_that_only_other_trainers_know(make_config: Any) -> None:
    with pytest.raises(UsageError, match=r"`loss\.type`: no loss 'external'"):
        TRAINER.check(make_config({"loss": {"type": "external", "name": "gspo"}}))


def test_command_runs_the_module_apart_from_the_current_folder(tmp_path: Path) -> None:
    launch = Launch(
        RunPaths(tmp_path),
        {},
        NAME,
        attempt=1,
        max_steps=3,
        inputs_dir=tmp_path / "inputs",
    )
    command = TRAINER.command(launch)
    assert command.argv == (sys.executable, "-P", "-m", "harness.trainers.builtin")
