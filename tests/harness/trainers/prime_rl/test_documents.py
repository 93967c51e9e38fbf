from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.prime_rl.documents import parse_document, read_document, write_document

_DOCUMENT = {"max_steps": 5, "trainer": {"loss": {"eps": 0.1}}, "s": [{"n": "x"}, {"n": "y"}]}
_TOML = 'max_steps = 5\n[trainer.loss]\neps = 0.1\n[[s]]\nn = "x"\n[[s]]\nn = "y"\n'
_YAML = "max_steps: 5\ntrainer: {loss: {eps: 0.1}}\ns: [{n: x}, {n: y}]\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base.toml", _TOML),
        ("crlf.toml", _TOML.replace("\n", "\r\n")),
        ("base.json", json.dumps(_DOCUMENT)),
        ("base.yaml", _YAML),
        ("base.yml", _YAML),
    ],
)
def test_the_suffix_decides_how_a_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert read_document(path) == _DOCUMENT


def test_the_shells_variables_and_the_text_none_are_left_as_they_are() -> None:
    text = 'command = "echo ${HOME} $X"\ntime = "None"\n'
    assert parse_document(text, ".toml", "f") == {"command": "echo ${HOME} $X", "time": "None"}


def test_yaml_means_what_it_means_to_prime_rl() -> None:
    text = "a: 1e-3\nb: 1_000\nc: ~\nd: &x {k: 1}\ne: {<<: *x, l: 2}\nf: True\n"
    assert parse_document(text, ".yaml", "f") == {
        "a": "1e-3",
        "b": 1000,
        "c": None,
        "d": {"k": 1},
        "e": {"k": 1, "l": 2},
        "f": True,
    }


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".toml", "a = 1\nb = \nc = 2\n", "f:2: not valid TOML: Invalid value"),
        (".toml", "[a]\nb = 1\n\n[a]\n", "f:4: not valid TOML: Cannot declare ('a',) twice"),
        (".toml", "a = 1\na = 2\n", "f:2: not valid TOML: Cannot overwrite a value"),
        (".toml", 'a = 1\nb = [1,\n"x"', "f:3: not valid TOML: Unclosed array"),
        (".json", '{"a": 1,\n"b" 2}', "f:2: not valid JSON: Expecting ':' delimiter"),
        (".json", '{"a": 1, "a": 2}', "`f`: the key `a` stands twice"),
        (".json", "[1]", "`f` holds no tables"),
        (".yaml", "a: 1\nb: [1,\nc: 2\n", "f:4: not valid YAML"),
        (".yaml", "a: 1\na: 2\n", "f:2: the key `a` stands twice"),
        (".yaml", "a: &x [*x]\n", "f:1: not valid YAML: it holds itself"),
        (".yaml", "a: !!python/name:os.system\n", "f:1: not valid YAML"),
        (".yaml", "1: 2\n", "f:1: the key `1` is no text"),
        (".yaml", "on: 2\n", "f:1: the key `on` is no text"),
        (".yaml", "", "`f` holds no tables"),
        (".yaml", "- 1\n", "`f` holds no tables"),
        (".yaml", "x: {a: on}\n", "f:1: prime-rl reads YAML 1.1, where `on` is a truth value"),
        (
            ".yaml",
            "\nt: 24:00:00\n",
            "f:2: prime-rl reads YAML 1.1, where `24:00:00` is a number in",
        ),
        (".yaml", "t: 010\n", "f:1: prime-rl reads YAML 1.1, where `010` is a number in another"),
        (".yaml", "t: 2026-01-01\n", "f:1: prime-rl reads YAML 1.1, where `2026-01-01` is a date"),
        (".toml", "[a]\nb = [2026-01-01]\n", "`f`: `a.b[0]` is a date, want plain data"),
        (".yaml", "a: !!binary aGk=\n", "`f`: `a` is a bytes, want plain data"),
    ],
)
def test_bad_text_names_the_file_and_where_it_can_the_line(
    suffix: str, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_document(text, suffix, "f")
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_missing_binary_folder_and_foreign_files_are_user_errors(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00a")
    (tmp_path / "folder.toml").mkdir()
    expected = {
        "missing.toml": "does not exist",
        "binary.toml": "is not UTF-8 text",
        "folder.toml": "is a folder, want one of prime-rl's files",
        "base.ini": "prime-rl reads no .ini",
        "base": "prime-rl reads no file without a suffix",
    }
    for name, message in expected.items():
        with pytest.raises(UsageError) as caught:
            read_document(tmp_path / name)
        assert message in caught.value.message
        assert str(tmp_path / name) in caught.value.message


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_written_document_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"resolved{suffix}"
    write_document(path, _DOCUMENT)
    assert read_document(path) == _DOCUMENT


def test_json_keeps_nulls_and_toml_writes_them_as_text(tmp_path: Path) -> None:
    document: dict[str, Any] = {"a": None, "b": float("inf"), "c": "é"}
    for suffix, null in ((".json", None), (".toml", "None")):
        path = tmp_path / f"resolved{suffix}"
        write_document(path, document)
        assert read_document(path) == {"a": null, "b": float("inf"), "c": "é"}


def test_other_formats_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="documents are written as TOML or JSON"):
        write_document(tmp_path / "resolved.yaml", {})
