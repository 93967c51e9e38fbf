from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.replay import DEFAULT_RULES, replay, run_replay
from analysis.replay.part import main, part_record
from analysis.replay.rules import parse_rule
from harness.errors import UsageError
from tests.analysis.replay.made_results import RULES, draw_tokens, made_result
from tests.analysis.replay.token_files import write_record


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    log_p, log_q = draw_tokens(4000)
    path = tmp_path / "tokens.npz"
    np.savez(path, trainer=log_p, inference=log_q, sequence=np.arange(4000) // 400)
    return path


def test_tables_hold_what_a_plain_count_gives(tokens: Path) -> None:
    plain = made_result(4000)
    found = replay(tokens)
    assert found.rules["label"].tolist() == list(RULES)
    assert found.rules["num_masked"].tolist() == [rule.num_masked for rule in plain.rules]
    log_p, log_q = draw_tokens(4000)
    moved = np.abs(np.exp(log_p.astype(np.float64)) - np.exp(log_q.astype(np.float64)))
    expected = [int((moved > at).sum()) for at in found.curves["threshold"]]
    assert found.curves["num_masked"].tolist() == expected
    assert found.result.num_sequences == 10


def test_several_paths_and_rules_are_taken_as_they_are(tokens: Path) -> None:
    other = tokens.with_name("other.npz")
    other.write_bytes(tokens.read_bytes())
    both = run_replay([str(tokens), other], rules=["ipo:eps=0.2"], curves=[])
    assert [rule.label for rule in both.rules] == ["ipo:eps=0.2"]
    assert (both.num_tokens, both.curves, both.recommendations) == (8000, (), ())


def test_progress_is_told_up_to_the_last_token(tokens: Path) -> None:
    told: list[tuple[int, int | None]] = []
    run_replay(tokens, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (4000, 4000)


def test_a_mistyped_rule_is_met_before_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no rule `icepp`"):
        run_replay(tmp_path / "nothing", rules=["icepp"])


def test_the_default_rules_are_rules() -> None:
    assert [parse_rule(text).label for text in DEFAULT_RULES] == list(RULES)


def test_importing_it_loads_no_third_party_package() -> None:
    program = (
        "import sys, analysis.replay; "
        "print({'numpy', 'pandas', 'matplotlib', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("eps", [-3, True])
def test_a_loss_that_is_no_rule_is_noted_and_refuses_nothing(tmp_path: Path, eps: object) -> None:
    loss = {"type": "ipo", "eps": eps}
    path = write_record(tmp_path / "step.parquet", trainer=[-1.0], inference=[-1.5], loss=loss)
    found = run_replay(path)
    assert "ipo:eps=1" not in [rule.label for rule in found.rules]
    assert found.self_check is None
    assert any("decisions were not checked" in warning for warning in found.warnings)


def test_a_part_that_fails_says_why_on_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = part_record(
        0,
        [str(tmp_path / "nothing.csv")],
        rules=["ipo"],
        curves=[],
        columns={},
        probabilities=None,
        unstable_ok=False,
    )
    (tmp_path / "part.json").write_text(json.dumps(record))
    assert main([str(tmp_path / "part.json"), str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "nothing.csv` doesn't exist (" in line
    assert not (tmp_path / "out").exists()
