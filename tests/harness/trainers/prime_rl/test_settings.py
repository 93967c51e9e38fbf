from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config.check import output_keys
from harness.errors import UsageError, VariableError
from harness.trainers.prime_rl.settings import (
    CHECKOUT_ENV,
    PrimeRlConfig,
    check_settings,
    find_checkout,
    find_loss_schema,
)
from tests.harness.trainers.prime_rl.arms import make_checkout, make_config


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


def test_a_usable_config_passes(checkout: Path) -> None:
    env = {"WANDB_MODE": "offline", "PYTHONPATH": "/x"}
    check_settings(make_config(checkout, "rl.toml", env=env, seed_keys=["inference.vllm.seed"]))


def test_where_and_how_a_run_is_started_is_no_part_of_what_it_computes() -> None:
    assert set(output_keys(PrimeRlConfig, "trainer")) == {
        "trainer.checkout",
        "trainer.command",
        "trainer.validate",
        "trainer.ports",
        "trainer.env",
        "trainer.replaced",
        "trainer.sources",
    }


@pytest.mark.parametrize(
    ("trainer", "error", "hint"),
    [
        ({"base": []}, "`trainer.base` is empty", "trainer.base=[rl.toml,mine.toml]"),
        ({"command": []}, "`trainer.command` is empty", "[uv, run, --no-sync, rl]"),
        ({"command": [""]}, "`trainer.command` is empty", "[uv, run, --no-sync, rl]"),
        ({"command": ["a\0"]}, "`trainer.command[0]` is 'a\\x00'", "leave it out"),
        ({"replaced": {"a": 1}}, "`trainer.replaced` is set by the harness", "leave it out"),
        ({"sources": ["a"]}, "`trainer.sources` is set by the harness", "leave it out"),
        ({"env": {"WANDB_API_KEY": "x"}}, "looks like a secret", "export WANDB_API_KEY"),
        ({"env": {"HARNESS_RUN_DIR": "x"}}, "the harness's own", "another name"),
        ({"env": {"PRL_RUN_ID": "x"}}, "`trainer.env.PRL_RUN_ID` names a run", "its own"),
        ({"env": {"PRL_RUN_NAME": "x"}}, "`trainer.env.PRL_RUN_NAME` names a run", "its own"),
        ({"env": {"WANDB_RUN_ID": "x"}}, "`trainer.env.WANDB_RUN_ID` names a run", "its own"),
        ({"env": {"A": "a\0"}}, "`trainer.env.A` is 'a\\x00'", "leave it out"),
        ({"seed_keys": ["a..b"]}, "`trainer.seed_keys`: `a..b`: `a..b` can't be a key", "a.b=1"),
        ({"seed_keys": [""]}, "can't be a key", "a.b=1"),
        ({"loss_version": "3417"}, "`trainer.loss_version`: there is no known", "did you mean"),
        ({"loss_version": 3417}, "`trainer.loss_version`: there is no known", "did you mean"),
        *(
            ({"loss_version": value}, f"is {value!r}, want text or a whole number", "`checkout`")
            for value in (2798.0, True, None, ["2798"])
        ),
    ],
)
def test_config_that_cannot_work_is_refused_when_planning(
    checkout: Path, trainer: dict[str, Any], error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        check_settings(make_config(checkout, **{"base": ["rl.toml"], **trainer}))
    assert error in raised.value.message
    assert hint in raised.value.hint
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    "trainer", [{"validate": "never"}, {"ports": "mine"}, {"env": {"A": 1}}, {"base": "rl.toml"}]
)
def test_wrong_types_are_refused(checkout: Path, trainer: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="trainer."):
        make_config(checkout, **{"base": ["rl.toml"], **trainer})


def test_the_checkout_may_be_named_by_a_variable(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKOUT_ENV, str(checkout))
    assert find_checkout({"checkout": None}) == checkout


def test_a_relative_checkout_becomes_absolute(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.parent)
    assert find_checkout({"checkout": "checkout"}) == checkout


def test_without_a_checkout_the_hint_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKOUT_ENV, raising=False)
    with pytest.raises(UsageError, match="is null and PRIME_RL_CHECKOUT is not set") as raised:
        find_checkout({"checkout": None})
    assert "export PRIME_RL_CHECKOUT=" in raised.value.hint
    monkeypatch.setenv(CHECKOUT_ENV, "")
    with pytest.raises(UsageError, match="is null and PRIME_RL_CHECKOUT is empty"):
        find_checkout({"checkout": None})


def test_a_missing_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="`trainer.checkout` is .*nowhere', which is no folder"):
        find_checkout({"checkout": str(tmp_path / "nowhere")})
    monkeypatch.setenv(CHECKOUT_ENV, "~nobody-of-that-name/prime-rl")
    with pytest.raises(UsageError, match="PRIME_RL_CHECKOUT is .*which is no folder"):
        find_checkout({"checkout": None})


def test_a_folder_that_is_not_prime_rl_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, "rl.toml")
    with pytest.raises(UsageError, match="`trainer.checkout`: .* declares no losses of prime-rl"):
        check_settings(config)


def test_what_the_variable_names_is_not_blamed_on_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKOUT_ENV, str(tmp_path))
    with pytest.raises(VariableError, match="^PRIME_RL_CHECKOUT: .* declares no losses"):
        find_loss_schema({"checkout": None, "loss_version": "checkout"}, tmp_path)


def test_the_losses_are_those_that_the_checkout_declares_or_a_version_by_name(
    tmp_path: Path,
) -> None:
    old = make_checkout(tmp_path / "old", version="2798")
    assert find_loss_schema({"checkout": "x", "loss_version": "checkout"}, old).name == "2798"
    assert find_loss_schema({"checkout": "x", "loss_version": "3526"}, old).name == "3526"
    assert find_loss_schema({"checkout": "x", "loss_version": 3526}, old).name == "3526"
