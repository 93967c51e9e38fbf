"""harness replay, on token records in files of any origin."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import RunRecord, to_record
from tests.analysis.replay.token_files import write_record
from tests.harness.cli.shell import Shell

# log q, log p per row: the page's two examples, a token that IPO keeps at every threshold, and one
# that both rules mask.
PAIRS = ((0.01, 0.06), (0.90, 0.20), (0.5, 0.5), (0.02, 0.9))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    rows = [
        f"{math.log(q):.9f},{math.log(p):.9f},{number // 2}"
        for number, (q, p) in enumerate(PAIRS * 50)
    ]
    text = "\n".join(["q,p,sequence", *rows]) + "\n"
    (tmp_path / "tokens.csv").write_text(text)
    return Shell(tmp_path)


def replay(shell: Shell, *more: str) -> tuple[int, str, str]:
    return shell.run("replay", "tokens.csv", "--columns", "trainer=p,inference=q", *more)


def test_rules_are_counted_and_every_form_is_written(shell: Shell) -> None:
    code, out, err = replay(shell)
    assert code == 0, err
    assert err.splitlines()[-1] == "replay: replay/replay.html"
    words = " ".join(out.split())
    assert "ipo:eps=0.3 100 50.0 %" in words
    assert "icepop:ratio_low=0.2,ratio_high=5 100 50.0 %" in words
    assert words.endswith("not what a run under it would do.")
    folder = shell.folder / "replay"
    assert {path.name for path in folder.iterdir()} == {
        *("replay.json", "replay.md", "replay.html", "figures"),
        *("rules.csv", "curves.csv", "buckets.csv"),
    }
    record = json.loads((folder / "replay.json").read_text())
    assert (record["num_tokens"], record["num_sequences"]) == (200, 100)
    assert [
        {name: pair[name] for name in ("both", "only_first", "only_second", "neither")}
        for pair in record["agreements"]
        if (pair["first"], pair["second"][:7]) == ("ipo:eps=0.3", "icepop:")
    ] == [{"both": 50, "only_first": 50, "only_second": 50, "neither": 50}]


def test_json_goes_to_stdout_and_a_second_replay_gives_the_same_bytes(shell: Shell) -> None:
    first = replay(shell, "--json")[1]
    files = {path: path.read_bytes() for path in (shell.folder / "replay").rglob("*.*")}
    assert replay(shell, "--json")[1] == first
    assert {path: path.read_bytes() for path in (shell.folder / "replay").rglob("*.*")} == files
    assert first == (shell.folder / "replay" / "replay.json").read_text()


def test_rules_and_curves_are_those_that_were_asked_for(shell: Shell) -> None:
    more = ("--rule", "icepop:ratio_low=0.5", "--curve", "icepop:ratio_high=2..100:20", "--json")
    record = json.loads(replay(shell, *more, "--out", "mine")[1])
    assert [rule["label"] for rule in record["rules"]] == ["icepop:ratio_low=0.5,ratio_high=5"]
    [curve] = record["curves"]
    assert (curve["type"], curve["knob"], len(curve["thresholds"])) == ("icepop", "ratio_high", 20)
    assert record["recommendations"] == []
    assert (shell.folder / "mine" / "figures" / "curve_icepop_ratio_high.svg").is_file()


def test_a_rule_whose_columns_are_missing_is_refused_with_the_reason(shell: Shell) -> None:
    code, out, _ = replay(shell, "--rule", "ppo", "--rule", "ipo")
    assert code == 0
    assert "the records hold no advantages" in out


def test_the_conditions_of_the_recommendation_are_those_asked_for(shell: Shell) -> None:
    found = json.loads(replay(shell, "--max-share", "0.5", "--moved", "0.6", "--json")[1])
    [item] = found["recommendations"]
    assert (item["max_share"], item["moved"]) == (0.5, 0.6)
    assert 0.05 < item["threshold"] < 0.06, "the first that keeps 0.01 to 0.06"
    strict = json.loads(replay(shell, "--max-share", "0.01", "--json")[1])
    assert strict["recommendations"][0]["threshold"] is None


def test_probabilities_are_read_where_it_is_said(shell: Shell) -> None:
    rows = [f"{q},{p},{number}" for number, (q, p) in enumerate(PAIRS * 50)]
    (shell.folder / "tokens.csv").write_text("\n".join(["q,p,sequence", *rows]) + "\n")
    code, out, err = replay(shell, "--probabilities")
    assert code == 0, err
    assert "ipo:eps=0.3 100 50.0 %" in " ".join(out.split())


def test_a_sweep_is_found_by_its_name_and_a_run_by_its_folder(shell: Shell) -> None:
    common = "[experiment=stress, max_steps=4, trainer.tokens.every=2]"
    text = f"question: q\nbaseline: ipo\nseeds: [0]\ncommon: {common}\narms: {{ipo: [loss=ipo]}}\n"
    analysis = "analysis: {last_steps: 1, baseline_steps: [1, 2], collapse_window: 1}\n"
    shell.write(text + analysis, "tiny")
    code, _, err = shell.run("run", "sweeps/tiny.yaml", "--no-report")
    assert code == 0, err
    by_name = shell.run("replay", "tiny", "--json", "--out", "a")
    by_folder = shell.run("replay", "outputs/tiny/runs/ipo/seed_0", "--json", "--out", "b")
    assert (by_name[0], by_folder[0]) == (0, 0), by_name[2] + by_folder[2]
    first, second = json.loads(by_name[1]), json.loads(by_folder[1])
    assert first["num_tokens"] == second["num_tokens"] > 0
    assert first["rules"] == second["rules"]
    check = first["self_check"]
    assert check["rule"] == "ipo:eps=0.3"
    assert check["num_reproduced"] == check["num_stored"] == first["num_tokens"]


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (("--rule", "icepp"), "no rule `icepp`", "`icepop`"),
        (("--rule", "ipo:esp=0.3"), "no knob `esp`", "`eps`"),
        (("--rule", "ipo:eps=2"), "`eps` of rule `ipo` is 2", "at most 1"),
        (("--curve", "ipo:eps=0.3"), "has 0 ranges", "eps=0.01..1.0"),
        (("--columns", "trainer"), "--columns trainer: want ROLE=COLUMN", "trainer=p"),
        (("--columns", "trainer=p,trainer=q"), "`trainer` is named twice", ""),
        (("--columns", "trainr=p,inference=q"), "no `trainr` to map", "`trainer`"),
        (("--columns", "trainer=pp,inference=q"), "no column `pp`", ""),
        (("--max-share", "2"), "'2' is not a number above 0 and up to 1", ""),
        (("--out", "."), "`.` holds other files", "--out"),
        (("--out", "tokens.csv"), "`tokens.csv` is a file", "--out"),
        (("--out", "tokens.csv/replay"), "tokens.csv` is a file", "--out"),
        (("nothing.parquet",), "`nothing.parquet`", ""),
    ],
)
def test_what_can_t_be_replayed_is_refused_and_nothing_is_written(
    shell: Shell, more: tuple[str, ...], message: str, hint: str
) -> None:
    before = sorted(shell.folder.rglob("*"))
    code, out, err = replay(shell, *more)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second
    assert sorted(shell.folder.rglob("*")) == before


def write_run(shell: Shell, seed: int) -> Path:
    """Write a run of an arm with token records: a stand-in, nothing was trained."""
    paths = SweepPaths(shell.folder / "outputs" / "study").run("ipo", seed)
    record = RunRecord(
        schema_version=1,
        sweep="study",
        arm="ipo",
        seed=seed,
        identity=f"id-{seed}",
        trainer="builtin",
        metrics="trainer/metrics.jsonl",
        metrics_format="prime_rl",
        tokens="trainer/tokens",
        tokens_format="harness_parquet",
    )
    write_json(paths.record, to_record(record))
    rng = np.random.default_rng(seed)
    for step in (1, 2):
        trainer = -rng.exponential(1.0, 60)
        inference = np.minimum(0.0, trainer + rng.normal(0.0, 0.5, 60))
        moved = np.abs(np.exp(trainer.astype(np.float32)) - np.exp(inference.astype(np.float32)))
        write_record(
            paths.tokens_file(step),
            trainer=trainer.tolist(),
            inference=inference.tolist(),
            step=step,
            sequence=(np.arange(60) // 10).tolist(),
            is_masked=(moved > np.float32(0.3)).tolist(),
        )
    return paths.root


def test_jobs_of_a_profile_count_what_one_pass_counts(shell: Shell) -> None:
    for seed in (0, 1, 2):
        write_run(shell, seed)
    code, _, err = shell.run("replay", "outputs/study/runs/ipo", "--out", "direct")
    assert code == 0, err
    code, _, err = shell.run("replay", "study", "--on", "local", "--out", "jobs")
    assert code == 0, err
    assert "3 runs or files in 3 parts" in err
    direct, jobs = (
        json.loads((shell.folder / name / "replay.json").read_text()) for name in ("direct", "jobs")
    )
    for name in ("num_tokens", "num_sequences", "agreements", "density", "self_check", "curves"):
        assert jobs[name] == direct[name], name
    counts = [
        [(rule["label"], rule["num_masked"], rule["num_undecidable"]) for rule in one["rules"]]
        for one in (direct, jobs)
    ]
    assert counts[0] == counts[1]
    assert (jobs["num_tokens"], jobs["self_check"]["num_reproduced"]) == (360, 360)
    # Asked again, no part is counted anew.
    code, _, err = shell.run("replay", "study", "--on", "local", "--out", "jobs")
    assert code == 0
    assert "all done" in err


def test_a_profile_that_is_not_there_is_refused_before_anything_is_written(shell: Shell) -> None:
    write_run(shell, 0)
    before = sorted(shell.folder.rglob("*"))
    code, out, err = shell.run("replay", "study", "--on", "nowhere")
    assert (code, out) == (2, "")
    assert "nowhere" in err.splitlines()[0]
    assert sorted(shell.folder.rglob("*")) == before


def test_a_run_that_is_named_twice_is_counted_once_by_jobs_too(shell: Shell) -> None:
    run = "outputs/study/runs/ipo/seed_0"
    write_run(shell, 0)
    code, out, err = shell.run("replay", run, "study", "--on", "local", "--json")
    assert code == 0, err
    assert json.loads(out)["num_tokens"] == 120


def test_parts_with_other_columns_are_refused_with_what_helps(shell: Shell) -> None:
    (shell.folder / "other.csv").write_text("q,p\n-1,-2\n")
    code, _, err = replay(shell, "other.csv", "--on", "local")
    assert code == 1
    assert "different columns don't merge" in err.splitlines()[-2]
    assert "without --on" in err.splitlines()[-1]


def test_jobs_count_files_anew_that_have_changed(shell: Shell) -> None:
    assert replay(shell, "--on", "local", "--out", "jobs")[0] == 0
    with (shell.folder / "tokens.csv").open("a") as file:
        file.write("-1,-2,100\n")
    code, out, err = replay(shell, "--on", "local", "--json", "--out", "jobs")
    assert code == 0, err
    assert json.loads(out)["num_tokens"] == 201


def test_jobs_read_tables_with_columns_of_any_name(shell: Shell) -> None:
    table = pa.table({"p": [-1.0, -2.0], "q": [-1.0, -1.5], "sequence": [0, 1]})
    pq.write_table(table, shell.folder / "more.parquet")
    code, out, err = replay(shell, "more.parquet", "--on", "local", "--json")
    assert code == 0, err
    assert json.loads(out)["num_tokens"] == 202
