from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import run_command

SWEEP = """
question: q
baseline: ipo
seeds: [0, 1]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]
arms:
  ipo: [loss=ipo]
  wide: [loss=ipo, loss.eps=0.5]
  masked: [loss=icepop, loss.ratio_low=0.5]
"""
MASKED = """\
loss.eps: 0.5 -> null
loss.max_importance_ratio: 10000.0 -> null
loss.ratio_high: null -> 5.0
loss.ratio_low: null -> 0.5
loss.type: ipo -> icepop
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "study.yaml").write_text(SWEEP)
    return tmp_path


def test_two_arms_differ_in_their_resolved_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["diff", "study", "wide", "masked"]) == 0
    output = capsys.readouterr()
    assert output.out == MASKED
    assert output.err == (
        "study: wide -> masked (composed from sweeps/study.yaml)\nwide restates loss=ipo\n"
    )
    assert not (folder / "outputs").exists()


def test_json_names_both_sides_and_what_is_restated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["diff", "study", "ipo", "wide", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "arms": ["ipo", "wide"],
        "differences": [{"key": "loss.eps", "first": 0.3, "second": 0.5}],
        "restated": {"ipo": ["loss=ipo"], "wide": ["loss=ipo"]},
    }


def test_an_arm_does_not_differ_from_itself(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["diff", "study", "ipo", "ipo"]) == 0
    assert capsys.readouterr().out == "no difference\n"


def test_the_plan_on_disk_is_asked_first_and_the_file_for_an_arm_that_it_lacks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # `train` is no program: the runs fail, and the plan stands.
    assert run_command(["run", "study", "--no-report"]) == 1
    path = folder / "sweeps" / "study.yaml"
    path.write_text(SWEEP + "  other: [loss=kpop]\n")
    capsys.readouterr()
    assert run_command(["diff", "study", "ipo", "wide"]) == 0
    output = capsys.readouterr()
    assert output.out == "loss.eps: 0.3 -> 0.5\n"
    assert output.err.splitlines()[0] == "study: ipo -> wide (planned in outputs/study)"
    assert run_command(["diff", "study", "ipo", "other"]) == 0
    output = capsys.readouterr()
    assert "loss.type: ipo -> kpop" in output.out
    assert "(composed from sweeps/study.yaml)" in output.err
    path.unlink()  # the plan is enough
    assert run_command(["diff", "study", "wide", "masked"]) == 0
    assert capsys.readouterr().out == MASKED


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["study", "ipo", "wiide"], "sweep `study` has no arm `wiide`", "did you mean `wide`?"),
        (["studdy", "ipo", "wide"], "there is no sweep `studdy`", "did you mean `study`?"),
        (["study", "ipo"], "the following arguments are required: ARM", "`harness diff --help`"),
    ],
)
def test_what_is_not_there_is_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
    hint: str,
) -> None:
    assert run_command(["diff", *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {error}"
    assert lines[1].startswith(f"hint: {hint}")
