from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.records.files import read_json
from harness.records.model import Claim, Exit, read_record


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object_is_refused_with_a_way_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "exit.json"
    path.write_bytes(content)
    with pytest.raises(HarnessError) as error:
        read_json(path)
    assert str(path) in error.value.message
    assert "restore it, or delete it" in error.value.hint


def test_a_missing_record_asks_for_its_restoration(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="is missing") as error:
        read_json(tmp_path / "config.json")
    assert error.value.hint == "restore it from a copy"


def test_a_record_with_a_missing_or_wrong_field_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "attempts" / "1" / "claim.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema_version": 1}')
    with pytest.raises(HarnessError, match="lacks `attempt`") as error:
        read_record(Claim, path)
    assert f"delete the folder `{path.parent}`" in error.value.hint
    path.write_text('{"schema_version": "one"}')
    with pytest.raises(HarnessError, match="`schema_version` can't be 'one'") as error:
        read_record(Exit, path)
    assert error.value.hint != ""
