from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.differ import find_differences
from analysis.foreign import ArmSource, ComparisonSpec, load_runs
from analysis.runs import RunState
from harness.errors import UsageError
from harness.records.model import AnalysisSpec
from tests.analysis.foreign_runs import EFFECTIVE_KEY, prime_rl_run

ANALYSIS = AnalysisSpec(last_steps=20, baseline_steps=(5, 15), collapse_window=10)
SPEC = ComparisonSpec(baseline="ipo", analysis=ANALYSIS)
ICEPOP = {"type": "icepop", "ratio_low": 0.2, "ratio_high": 5.0}


@pytest.fixture
def sources(tmp_path: Path) -> list[ArmSource]:
    """Two arms of three runs each."""
    found = []
    for seed in (3, 4, 5):
        ipo = prime_rl_run(tmp_path / f"ipo_{seed}", seed=seed)
        icepop = prime_rl_run(tmp_path / f"icepop_{seed}", seed=seed, loss=ICEPOP, level=0.6)
        found += [ArmSource("ipo", str(ipo)), ArmSource("icepop", str(icepop))]
    return found


def test_runs_become_arms_with_the_seeds_and_losses_of_their_configs(
    sources: list[ArmSource],
) -> None:
    sweep = load_runs(sources, SPEC)
    assert [run.run_id for run in sweep.runs] == [
        f"{arm}/seed_{seed}" for arm in ("ipo", "icepop") for seed in (3, 4, 5)
    ]
    assert {run.state for run in sweep.runs} == {RunState.DONE}
    assert sweep.plan.arm("icepop").loss == ICEPOP
    assert [item.key for item in sweep.plan.arm("icepop").differs] == [
        "eps",
        "ratio_high",
        "ratio_low",
        "type",
    ]
    assert sweep.notices == ()
    assert sweep.runs[0].keys.keys["solve_rate"] == "train/agg/all/agent/reward/mean"
    assert sweep.runs[0].time.wall_s == 590.0


def test_only_the_loss_may_differ_and_anything_else_is_marked(sources: list[ArmSource]) -> None:
    found = {item.key: item for item in find_differences(load_runs(sources, SPEC)).differences}
    assert found["trainer.loss.type"].is_declared
    assert found["trainer.loss.type"].values == {"ipo": ("ipo",), "icepop": ("icepop",)}
    assert all(item.is_declared for item in found.values())


def test_another_batch_size_in_one_arm_is_marked_and_so_is_one_within_an_arm(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    other = prime_rl_run(tmp_path / "other", seed=6, extra={"batch_size": 64})
    sweep = load_runs([*sources, ArmSource("ipo", str(other))], SPEC)
    [item] = [i for i in find_differences(sweep).differences if not i.is_declared]
    assert item.key == "trainer.batch_size"
    assert item.values["64"] == ("ipo/seed_6",)
    allowed = replace(SPEC, may_differ=("trainer.batch_size",))
    sweep = load_runs([*sources, ArmSource("ipo", str(other))], allowed)
    assert [i.key for i in find_differences(sweep).differences if not i.is_declared] == [
        "trainer.batch_size"
    ], "within an arm nothing may differ"


def test_a_loss_that_differs_within_an_arm_is_marked(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    other = prime_rl_run(tmp_path / "other", seed=6, loss={"type": "ipo", "eps": 0.1})
    sweep = load_runs([*sources, ArmSource("ipo", str(other))], SPEC)
    undeclared = {i.key for i in find_differences(sweep).differences if not i.is_declared}
    assert "trainer.loss.eps" in undeclared


def test_runs_without_a_seed_in_their_config_are_numbered_by_their_place(tmp_path: Path) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text('{"step": 1, "mismatch_kl": 0.1}\n')
    (tmp_path / "b.jsonl").write_text('{"step": 1, "mismatch_kl": 0.2}\n')
    (tmp_path / "c.jsonl").write_text('{"step": 1, "mismatch_kl": 0.3}\n')
    named = [("x", "a"), ("y", "b"), ("x", "c")]
    sweep = load_runs(
        [ArmSource(arm, str(tmp_path / f"{name}.jsonl")) for arm, name in named],
        replace(SPEC, baseline="x"),
    )
    assert [run.run_id for run in sweep.runs] == ["x/seed_0", "x/seed_1", "y/seed_0"]


def test_a_run_that_ends_before_its_goal_is_unfinished_and_one_at_its_goal_is_done(
    tmp_path: Path,
) -> None:
    short = prime_rl_run(tmp_path / "short", seed=0, num_steps=30)
    whole = prime_rl_run(tmp_path / "whole", seed=1)
    sweep = load_runs([ArmSource("ipo", str(whole)), ArmSource("b", str(short))], SPEC)
    assert [run.state for run in sweep.runs] == [RunState.DONE, RunState.UNFINISHED]
    all_short = load_runs(
        [ArmSource("ipo", str(whole)), ArmSource("b", str(short))], replace(SPEC, max_steps=30)
    )
    assert {run.state for run in all_short.runs} == {RunState.DONE}


def test_runs_whose_goal_nobody_knows_count_as_finished_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    for name, last in (("a", 30), ("b", 40)):
        rows = [f'{{"step": {step}, "mismatch_kl": 0.1}}\n' for step in range(1, last + 1)]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    pairs = [ArmSource(name, str(tmp_path / f"{name}.jsonl")) for name in ("a", "b")]
    [notice] = load_runs(pairs, replace(SPEC, baseline="a")).notices
    assert notice.kind == "unknown_length"
    assert "a/seed_0 30, b/seed_0 40" in notice.message


def test_one_run_under_two_names_is_refused_also_through_a_link(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(sources[0].source)
    with pytest.raises(UsageError, match="are the same run"):
        load_runs([*sources, ArmSource("icepop", str(link))], SPEC)


def test_a_copy_of_a_run_is_no_other_seed(sources: list[ArmSource], tmp_path: Path) -> None:
    copy = shutil.copytree(sources[0].source, tmp_path / "copy")
    with pytest.raises(UsageError, match="are the same run") as caught:
        load_runs([*sources, ArmSource("ipo", str(copy))], SPEC)
    assert f"`{copy}/metrics.jsonl` hold the same" in caught.value.hint


def test_a_key_that_no_run_logged_is_refused_and_one_that_some_lack_is_named(
    sources: list[ArmSource],
) -> None:
    with pytest.raises(UsageError, match="--key entropy=entropy/al/mean: no run") as caught:
        load_runs(sources, replace(SPEC, metrics_keys={"entropy": "entropy/al/mean"}))
    assert "`entropy/all/mean`" in caught.value.hint
    keys = {"solve_rate": EFFECTIVE_KEY}
    lacking = load_runs([*sources, _effective(sources)], replace(SPEC, metrics_keys=keys)).runs
    assert [bool(run.keys.problems) for run in lacking] == [True] * 6 + [False]


def _effective(sources: list[ArmSource]) -> ArmSource:
    folder = Path(sources[0].source).with_name("effective")
    return ArmSource("effective", str(prime_rl_run(folder, rate_key=EFFECTIVE_KEY, level=0.5)))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ('{"step": 1.5, "solve_rate": 0.5}\n', "1 of 1 rows of `{path}` have no whole step"),
        ('{"step": 1, "solve_rate": "half"}\n', "`{path}` holds no number in 1 rows"),
        ('{"step": 1, "acc": 0.5}\n', "nobody knows the keys of `{path}` (`acc`)"),
        ("", "`{path}` holds no rows"),
    ],
)
def test_a_run_without_a_metric_says_why(
    sources: list[ArmSource], tmp_path: Path, rows: str, problem: str
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(rows)
    runs = load_runs([*sources, ArmSource("odd", str(path))], SPEC).runs
    [said] = runs[-1].problems
    assert said.startswith("no metric was read: ")
    assert problem.format(path=path) in said


def test_pairs_by_place_and_runs_without_a_partner_are_named(tmp_path: Path) -> None:
    pairs = []
    for arm, num_runs in (("ipo", 3), ("icepop", 2)):
        for place in range(num_runs):
            path = tmp_path / f"{arm}_{place}.jsonl"
            rows = [
                f'{{"step": {step}, "solve_rate": 0.{place}{num_runs}}}\n' for step in range(30)
            ]
            path.write_text("".join(rows))
            pairs.append(ArmSource(arm, str(path)))
    notices = {n.kind: n.message for n in load_runs(pairs, replace(SPEC, pairing="seed")).notices}
    assert notices.keys() == {"paired_by_place", "unpaired"}
    assert notices["unpaired"].endswith(": ipo/seed_2")
    assert load_runs(pairs, SPEC).notices == ()


def test_a_pattern_stands_for_every_run_that_matches(tmp_path: Path) -> None:
    for seed in (0, 1):
        prime_rl_run(tmp_path / f"ipo_{seed}", seed=seed)
        prime_rl_run(tmp_path / f"none_{seed}", seed=seed, loss={"type": "none"}, level=0.6)
    patterns = [ArmSource("ipo", f"{tmp_path}/ipo_*"), ArmSource("none", f"{tmp_path}/none_?")]
    assert [run.run_id for run in load_runs(patterns, SPEC).runs] == [
        "ipo/seed_0",
        "ipo/seed_1",
        "none/seed_0",
        "none/seed_1",
    ]
    with pytest.raises(UsageError, match="no path matches"):
        load_runs([ArmSource("ipo", f"{tmp_path}/kpop_*")], SPEC)


def test_an_empty_and_a_binary_run_are_named_and_the_other_arms_stay(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
    empty.write_bytes(b"")
    binary.write_bytes(bytes(range(256)) * 10)
    more = [ArmSource("empty", f"jsonl:{empty}"), ArmSource("binary", f"jsonl:{binary}")]
    sweep = load_runs([*sources, *more], SPEC)
    states = {run.run_id: run.state for run in sweep.runs}
    assert states["ipo/seed_3"] is RunState.DONE
    messages = " ".join(notice.message for notice in sweep.notices)
    assert "empty/seed_0: no metric was read" in messages
    assert "binary/seed_0" in messages


@pytest.mark.parametrize(
    ("arms", "spec", "message"),
    [
        (("ipo", "icepop"), replace(SPEC, baseline="icepo"), "no such arm"),
        (("ipo",), SPEC, "one arm only"),
        (("ipo", "<b>"), SPEC, "no name of an arm"),
    ],
)
def test_arms_that_can_t_be_compared_are_refused_before_anything_is_read(
    arms: tuple[str, ...], spec: ComparisonSpec, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_runs([ArmSource(arm, "nowhere") for arm in arms], spec)


def test_two_definitions_of_the_solve_rate_are_kept_apart_by_name(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    other = prime_rl_run(tmp_path / "other", seed=6, rate_key=EFFECTIVE_KEY)
    sweep = load_runs([*sources, ArmSource("ipo", str(other))], SPEC)
    definitions = {run.run_id: run.keys.definitions["solve_rate"] for run in sweep.runs}
    assert definitions["ipo/seed_6"] == "effective"
    assert definitions["ipo/seed_3"] == ""


def test_seeds_pair_runs_only_where_every_arm_names_them_or_none_does(
    sources: list[ArmSource], tmp_path: Path
) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text('{"step": 1, "mismatch_kl": 0.1}\n')
    mixed = [*sources, ArmSource("kpop", str(table))]
    with pytest.raises(UsageError, match="the configs of `kpop`"):
        load_runs(mixed, replace(SPEC, pairing="seed"))
    assert load_runs(mixed, SPEC).runs[-1].run_id == "kpop/seed_0"
