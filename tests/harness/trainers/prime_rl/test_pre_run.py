from __future__ import annotations

from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.prime_rl.pre_run import refuse_pre_run


def _document(command: str, *labels: str) -> dict[str, Any]:
    source = {"env": {"agent": {"runtime": {"labels": list(labels)}}}}
    return {
        "slurm": {"pre_run_command": command},
        "orchestrator": {"train": {"source": [source]}},
    }


def _refusal(command: str, *labels: str) -> UsageError:
    with pytest.raises(UsageError) as raised:
        refuse_pre_run(_document(command, *labels), "`base.toml`")
    assert raised.value.message.startswith("`base.toml`: `slurm.pre_run_command` ")
    assert "\n" not in raised.value.message
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize(
    "command",
    [
        "",
        "timeout 120 prime sandbox delete --label 'swe' -y || true",
        "timeout 120 prime sandbox delete --label swe,eval -y >/dev/null 2>&1",
        "prime sandbox delete --label=swe --label eval --yes",
        "prime sandbox delete -l swe -y; prime sandbox delete -yl eval",
        'prime sandbox delete --label "$PRL_RUN_ID" -y',
        "prime sandbox delete \\\n  --label \\\n  swe -y",
        "ls --all; prime sandbox delete --label swe",
        "echo one --label swe-x",
        "prime sandbox list --all | grep -c . || true",
        "echo \"it's off",
        "uv run --no-sync python -c 'import os; os.sync()'",
        "echo sync",
    ],
)
def test_a_command_that_leaves_other_runs_alone_passes(command: str) -> None:
    refuse_pre_run(_document(command, "swe", "eval"), "`base.toml`")


def test_without_a_command_nothing_is_refused() -> None:
    refuse_pre_run({"slurm": {}}, "`base.toml`")
    refuse_pre_run({"slurm": {"pre_run_command": "None"}}, "`base.toml`")


@pytest.mark.parametrize(
    "command",
    [
        "prime sandbox delete --all -y",
        "prime sandbox delete --label swe --all",
        "prime sandbox delete -a",
        "prime sandbox delete -ya",
        "prime sandbox delete -ay --label swe",
        "prime sandbox delete \\\n --all -y",
        "true\nprime sandbox delete -y --all",
        "bash -c 'prime sandbox delete --all -y'",
        'echo "$(prime sandbox delete --all -y)"',
        "echo `prime sandbox delete --all`",
        "echo '#'; prime sandbox delete --all",
    ],
)
def test_deleting_all_sandboxes_is_refused_however_it_is_written(command: str) -> None:
    error = _refusal(command, "swe")
    assert "deletes all sandboxes, those of other arms, too" in error.message
    assert error.hint == "delete by `--label`"


@pytest.mark.parametrize(
    "command",
    [
        "prime sandbox list -q | xargs prime sandbox delete -y",
        "prime sandbox delete abc123",
        "prime sandbox delete -y; echo --label swe",
    ],
)
def test_deleting_sandboxes_without_a_label_is_refused(command: str) -> None:
    error = _refusal(command, "swe")
    assert "deletes sandboxes without `--label`" in error.message
    assert "delete by the label of a source" in error.hint


@pytest.mark.parametrize(
    ("command", "labels", "label", "hint"),
    [
        (
            "prime sandbox delete --label glm45-swe -y",
            ["glm45air-swe"],
            "glm45-swe",
            "did you mean `glm45air-swe`?",
        ),
        ("prime sandbox delete -l other -y", ["swe"], "other", "`swe`"),
        ("prime sandbox delete -lother -y", ["swe"], "other", "`swe`"),
        ("prime sandbox delete -yl other", ["swe"], "other", "`swe`"),
        ("prime sandbox delete --label swe --label other", ["swe"], "other", "`swe`"),
        ("prime sandbox delete --label swe,other", ["swe"], "other", "`swe`"),
        ('prime sandbox delete --label="$X"', ["swe"], "$X", "`swe`"),
        ("prime sandbox delete --label", ["swe"], "", "`swe`"),
        ("prime sandbox delete --label swe -y", [], "swe", "give the sources that label"),
    ],
)
def test_a_label_of_no_source_is_refused(
    command: str, labels: list[str], label: str, hint: str
) -> None:
    error = _refusal(command, *labels)
    assert f"names the label {label!r}, which is no label of a source" in error.message
    assert hint in error.hint


def test_a_label_that_cannot_be_made_the_runs_own_is_refused() -> None:
    error = _refusal("prime sandbox delete -lswe", "swe")
    assert "writes the label 'swe' so that it can't become the run's own" in error.message
    assert error.hint == "write `--label swe`"


def test_a_deletion_that_cannot_be_read_is_refused() -> None:
    error = _refusal("prime sandbox \\\n delete --label 'swe", "swe")
    assert "can't be read as shell: No closing quotation" in error.message


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (
            'uv sync --all-extras --group x ; timeout 120 prime sandbox delete --label "swe" -y',
            "uv sync",
        ),
        ("cd /x && /usr/bin/uv --quiet sync", "uv sync"),
        ("uv \\\n sync", "uv sync"),
        ("bash -c 'uv sync'", "uv sync"),
        ("uv pip install flash-attn", "uv pip install"),
    ],
)
def test_changing_the_environment_that_runs_share_is_refused(command: str, call: str) -> None:
    error = _refusal(command, "swe")
    assert f"calls `{call}`: runs share the checkout's environment" in error.message
    assert error.hint == (
        "sync the checkout once before the sweep, and take it out of `slurm.pre_run_command`"
        " (trainer.patch=['slurm.pre_run_command=…'])"
    )
