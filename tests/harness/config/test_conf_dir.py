from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.errors import UsageError


@pytest.fixture
def conf_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    for group in ("loss", "overlay", "experiment"):
        (folder / group).mkdir(parents=True)
    (folder / "config.yaml").write_text("defaults: [_self_]\nseed: 0\n")
    (folder / "loss" / "ipo.yaml").write_text("type: ipo\n")
    (folder / "overlay" / "slow.yaml").write_text(
        "# @package _global_\n# Half the rate.\ntrainer: {optim: {lr: 0.1}}\n"
    )
    return folder


def test_options_are_found_by_group_and_name(conf_dir: Path) -> None:
    conf = load_conf((conf_dir,))
    assert conf.options["loss"]["ipo"].content == {"type": "ipo"}
    assert conf.options["overlay"]["slow"].content == {"trainer": {"optim": {"lr": 0.1}}}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("overlay/bad.yaml", "trainer: {}\n", "has no package line"),
        ("overlay/bad.yaml", "# @package overlay\ntrainer: {}\n", "has the package `overlay`"),
        ("experiment/bad.yaml", "max_steps: 1\n", "has no package line"),
        ("loss/bad.yaml", "# @package _global_\nseed: 3\n", "sets keys of `loss` only"),
        ("loss/bad.yaml", "defaults:\n  - /trainer: x\n", "reaches outside `loss`"),
        (
            "overlay/bad.yaml",
            "# @package _global_\ndefaults:\n  - override /loss: ipo\n",
            "reaches outside `overlay`",
        ),
        (
            "experiment/bad.yaml",
            "# @package _global_\ndefaults:\n  - /loss: ipo\n",
            "may only override groups",
        ),
        ("overlay/bad.yaml", "# @package _global_\nhydra: {}\n", "unknown key `hydra`"),
        ("overlay/bad.yaml", "# @package _global_\nseed: 5\n", "sets the seed"),
        ("overlay/bad.yaml", "# @package _global_\nlos: {}\n", "unknown key `los`"),
        (
            "experiment/bad.yaml",
            "# @package _global_\ndefaults: [override /los: ipo]\n",
            "there is no group `los`",
        ),
        ("loss/bad.yaml", "defaults: 3\n", "`defaults` is 3, want a list"),
        ("los/ipo.yaml", "type: ipo\n", "there is no group `los`"),
        ("stray.yaml", "a: 1\n", "belongs to no group"),
        ("loss/bad.yml", "type: ipo\n", "would be ignored"),
        ("loss/bad.yaml", "type: [ipo\n", "not valid YAML"),
        ("loss/bad.yaml", "- ipo\n", "holds list, want keys"),
    ],
)
def test_a_file_that_would_compose_to_something_else_is_refused(
    conf_dir: Path, name: str, text: str, message: str
) -> None:
    path = conf_dir / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_conf((conf_dir,))
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_an_empty_defaults_list_is_none(conf_dir: Path) -> None:
    (conf_dir / "loss" / "mine.yaml").write_text("defaults:\ntype: ipo\n")
    assert load_conf((conf_dir,)).options["loss"]["mine"].content == {"type": "ipo"}


def test_an_option_in_two_folders_is_an_error_naming_both(conf_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine"
    (other / "loss").mkdir(parents=True)
    (other / "loss" / "ipo.yaml").write_text("type: ipo\n")
    with pytest.raises(UsageError) as caught:
        load_conf((conf_dir, other))
    assert str(conf_dir / "loss" / "ipo.yaml") in caught.value.message
    assert str(other / "loss" / "ipo.yaml") in caught.value.message


def test_a_second_base_config_is_an_error(conf_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine"
    other.mkdir()
    (other / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(UsageError, match="the base config stands in two folders"):
        load_conf((conf_dir, other))


def test_a_missing_folder_is_a_user_error(conf_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_conf((conf_dir, tmp_path / "nowhere"))


def test_an_unknown_option_hints_at_the_near_miss(conf_dir: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_conf((conf_dir,)).option("loss", "ipoo", "command line: override `loss=ipoo`")
    assert caught.value.message == ("command line: override `loss=ipoo`: there is no loss `ipoo`")
    assert caught.value.hint == "did you mean `ipo`?"
