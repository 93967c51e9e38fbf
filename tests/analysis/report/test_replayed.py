from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.report import replayed, write_report
from harness.records.layout import SweepPaths
from tests.analysis.conftest import HEALTHY, MakeSweep
from tests.analysis.replay.token_files import write_record


def add_tokens(root: Path, arm: str, seed: int) -> None:
    """Give a run token records: a stand-in, nothing was trained."""
    paths = SweepPaths(root).run(arm, seed)
    record = json.loads(paths.record.read_text())
    record |= {"tokens": "trainer/tokens", "tokens_format": "harness_parquet"}
    paths.record.write_text(json.dumps(record))
    rng = np.random.default_rng(seed)
    trainer = -rng.exponential(1.0, 50)
    inference = np.minimum(0.0, trainer + rng.normal(0.0, 0.4, 50))
    write_record(
        paths.tokens_file(2),
        trainer=trainer.tolist(),
        inference=inference.tolist(),
        step=2,
        sequence=(np.arange(50) // 10).tolist(),
        loss={"type": "none"},
    )


def test_the_report_of_a_sweep_with_token_records_holds_a_replay_of_the_baseline_s(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0, 1), max_steps=40)
    for seed in (0, 1):
        add_tokens(root, "ipo", seed)
    add_tokens(root, "icepop", 0)
    written = write_report(root)
    page = written.html.read_text()
    assert "Replay of recorded tokens" in page
    assert "100 decisions are all reproduced by none" in page.replace("&#39;", "'")
    names = {path.name for path in written.figures}
    assert {"density.png", "density.svg", "curve_ipo_eps.png"} <= names
    assert written.paths.markdown.read_text().count("figures/density.png") == 1


def test_without_token_records_there_is_no_replay(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=40)
    written = write_report(root)
    assert "Replay of recorded tokens" not in written.html.read_text()
    assert "density.png" not in {path.name for path in written.figures}


def test_records_that_would_take_long_are_left_to_the_command_and_the_report_says_so(
    sweep_maker: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=40)
    add_tokens(root, "ipo", 0)
    monkeypatch.setattr(replayed, "MAX_BYTES", 10)
    [notice] = [n for n in write_report(root).report["notices"] if n["kind"] == "replay_left_out"]
    assert notice["message"].endswith("`harness replay synthetic_stand_in` does")


def test_damaged_records_are_named_and_leave_the_rest_of_the_report(
    sweep_maker: MakeSweep,
) -> None:
    root = sweep_maker({"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,), max_steps=40)
    add_tokens(root, "ipo", 0)
    path = SweepPaths(root).run("ipo", 0).tokens_file(2)
    path.write_bytes(path.read_bytes()[:200])
    report = write_report(root).report
    [notice] = [n for n in report["notices"] if n["kind"] == "replay_left_out"]
    assert notice["message"].startswith("token records: ")
    assert len(report["comparisons"]) == 4
