from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.config.yaml_file import load_yaml
from harness.errors import UsageError
from harness.records.files import flatten
from harness.trainers.native_config import (
    check_native,
    fill_native,
    render_file,
    render_words,
)

BARE = {"bools": "bare", "joined_by": ".", "dashes": False}
VALUE = {"bools": "value", "joined_by": ".", "dashes": False}
SLIME = {"bools": "bare", "joined_by": "-", "dashes": True}

NASTY = [
    "",
    " ",
    "a b",
    "it's",
    '"quoted"',
    "back\\slash\\",
    "\\'",
    "a,b",
    "[1, 2]",
    "{a: 1}",
    "${x}",
    "$HOME `id`",
    "a: b",
    "# no comment",
    "- item",
    "-dash",
    "--flag",
    "true",
    "No",
    "y",
    "null",
    "~",
    "1",
    "1e3",
    "1e-3",
    "0x1f",
    "0o7",
    "1_000",
    "12:30:45",
    "2026-01-01",
    ".inf",
    "nan",
    "<<",
    "=",
    "?",
    "*all",
    "!tag",
    "two\nlines\n",
    "tab\there",
    "ü \U0001f600 \x85\u2028",
    "long " * 40,
]

NATIVE: dict[str, Any] = {
    "steps": 100,
    "lr": 1e-6,
    "huge": 1e22,
    "zero": 0.0,
    "big": 2**40,
    "negative": -3,
    "on": True,
    "off": False,
    "betas": [0.9, 0.999],
    "words": NASTY,
    "group": {"text": "adamw", "empty": {}, "none": [], "deep": {"er": 1}},
    "tables": [{"name": "a", "share": 0.5}, {"name": "b"}],
}


def read_1_2(text: str, folder: Path) -> Any:
    """Read by the rules of newer YAML, which takes `1e-3` for a number."""
    (folder / "native.yaml").write_text(text)
    return load_yaml(folder / "native.yaml")


def read_overrides(words: tuple[str, ...]) -> dict[str, Any]:
    """Return what Hydra itself makes of the words, by dotted key."""
    parsed = OverridesParser.create().parse_overrides(list(words))
    assert not any(one.is_sweep_override() for one in parsed)
    return {str(one.key_or_group): one.value() for one in parsed}


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_null(item) for item in value.values())
    return any(has_null(item) for item in value) if isinstance(value, list) else value is None


def test_yaml_reads_back_in_every_version_of_yaml(tmp_path: Path) -> None:
    native = {**NATIVE, "nothing": None, "yes": "no", "1": "one", "a b": 1}
    text = render_file("yaml", native)
    assert yaml.safe_load(text) == native
    assert read_1_2(text, tmp_path) == native
    assert OmegaConf.to_container(OmegaConf.create(text)) == native


def test_yaml_is_written_for_people_to_read() -> None:
    native = {"loss_type": "dapo", "learning_rate": 1e-6, "report_to": ["none"], "x": {"z": None}}
    assert render_file("yaml", native) == (
        "loss_type: dapo\nlearning_rate: 1.0e-06\nreport_to:\n- none\nx:\n  z: null\n"
    )


def test_json_and_toml_read_back() -> None:
    with_null = {**NATIVE, "nothing": None, "a.b": {"c d": [None]}}
    assert json.loads(render_file("json", with_null)) == with_null
    assert tomllib.loads(render_file("toml", NATIVE)) == NATIVE


def test_no_keys_are_an_empty_document() -> None:
    assert yaml.safe_load(render_file("yaml", {})) == {}
    assert json.loads(render_file("json", {})) == {}
    assert tomllib.loads(render_file("toml", {})) == {}


def test_hydra_reads_every_leaf_back() -> None:
    native = {**NATIVE, "nothing": None}
    words = render_words("hydra", native, BARE)
    assert read_overrides(words) == flatten(native)
    assert words[:2] == ("steps=100", "lr=1e-06")


def test_an_interpolation_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text("name: a\ndir: null\nengine: null\nsize: 1\n")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "fsdp.yaml").write_text("kind: fsdp\n")
    native = {"dir": "out/${name}", "+engine": "fsdp", "++size": 2, "+new": {"key": [1]}}
    words = render_words("hydra", native, BARE)
    assert words == ("dir='out/${name}'", "+engine='fsdp'", "++size=2", "+new.key=[1]")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        composed = compose("main", overrides=list(words))
    assert composed.dir == "out/a"
    assert composed.engine == {"kind": "fsdp"}
    assert (composed.size, composed.new.key) == (2, [1])


texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,4}", fullmatch=True)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(texts, values, max_size=4))
def test_any_data_reads_back_from_a_file(native: dict[str, Any]) -> None:
    assert yaml.safe_load(render_file("yaml", native)) == native
    assert json.loads(render_file("json", native)) == native
    if has_null(native):
        with pytest.raises(UsageError, match="is null, which TOML can't say"):
            render_file("toml", native)
    else:
        assert tomllib.loads(render_file("toml", native)) == native


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(names, values, max_size=4))
def test_hydra_reads_back_whatever_is_not_refused(native: dict[str, Any]) -> None:
    try:
        words = render_words("hydra", native, BARE)
    except UsageError:
        return
    assert read_overrides(words) == flatten(native)


def test_switches_are_given_bare_or_left_out() -> None:
    native = {"use_kl_loss": True, "colocate": False, "eps_clip": 0.2, "resume": None}
    words = render_words("flags", native, SLIME)
    assert words == ("--use-kl-loss", "--eps-clip", "0.2")
    parser = argparse.ArgumentParser()
    parser.add_argument("--use-kl-loss", action="store_true")
    parser.add_argument("--colocate", action="store_true")
    parser.add_argument("--eps-clip", type=float, default=0.1)
    parser.add_argument("--resume")
    read = vars(parser.parse_args(words))
    assert read == {"use_kl_loss": True, "colocate": False, "eps_clip": 0.2, "resume": None}


def test_switches_may_be_given_a_value() -> None:
    native = {"bf16": True, "shuffle": False, "report_to": ["wandb", "tensorboard"], "beta": -1e-5}
    words = render_words("flags", native, VALUE)
    assert words == (
        *("--bf16", "true", "--shuffle", "false"),
        *("--report_to", "wandb", "tensorboard", "--beta=-1e-05"),
    )
    parser = argparse.ArgumentParser()
    for name in ("--bf16", "--shuffle"):
        parser.add_argument(name, type=lambda text: text == "true", nargs="?", const=True)
    parser.add_argument("--report_to", nargs="+")
    parser.add_argument("--beta", type=float)
    assert vars(parser.parse_args(words)) == native


def test_nested_keys_are_joined_to_one_flag() -> None:
    native = {"actor": {"lr_decay": 0.1, "adam": {"eps": 1}}}
    assert render_words("flags", native, BARE) == (
        "--actor.lr_decay",
        "0.1",
        "--actor.adam.eps",
        "1",
    )
    assert render_words("flags", native, SLIME) == (
        *("--actor-lr-decay", "0.1"),
        *("--actor-adam-eps", "1"),
    )


@pytest.mark.parametrize("text", NASTY)
def test_a_flag_takes_any_text(text: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name")
    parser.add_argument("--other")
    words = render_words("flags", {"name": text, "other": "x"}, BARE)
    assert vars(parser.parse_args(words)) == {"name": text, "other": "x"}


def test_placeholders_are_filled_in_and_whole_numbers_stay_numbers() -> None:
    native = {
        "seed": "{seed}",
        "dirs": ["{trainer_dir}/a", "b"],
        "name": {"run": "{arm}-{seed}"},
        "{seed}": 1,
        "on": True,
        "none": None,
    }

    def fill(text: str, key: str) -> str:
        return text.replace("{seed}", "7").replace("{trainer_dir}", "/t").replace("{arm}", "x")

    assert fill_native(native, fill) == {
        "seed": 7,
        "dirs": ["/t/a", "b"],
        "name": {"run": "x-7"},
        "{seed}": 1,
        "on": True,
        "none": None,
    }


@pytest.mark.parametrize(
    ("render", "native", "error"),
    [
        ("toml", {"a": {"b": None}}, "`trainer.native.a.b` is null, which TOML can't say"),
        ("toml", {"a": [{"b": [1, None]}]}, "`trainer.native.a[0].b[1]` is null"),
        ("yaml", {"a": "\ud800"}, "`trainer.native.a` is '\\ud800', which is no Unicode text"),
        ("json", {"\udfff": 1}, "`trainer.native.\\udfff`"),
        ("hydra", {"a": {"b c": 1}}, "`trainer.native.a.b c`: Hydra can't name `a.b c`"),
        ("hydra", {"1": 1}, "Hydra can't name `1`"),
        ("hydra", {"a": {"+b": 1}}, "Hydra can't name `a.+b`"),
        ("hydra", {"a=b": 1}, "Hydra can't name `a=b`"),
        ("hydra", {"a": [{"null": 1}]}, "`trainer.native.a[0]` has the key 'null'"),
        ("hydra", {"a": [{"b": {"c:d": 1}}]}, "`trainer.native.a[0].b` has the key 'c:d'"),
        ("hydra", {"a": "\0"}, "`trainer.native.a` is '\\x00': no program can be given"),
        ("flags", {"a": ["\0"]}, "`trainer.native.a[0]` is '\\x00': no program can be given"),
        ("flags", {"a": []}, "`trainer.native.a` is empty: no flag can say that"),
        ("flags", {"a": {"b": {}}}, "`trainer.native.a.b` is empty: no flag can say that"),
        ("flags", {"a": [1, [2]]}, "`trainer.native.a[1]` is a list"),
        ("flags", {"a": [{"b": 1}]}, "`trainer.native.a[0]` is a group"),
        ("flags", {"a": [None]}, "`trainer.native.a[0]` is null"),
        ("flags", {"a": ["-x"]}, "`trainer.native.a[0]` is `-x`, which would be read as a flag"),
        ("flags", {"a b": 1}, "`trainer.native.a b`: `--a b` can't be a flag"),
        ("flags", {"-a": 1}, "`trainer.native.-a`: `---a` can't be a flag"),
        ("flags", {"": 1}, "`--` can't be a flag"),
        (
            "flags",
            {"a.b": 1, "a": {"b": 2}},
            "`trainer.native.a.b` and `trainer.native.a.b` are both `--a.b`",
        ),
    ],
)
def test_what_a_rendering_cannot_hold_is_refused_with_its_key(
    render: str, native: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError) as raised:
        check_native(render, native, BARE, lambda text, key: text)
    assert error in raised.value.message
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_names_that_dashes_make_equal_are_refused() -> None:
    with pytest.raises(UsageError, match="`trainer.native.a-b` and `trainer.native.a_b`"):
        render_words("flags", {"a-b": 1, "a_b": 2}, SLIME)


def test_nothing_is_rendered_unless_asked_for() -> None:
    check_native("none", {"a": "{nonsense", "b": None}, BARE, lambda text, key: text)
