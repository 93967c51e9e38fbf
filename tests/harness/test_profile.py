from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.profile import LocalProfile, load_profile, profile_names


def load(tmp_path: Path, text: str) -> LocalProfile:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    profile = load_profile(str(path))
    assert (profile.name, profile.type) == ("mine", "local")
    assert isinstance(profile.settings, LocalProfile)
    return profile.settings


def test_shipped_local_profile_states_the_defaults() -> None:
    profile = load_profile("local")
    assert (profile.name, profile.settings) == ("local", LocalProfile())
    assert "local" in profile_names()


def test_settings_are_what_an_intent_records() -> None:
    assert load_profile("local").to_settings() == {
        "type": "local",
        "slots": None,
        "threads": 1,
        "gpus": "auto",
        "gpus_per_run": None,
        "grace_s": 10.0,
        "heartbeat_limit_s": 30.0,
    }


def test_file_may_state_only_some_keys(tmp_path: Path) -> None:
    settings = load(tmp_path, 'type: local\nslots: 3\ngpus: ["0", 5]\ngrace_s: 2.5\n')
    assert settings == LocalProfile(slots=3, gpus=["0", 5], grace_s=2.5)


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("type: local\nslot: 3\n", "unknown key `slot`", "`slots`"),
        ("type: locl\n", "`type` is 'locl'", "`local`"),
        ("type: slrum\n", "`type` is 'slrum'", "`slurm`"),
        ("slots: 3\n", "`type` is None", "`local`"),
        ("type: [local]\n", "`type` is ['local']", "`local`"),
        ("- local\n", "holds no keys", "type: local"),
        ("", "holds no keys", "type: local"),
        ("type: local\nslots: 0\n", "`slots` is 0, want at least 1", ""),
        ("type: local\nslots: '3'\n", "`slots` is the text '3'", "without quotes"),
        ("type: local\nslots: true\n", "`slots` is true", ""),
        ("type: local\ngrace_s: 1:30\n", "`grace_s` is the text '1:30'", ""),
        ("type: local\ngrace_s: .inf\n", "`grace_s` is inf", ""),
        ("type: local\ngrace_s: -1\n", "`grace_s` is -1", ""),
        ("type: local\nslots: 2\nslots: 3\n", "`slots` stands twice", ""),
        ("type: local\ngpus: all\n", "`gpus` is 'all'", "auto"),
        ("type: local\ngpus: 2\n", "`gpus` is 2", "list of ids"),
        ("type: local\ngpus: [true]\n", "`gpus` holds True", "list of ids"),
        ("type: local\ngpus: ['']\n", "`gpus` holds ''", "list of ids"),
        ("type: local\ngpus: ['0,1']\n", "`gpus` holds '0,1'", "list of ids"),
        ("type: local\ngpus: [1, '1']\n", "names one GPU twice", ""),
        ("type: local\n  x: y\n", "mine.yaml:2: not valid YAML", ""),
    ],
)
def test_bad_file_is_refused_with_its_key(tmp_path: Path, text: str, error: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    assert "mine.yaml" in raised.value.message
    assert error in raised.value.message
    assert "\n" not in raised.value.message
    assert hint in raised.value.hint


def test_unknown_name_is_refused_with_the_near_miss() -> None:
    with pytest.raises(UsageError, match="no profile `locla`") as error:
        load_profile("locla")
    assert error.value.hint == "did you mean `local`?"


def test_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`cluster/no\.yaml` does not exist"):
        load_profile("cluster/no.yaml")


def test_file_whose_name_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "50% mine.yaml"
    path.write_text("type: local\n")
    with pytest.raises(UsageError, match="'50% mine' can't be a profile's name"):
        load_profile(str(path))
