"""harness report on synthetic sweeps, which say that they are stand-ins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from harness.records.layout import SweepPaths
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, make_sweep
from tests.harness.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def sweep_of(shell: Shell, arms: dict[str, Behaviour], **options: object) -> str:
    root = make_sweep(shell.folder, arms, **options)  # type: ignore[arg-type]
    return str(root.relative_to(shell.folder)) + "/"


def test_a_report_is_written_and_its_json_printed(shell: Shell) -> None:
    sweep = sweep_of(shell, {"ipo": HEALTHY, "icepop": HEALTHY})
    code, out, err = shell.run("report", sweep, "--json")
    assert (code, err) == (0, "")
    written = shell.folder / sweep / "report" / "report.json"
    assert out == written.read_text()


def test_predicates_over_a_sweep_decide_the_exit_code(shell: Shell) -> None:
    sweep = sweep_of(shell, {"ipo": HEALTHY, "icepop": COLLAPSING})
    assert shell.run("report", sweep, "--fail-if", 'collapsed("icepop")')[0] == 3
    assert shell.run("report", sweep, "--fail-if", 'collapsed("ipo")')[0] == 0
    code, out, err = shell.run("report", sweep, "--fail-if", 'collapsed("icepo")')
    assert (code, out) == (2, "")
    assert err.splitlines()[1] == "hint: did you mean `icepop`?"


def test_watching_writes_the_report_anew_until_every_run_has_ended(shell: Shell) -> None:
    sweep = sweep_of(shell, {"ipo": HEALTHY, "icepop": Behaviour(outcome=None)}, seeds=(0,))
    process = shell.start("report", sweep, "--watch", "--every", "0.2")
    assert process.stderr is not None
    assert "1 of 2 runs are still to finish" in process.stderr.readline()
    paths = SweepPaths(shell.folder / sweep)
    exits = [paths.run(arm, 0).attempt(1).exit for arm in ("ipo", "icepop")]
    temporary = exits[1].with_suffix(".new")
    temporary.write_bytes(exits[0].read_bytes())
    temporary.rename(exits[1])
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "1 of 1" in out


def test_the_seed_noise_of_another_sweep_stands_beside_one_run_and_decides_nothing(
    shell: Shell,
) -> None:
    other = sweep_of(shell, {"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0, 1, 2, 3))
    (shell.folder / other).rename(shell.folder / "earlier")
    single = sweep_of(shell, {"ipo": HEALTHY, "icepop": Behaviour(level=0.3)}, seeds=(0,))
    code, out, err = shell.run("report", single, "--noise-from", "earlier/", "--json")
    assert code == 0, err
    [found] = [i for i in json.loads(out)["comparisons"] if i["name"] == "solve_rate"]
    assert found["noise"]["label"] == "synthetic_stand_in"
    assert found["noise"]["low"] < found["effect"] < found["noise"]["high"]
    assert (found["verdict"], found["detail"]) == ("not decidable", "one seed")
    without = json.loads(shell.run("report", single, "--json")[1])
    assert all(item["noise"] is None for item in without["comparisons"])


def test_a_report_goes_to_wandb_where_it_is_asked_for(shell: Shell) -> None:
    sweep = sweep_of(shell, {"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,))
    offline = Shell(shell.folder, {"WANDB_MODE": "offline", "WANDB_DIR": str(shell.folder)})
    code, _, err = offline.run("report", sweep, "--wandb", "losses")
    assert code == 0, err
    [line] = [line for line in err.splitlines() if line.startswith("W&B: ")]
    folder = Path(line.removeprefix("W&B: "))
    assert b"report-synthetic_stand_in" in next(folder.glob("*.wandb")).read_bytes()


def test_a_second_report_reads_no_file_that_has_not_changed(shell: Shell) -> None:
    sweep = sweep_of(shell, {"ipo": HEALTHY, "icepop": HEALTHY}, seeds=(0,))
    old = time.time() - 60
    for path in (shell.folder / sweep).rglob("metrics.jsonl"):
        os.utime(path, (old, old))
    cache = shell.folder / "cache"
    cached = Shell(shell.folder, {"HARNESS_CACHE_DIR": str(cache)})
    assert cached.run("report", sweep)[0] == 0
    kept = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(kept) == 2
    first = (shell.folder / sweep / "report" / "report.json").read_bytes()
    assert cached.run("report", sweep)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == kept
    assert (shell.folder / sweep / "report" / "report.json").read_bytes() == first
