from __future__ import annotations

from pathlib import Path

import pytest

from harness.doctor.check import Verdict
from harness.doctor.wandb import check_wandb, find_login


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_login_the_check_says_how_to_log_in() -> None:
    check = check_wandb()
    assert check.verdict is Verdict.WARNING
    assert check.found.endswith("no login for api.wandb.ai")
    assert check.todo.startswith("`wandb login` or WANDB_API_KEY")


def test_a_key_in_the_environment_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    check = check_wandb()
    assert check.verdict is Verdict.OK
    assert "from WANDB_API_KEY" in check.found
    assert "0123456789abcdef" not in f"{check.found} {check.todo}"


def test_a_key_in_netrc_counts_for_its_own_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine wandb.lab.org login user password 0123456789abcdef\n")
    netrc.chmod(0o600)
    assert find_login("api.wandb.ai") is None
    assert find_login("wandb.lab.org") == str(netrc)
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.lab.org:8080")
    assert check_wandb().verdict is Verdict.OK


def test_a_netrc_that_cannot_be_read_is_no_login(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine\n")
    assert find_login("api.wandb.ai") is None
