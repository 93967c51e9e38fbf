from __future__ import annotations

import importlib.metadata

import pytest

from harness.doctor.check import Check, Verdict, ok
from harness.doctor.program import check_gpus, check_packages, check_python, judge_packages


def test_this_python_and_its_packages_are_in_range() -> None:
    assert check_python().verdict is Verdict.OK
    assert check_packages().verdict is Verdict.OK


def test_a_package_out_of_range_and_one_that_is_missing_are_named_with_what_to_install() -> None:
    version = importlib.metadata.version("rich")
    found = judge_packages(["rich<1", "no-such-package>=2", "numpy>=1", "absent ; extra == 'x'"])
    assert found == Check(
        "packages",
        Verdict.FAILED,
        f"rich {version} (want <1), no-such-package is missing (want >=2)",
        "pip install 'rich<1' 'no-such-package>=2'",
    )


def test_gpus_that_are_hidden_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert check_gpus() == ok("GPUs here", "none; a login node often has none")
