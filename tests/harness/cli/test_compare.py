"""harness compare and --fail-if, on run folders written by hand as trainers leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.foreign_runs import prime_rl_run
from tests.harness.cli.shell import Shell

RULES = ["--analysis", "last_steps=20", "--analysis", "baseline_steps=[5, 15]"]
RULES += ["--analysis", "collapse_window=10"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    for seed in range(4):
        prime_rl_run(tmp_path / f"ipo_{seed}", seed=seed, level=0.8)
        loss = {"type": "icepop", "ratio_low": 0.2}
        prime_rl_run(tmp_path / f"icepop_{seed}", seed=seed, level=0.6, loss=loss)
    return Shell(tmp_path)


def compare(shell: Shell, *more: str) -> tuple[int, str, str]:
    arms = ["--arm", "ipo=ipo_*", "--arm", "icepop=icepop_*", "--baseline", "ipo"]
    return shell.run("compare", *arms, *RULES, *more)


def test_foreign_runs_get_a_whole_report_and_a_summary(shell: Shell) -> None:
    code, out, err = compare(shell)
    assert code == 0, err
    assert "icepop against ipo: solve rate worse" in " ".join(out.split())
    assert err.splitlines()[-1] == "report: comparison/report.html"
    folder = shell.folder / "comparison"
    report = json.loads((folder / "report.json").read_text())
    assert (report["kind"], report["baseline"], len(report["runs"])) == ("comparison", "ipo", 8)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"report.html", "report.md", "runs.csv", "comparisons.csv", "curves.parquet"}


def test_json_goes_to_stdout_and_a_second_report_replaces_the_first(shell: Shell) -> None:
    first = compare(shell, "--json", "--name", "mine")[1]
    second = compare(shell, "--json", "--name", "mine")[1]
    assert first == second
    assert json.loads(first)["sweep"] == "mine"


@pytest.mark.parametrize(
    ("predicate", "code", "words"),
    [
        ('worse("icepop", "ipo", "solve_rate", margin=0.05)', 3, "holds"),
        ('better("icepop", "ipo")', 0, "does not hold"),
        ('collapsed("icepop")', 0, "does not hold"),
        ('worse("icepop", "ipo", "throughput")', 4, "can't be decided"),
        ('equivalent("icepop", "ipo", "mismatch_kl", margin=0.0001)', 4, "can't be decided"),
    ],
)
def test_a_predicate_decides_the_exit_code(
    shell: Shell, predicate: str, code: int, words: str
) -> None:
    found, _, err = compare(shell, "--fail-if", predicate)
    assert found == code, err
    assert err.splitlines()[-1].startswith(f"--fail-if {predicate}: {words} (")


def test_one_predicate_that_holds_outweighs_one_that_can_t_be_decided(shell: Shell) -> None:
    undecided = ("--fail-if", 'worse("icepop", "ipo", "throughput")')
    assert compare(shell, *undecided, "--fail-if", 'worse("icepop", "ipo")')[0] == 3


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (("--arm", "kpop"), "--arm kpop: want ARM=SOURCE", "--arm ipo=runs/ipo_0"),
        (("--arm", "kpop=ipo_9"), "`ipo_9` doesn't exist", "did you mean"),
        (("--baseline", "icepo"), "--baseline icepo: there is no such arm", "`icepop`"),
        (("--key", "solve_rat=x"), "no metric `solve_rat`", "`solve_rate`"),
        (("--key", "solve_rate"), "want METRIC=KEY", ""),
        (("--analysis", "alhpa=0.1"), "unknown key `analysis.alhpa`", "`alpha`"),
        (("--analysis", "alpha"), "want KEY=VALUE", ""),
        (("--fail-if", 'worse("kpop", "ipo")'), "no arm", "`icepop`"),
        (("--name", "../x"), "no name of a comparison", ""),
        (("--out", "ipo_0"), "`ipo_0` holds other files", "--out"),
        (("--out", "ipo_0/metrics.jsonl"), "is no folder that you may write to", "--out"),
        (("--out", "ipo_0/metrics.jsonl/x"), "is no folder that you may write to", "--out"),
        (("--out", "x" * 300), "File name too long", "--out"),
        (("--key", "solve_rate=nothing/like/it"), "no run logged a number as", "`"),
        (("--out", "ipo_0/report"), "lies in the folder of the run ipo/seed_0", "--out"),
        (("--into-run-folder", "--max-steps", "90"), "has not finished (short)", ""),
        (("--noise-from", "nothing"), "there is no sweep `nothing`", ""),
    ],
)
def test_what_can_t_be_compared_is_refused_and_nothing_is_written(
    shell: Shell, more: tuple[str, ...], message: str, hint: str
) -> None:
    before = sorted(shell.folder.rglob("*"))
    code, out, err = compare(shell, *more)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second
    assert sorted(shell.folder.rglob("*")) == before


def test_a_copy_goes_into_the_folders_of_finished_runs_where_it_is_asked_for(shell: Shell) -> None:
    code, _, err = compare(shell, "--into-run-folder", "--name", "losses")
    assert code == 0, err
    copy = shell.folder / "icepop_2" / "reports" / "losses.md"
    assert "](losses_figures/curves.png)" in copy.read_text()
    assert (copy.parent / "losses_figures" / "curves.png").is_file()
    assert compare(shell, "--into-run-folder", "--name", "losses")[0] == 0, "and again"


def test_without_being_asked_nothing_is_put_into_a_run_s_folder(shell: Shell) -> None:
    before = sorted(shell.folder.glob("i*/**/*"))
    assert compare(shell)[0] == 0
    assert sorted(shell.folder.glob("i*/**/*")) == before
