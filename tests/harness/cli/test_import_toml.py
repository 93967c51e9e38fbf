"""harness import-toml, on a folder like prime-rl's own: one base, one overlay per loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import run_command
from harness.config.conf_dir import load_conf
from harness.records.model import CodeRecord
from harness.resources import CONF_DIR
from harness.sweep.plan import build_plan
from harness.sweep.spec import load_sweep
from tests.harness.trainers.prime_rl.fake.checkout import make_checkout

BASE = """\
max_steps = 40
[model]
name = "org/model"
[orchestrator]
batch_size = 32
group_size = 8
[[orchestrator.train.source]]
name = "words"
[orchestrator.train.source.env.taskset]
id = "words"
[inference]
"""
IPO = '[trainer.loss]\ntype = "ipo"\neps = 0.3\n'
ICEPOP = '[trainer.loss]\ntype = "icepop"\nratio_low = 0.2\nratio_high = 5.0\n'
FILES = ["ablation/base.toml", "ablation/ipo.toml", "ablation/icepop.toml"]
RELATIVE = (
    "note: the path ablation/base.toml is relative to the folder that harness is called in:"
    " keep to it, or make it absolute"
)
CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `ablation/` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ablation").mkdir()
    for path, text in zip(FILES, (BASE, IPO, ICEPOP), strict=True):
        Path(path).write_text(text)
    return tmp_path


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_sweep_goes_to_stdout_and_what_people_must_know_to_stderr(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(folder)
    assert run_command(["import-toml", *FILES, "--seeds", "2", "--name", "words"]) == 0
    out, err = capsys.readouterr()
    assert 'question: "Which loss holds up on words?"\n' in out
    assert "baseline: ipo\n" in out
    assert "seeds: [0, 1]\n" in out
    assert err.splitlines() == [RELATIVE]
    assert files_below(folder) == before


def test_the_sweep_is_written_where_it_was_asked_for_and_the_next_command_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["import-toml", *FILES])
    text = capsys.readouterr().out
    assert run_command(["import-toml", *FILES, "--to", "mine.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        RELATIVE,
        "wrote mine.yaml; next: harness plan mine.yaml trainer.checkout=DIR",
    ]
    assert Path("mine.yaml").read_text() == text


def test_the_imported_sweep_plans_and_its_arms_differ_in_the_loss_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_RL_CHECKOUT", str(make_checkout(folder / "checkout", git=False)))
    assert run_command(["import-toml", *FILES, "--to", "mine.yaml"]) == 0
    plan = build_plan(load_sweep(Path("mine.yaml")), load_conf((CONF_DIR,)), (), CODE)
    assert len(plan.record.runs) == 6
    assert {d.key.split(".")[0] for arm in plan.record.arms for d in arm.differs} == {"loss"}
    assert {run.max_steps for run in plan.record.runs} == {40}
    config = plan.configs["ipo/seed_0"]
    assert (config["task"]["name"], config["model"]["name"]) == ("words", "org/model")
    assert config["trainer"]["native"]["orchestrator"]["batch_size"] == 32
    assert "loss" not in config["trainer"]["native"].get("trainer", {})


def test_notes_name_what_the_harness_sets_instead_and_what_the_loss_replaces(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(FILES[0]).write_text(BASE + '[trainer.loss]\ntype = "ipo"\n')
    Path(FILES[1]).write_text(IPO + '[slurm]\njob_name = "x"\n')
    assert run_command(["import-toml", *FILES[:2]]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "note: loss knobs of ablation/base.toml, replaced by each arm's loss:"
        " trainer.loss.type='ipo'",
        "note: set by the harness instead of ipo.toml: slurm.job_name",
        RELATIVE,
    ]


@pytest.mark.parametrize(
    ("overlay", "error", "hint"),
    [
        ("[trainer.loss\n", "ablation/ipo.toml:1: not valid TOML", "check that line"),
        ("seq = [\n  1,\n  2\nx = 1\n", "ablation/ipo.toml:4: not valid TOML", "check that line"),
        ("max_steps = 40\n", "changes nothing of `ablation/base.toml`", "state its loss"),
        ('[trainer.loss]\ntype = "gspo"\n', "`trainer.loss.type` is 'gspo'", "`gspo: [loss=gspo]`"),
        ('[trainer.loss]\ntype = "icepopp"\n', "`trainer.loss.type` is 'icepopp'", "`icepop`"),
        (
            '[trainer.loss]\ntype = "ipo"\nipo_threshold = 0.1\n',
            "`trainer.loss.ipo_threshold` is a key that prime-rl renamed or dropped",
            "eps",
        ),
        (
            '[trainer.loss]\ntype = "ipo"\nepss = 0.1\n',
            "`ablation/ipo.toml`: loss `ipo` has no knob `loss.epss`",
            "`eps`",
        ),
        (
            IPO + "[orchestrator]\nbatch_size = 64\n",
            "`orchestrator.batch_size` differs from `ablation/base.toml`",
            "move it to the base",
        ),
        ("max_steps = 50\n" + IPO, "`max_steps` differs from `ablation/base.toml`", "by hand"),
        (ICEPOP, "`ablation/ipo.toml` and `ablation/icepop.toml` state the same loss", "leave"),
    ],
)
def test_a_bad_overlay_is_one_error_with_a_hint_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], overlay: str, error: str, hint: str
) -> None:
    Path(FILES[1]).write_text(overlay)
    _expect_refusal(folder, capsys, [*FILES, "--to", "mine.yaml"], error, hint)


def test_a_loss_in_the_base_that_another_type_would_inherit_from_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(FILES[0]).write_text(BASE + IPO)
    error = "`ablation/icepop.toml` with `ablation/base.toml`: loss `icepop` has no knob `loss.eps`"
    hint = "take `[trainer.loss]` out of the base"
    _expect_refusal(folder, capsys, [FILES[0], FILES[2], "--to", "mine.yaml"], error, hint)


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ([FILES[0]], "the following arguments are required: OVERLAY", "--help"),
        (["nope.toml", *FILES[1:]], "`nope.toml`", ""),
        ([*FILES, "ablation/nope.toml"], "`ablation/nope.toml`", ""),
        ([FILES[0], "ablation"], "`ablation` is a folder, want one of prime-rl's files", "files"),
        (["ablation", FILES[1]], "`ablation` is a folder, want one of prime-rl's files", "files"),
        ([*FILES, "--to", "ablation/base.toml"], "a sweep is a .yaml file", ".yaml"),
        ([*FILES, "--to", "nowhere/mine.yaml"], "the folder `nowhere` does not exist", "make it"),
        ([*FILES, "--to", "a b.yaml"], "'a b' can't be the name of a sweep", "letters"),
        ([*FILES, "--to", "old.yaml"], "`old.yaml` exists", "another name"),
        ([*FILES, "--seeds", "0"], "'0' is not a whole number above 0", ""),
        ([*FILES, "--seeds", "5000"], "5000 seeds: want 1 to 1000", ""),
        ([*FILES, "--name", " "], "--name is empty", ""),
        ([*FILES, "--too", "x"], "there is no option `--too`", "`--to`"),
    ],
)
def test_a_command_that_can_t_be_carried_out_is_one_error_with_a_hint(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, hint: str
) -> None:
    Path("old.yaml").write_text("mine\n")
    _expect_refusal(folder, capsys, arguments, error, hint)
    assert Path("old.yaml").read_text() == "mine\n"


def _expect_refusal(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, hint: str
) -> None:
    before = files_below(folder)
    assert run_command(["import-toml", *arguments]) == 2
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert files_below(folder) == before
