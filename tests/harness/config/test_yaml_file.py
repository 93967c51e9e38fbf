from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config.yaml_file import load_yaml, parse_yaml
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("'1e-3'", "1e-3"),
        ("24:00:00", "24:00:00"),
        ("1_000", "1_000"),
        ("007", "007"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("-12", -12),
        (".inf", float("inf")),
        ("2026-01-01", "2026-01-01"),
        ("null", None),
        ("~", None),
        ("", None),
        ("0x10", "0x10"),
    ],
)
def test_plain_scalars_mean_what_they_look_like(text: str, value: Any) -> None:
    assert parse_yaml(f"key: {text}", "f.yaml") == {"key": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1,\nc: 2\n", "f.yaml:4: not valid YAML"),
        ("a: 1\na: 2\n", "f.yaml:2: not valid YAML: the key `a` stands twice"),
        ("a: !!python/name:os.system\n", "f.yaml:1: not valid YAML"),
        ("a: &x [*x]\n", "f.yaml:1: not valid YAML"),
    ],
)
def test_bad_yaml_names_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "f.yaml")
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_missing_binary_and_folder_paths_are_user_errors(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    for name in ("missing.yaml", "binary.yaml", "."):
        with pytest.raises(UsageError):
            load_yaml(tmp_path / name)
