from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from harness.config.compose import (
    Composed,
    compose_all,
    find_overruled,
    identity_config,
    with_seed,
)
from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides, to_override
from harness.errors import UsageError
from harness.resources import CONF_DIR
from harness.sweep.identity import hash_identity
from tests.harness.trainers.prime_rl.fake.checkout import make_checkout

EXTERNAL = ("trainer=command", "task=external", "model=external", "trainer.argv=[train]")


def compose(*overrides: str, conf_dirs: tuple[Path, ...] = ()) -> Composed:
    conf = load_conf((CONF_DIR, *conf_dirs))
    [composed] = compose_all(conf, [parse_overrides(overrides, "command line")])
    return composed


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def test_the_base_config_composes_with_every_group_resolved() -> None:
    config = compose().config
    assert config["loss"]["type"] == "ipo"
    assert config["loss"]["eps"] == 0.3
    assert config["trainer"]["type"] == "builtin"
    assert set(config) == {"loss", "task", "model", "trainer", "seed", "max_steps"}


@pytest.mark.parametrize("group", ["loss", "task", "model", "experiment"])
def test_every_shipped_option_composes(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = make_checkout(tmp_path / "checkout", git=False)
    monkeypatch.setenv("PRIME_RL_CHECKOUT", str(checkout))
    conf = load_conf((CONF_DIR,))
    requests = [parse_overrides([f"{group}={name}"], "test") for name in conf.options[group]]
    requests = [r for r in requests if not r[0].text.endswith("=external")]
    assert len(compose_all(conf, requests)) == len(requests) > 0


def test_a_loss_overlay_replaces_the_whole_loss() -> None:
    loss = compose("loss=icepop").config["loss"]
    assert "eps" not in loss
    assert (loss["ratio_low"], loss["ratio_high"]) == (0.2, 5.0)


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (["loss.esp=0.1"], "override `loss.esp=0.1`: unknown key `loss.esp`", "`eps`"),
        (["loss=ipoo"], "there is no loss `ipoo`", "`ipo`"),
        (["loss.ratio_low=1"], "`loss.ratio_low` is no key of the loss type `ipo`", "`icepop`"),
        (["loss.eps='1e-3'"], "`loss.eps` is the text '1e-3', want a number", "quotes"),
        (["loss.eps=yes"], "`loss.eps` is the text 'yes', want a number", ""),
        (["loss.eps=nan"], "want a finite number", ""),
        (["loss.eps=null"], "`loss.eps` is null, want a number", ""),
        (["loss.eps=0.1,0.2"], "gives several values", "grid"),
        (["loss.eps=("], "can't be read", "quotes"),
        (["loss=[ipo,icepop]"], "want the name of one loss option", ""),
        (["overlay=[nope]"], "there is no overlay `nope`", ""),
        (["foo=1"], "unknown key `foo`", "keys:"),
        (["seed=-1"], "`seed` is -1, want at least 0", ""),
        (["max_steps=0"], "`max_steps` is 0, want at least 1", ""),
        (["max_steps=99999999999"], "want at most", ""),
        (["max_steps=???"], "`max_steps` has no value", ""),
        (["max_steps=${nope}"], "can't be resolved", "${"),
        (["loss.type=icepop"], "the type belongs to the loss option", "loss=icepop"),
        (["loss.eps=1_000"], "`_` inside a number", "loss.eps=1000"),
        (["foo.bar=1"], "override `foo.bar=1`: unknown key `foo`", ""),
        (["seed.x=3"], "override `seed.x=3`", ""),
        (["max_steps=" + "9" * 5000], "can't be read", ""),
        (["max_steps=" + "[" * 3000], "override `max_steps=[[[", ""),
        ([*EXTERNAL, "trainer.native.x=shuffle([1,2])"], "can't be read", ""),
        ([*EXTERNAL, "trainer.native.x=[???]"], "`trainer.native.x[0]` has no value", ""),
        ([*EXTERNAL, 'trainer.native.k=${oc.env:"MY_TOKEN"}'], "reads the secret", ""),
        ([*EXTERNAL, "trainer.native.k=${oc.env:GITHUB_PAT}"], "reads the secret", ""),
        ([*EXTERNAL, "trainer.native.api_key=abc"], "looks like a secret", "shell"),
        (["max_steps=${now:%Y}"], "differs at each planning", ""),
        (["loss=ppo", "loss.ratio_high=2", "loss.max_importance_ratio=1.5"], "ratio", ""),
        ([*EXTERNAL, "trainer.native.k=${oc.env:WANDB_API_KEY}"], "reads the secret", "shell"),
    ],
)
def test_a_mistake_names_where_it_was_made(overrides: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(*overrides)
    assert message in caught.value.message
    assert "command line" in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("override", ["overlay=null", "overlay=[]", "experiment=null"])
def test_no_overlay_and_no_experiment_can_be_said(override: str) -> None:
    assert compose(override).config == compose().config


def test_a_computed_name_of_a_variable_is_refused(tmp_path: Path) -> None:
    text = "# @package _global_\ntrainer: {native: {n: HOME, k: '${oc.env:${trainer.native.n}}'}}\n"
    folder = write(tmp_path, "overlay/odd.yaml", text)
    with pytest.raises(UsageError, match="the name of a variable is computed"):
        compose(*EXTERNAL, "overlay=[odd]", conf_dirs=(folder,))


def test_names_that_only_resemble_secrets_pass() -> None:
    native = compose(*EXTERNAL, "trainer.native.pad_token='<pad>'", "trainer.native.tokens=5")
    assert native.config["trainer"]["native"] == {"pad_token": "<pad>", "tokens": 5}


def test_what_a_trainer_refuses_is_blamed_on_the_override_that_set_it() -> None:
    with pytest.raises(UsageError) as caught:
        compose(*EXTERNAL, "trainer.metrics=/etc/passwd")
    assert caught.value.message.startswith("command line: override `trainer.metrics=/etc/passwd`")


@pytest.mark.parametrize("text", ["1:30", "010", "0x10", "1_000", "yes"])
def test_a_value_that_yaml_11_reads_as_something_else_is_refused(tmp_path: Path, text: str) -> None:
    folder = write(
        tmp_path, "overlay/odd.yaml", f"# @package _global_\ntrainer: {{native: {{x: {text}}}}}\n"
    )
    with pytest.raises(UsageError) as caught:
        compose(*EXTERNAL, "overlay=[odd]", conf_dirs=(folder,))
    assert f"`trainer.native.x` is `{text}`, which would be read as" in caught.value.message


def test_the_shipped_files_mean_the_same_to_both_readers() -> None:
    for options in load_conf((CONF_DIR,)).options.values():
        for option in options.values():
            seen = OmegaConf.to_container(OmegaConf.load(option.path))
            assert isinstance(seen, dict)
            seen.pop("defaults", None)
            assert seen == option.content, option.path


@pytest.mark.parametrize(
    ("texts", "pair"),
    [
        (["a=1", "b=2", "a=3"], ("a=1", "a=3")),
        (["a.b=1", "a={b: 2}"], ("a.b=1", "a={b: 2}")),
        (["a={b: 2}", "a.b=1"], ("a={b: 2}", "a.b=1")),
        (["a.b=1", "a=3"], ("a.b=1", "a=3")),
        (["loss=ipo", "loss=icepop"], ("loss=ipo", "loss=icepop")),
    ],
)
def test_the_overruled_override_is_found_with_its_overruler(
    texts: list[str], pair: tuple[str, str]
) -> None:
    found = find_overruled(parse_overrides(texts, "x"))
    assert found is not None
    assert (found[0].text, found[1].text) == pair


@pytest.mark.parametrize(
    "texts", [["a=1", "b=2"], ["loss=ipo", "loss.eps=1"], ["a={b: 1}", "a.c=2"]]
)
def test_overrides_that_both_hold_are_not_overruled(texts: list[str]) -> None:
    assert find_overruled(parse_overrides(texts, "x")) is None


def test_a_typing_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    folder = write(tmp_path, "loss/mine.yaml", "type: ipo\nepss: 0.1\n")
    with pytest.raises(UsageError) as caught:
        compose("loss=mine", conf_dirs=(folder,))
    assert caught.value.message == f"`{folder}/loss/mine.yaml`: unknown key `loss.epss`"
    assert caught.value.hint == "did you mean `eps`?"


def test_a_wrong_type_in_an_overlay_names_the_overlay(tmp_path: Path) -> None:
    folder = write(
        tmp_path, "overlay/fast.yaml", "# @package _global_\ntrainer: {optim: {lr: '1e-3'}}\n"
    )
    with pytest.raises(UsageError) as caught:
        compose("overlay=[fast]", conf_dirs=(folder,))
    assert caught.value.message == (
        f"`{folder}/overlay/fast.yaml`: `trainer.optim.lr` is the text '1e-3', want a number"
    )


def test_overlays_combine_left_to_right_and_overrides_win(tmp_path: Path) -> None:
    text = "# @package _global_\ntrainer: {{optim: {{lr: {}}}}}\n"
    write(tmp_path, "overlay/slow.yaml", text.format(0.1))
    write(tmp_path, "overlay/fast.yaml", text.format(0.2))
    assert compose("overlay=[slow,fast]", conf_dirs=(tmp_path,)).config["trainer"]["optim"][
        "lr"
    ] == pytest.approx(0.2, rel=0)
    both = compose("overlay=[slow,fast]", "trainer.optim.lr=0.3", conf_dirs=(tmp_path,))
    assert both.config["trainer"]["optim"]["lr"] == 0.3
    assert both.choices["overlay"] == ("slow", "fast")


def test_a_loss_option_may_extend_another_of_its_group(tmp_path: Path) -> None:
    folder = write(tmp_path, "loss/wide.yaml", "defaults: [ipo, _self_]\neps: 0.5\n")
    assert compose("loss=wide", conf_dirs=(folder,)).config["loss"]["eps"] == 0.5


def test_user_folders_with_spaces_and_commas_are_searched(tmp_path: Path) -> None:
    folder = tmp_path / "my conf, v2 (it's)"
    write(folder, "loss/mine.yaml", "type: ipo\neps: 0.25\n")
    assert compose("loss=mine", conf_dirs=(folder,)).config["loss"]["eps"] == 0.25


def test_seed_reaches_every_key_that_follows_from_it() -> None:
    composed = compose(
        *EXTERNAL,
        "trainer.native.data_seed=${seed}",
        "trainer.native.name='stream-${seed}'",
        "task.options.seed=${trainer.native.data_seed}",
    )
    runs = [with_seed(composed, seed) for seed in (3, 4)]
    assert [run["trainer"]["native"]["data_seed"] for run in runs] == [3, 4]
    assert [run["trainer"]["native"]["name"] for run in runs] == ["stream-3", "stream-4"]
    assert [run["task"]["options"]["seed"] for run in runs] == [3, 4]
    assert hash_identity(identity_config(runs[0])) != hash_identity(identity_config(runs[1]))


def test_with_seed_sets_the_seed_alone_where_nothing_follows_from_it() -> None:
    composed = compose("loss=icepop")
    assert with_seed(composed, 7) == {**composed.config, "seed": 7}


def identity(*overrides: str) -> str:
    return hash_identity(identity_config(compose(*overrides).config))


@pytest.mark.parametrize(
    "overrides",
    [
        ["max_steps=9999"],
        ["loss.eps=0.3"],
        ["loss.adv_tau=1"],
        ["trainer.checkpoints.every=7"],
        ["trainer.tokens.every=5"],
        ["trainer.device=cpu"],
        ["trainer.trackers.tensorboard=true"],
    ],
)
def test_identity_ignores_what_does_not_change_the_computation(overrides: list[str]) -> None:
    assert identity(*overrides) == identity()


@pytest.mark.parametrize(
    "override", ["loss.eps=0.30001", "seed=1", "task=cumsum", "trainer.optim.lr=0.123"]
)
def test_identity_changes_with_what_is_computed(override: str) -> None:
    assert identity(override) != identity()


@pytest.mark.parametrize(
    "text", ["a#b", "it's", "a, b", "50%", "x=y", "a{b}[c]", "héé ✓", "\\${kept}", " ", '"', "a\tb"]
)
def test_any_quoted_text_passes_through_unharmed(text: str) -> None:
    composed = compose(*EXTERNAL, to_override("trainer.native.text", text))
    wanted: Any = text.replace("\\${", "${")
    assert composed.config["trainer"]["native"]["text"] == wanted


def test_composition_is_the_same_every_time() -> None:
    make: Callable[[], Any] = lambda: compose("experiment=stress", "loss=kpop").config  # noqa: E731
    assert make() == make()


def test_a_bad_variable_is_blamed_on_no_override(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_RL_CHECKOUT", str(tmp_path / "nowhere"))
    words = ("trainer=prime_rl", "task=external", "model=external", "trainer.base=[b.toml]")
    with pytest.raises(UsageError) as raised:
        compose(*words)
    assert raised.value.message == (
        f"PRIME_RL_CHECKOUT is '{tmp_path}/nowhere', which is no folder"
    )
    with pytest.raises(UsageError, match="override `trainer.checkout=gone`: `trainer.checkout`"):
        compose(*words, "trainer.checkout=gone")


def test_a_version_of_prime_rl_may_be_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_RL_CHECKOUT", str(make_checkout(tmp_path / "checkout", git=False)))
    base = write(tmp_path, "base.toml", "[inference]\n") / "base.toml"
    words = ("trainer=prime_rl", "task=external", "model=external", f"trainer.base=['{base}']")
    number = compose(*words, "trainer.loss_version=3418")
    text = compose(*words, "trainer.loss_version='3418'")
    assert number.config == text.config
    assert number.config["trainer"]["loss_version"] == "3418"
