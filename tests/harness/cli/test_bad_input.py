from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import print_error, run_command
from harness.errors import UsageError

SWEEP = """
question: q
baseline: ipo
seeds: [0]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]
arms:
  ipo: [loss=ipo]
  wide: [loss=ipo, loss.eps=0.5]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with one good sweep."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "study.yaml").write_text(SWEEP)
    return tmp_path


def files_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def expect_refusal(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, hint: str
) -> None:
    before = files_below(folder)
    assert run_command(arguments) == 2
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert output.out == ""
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert files_below(folder) == before


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["studdy"], "there is no sweep `studdy`", "`study`"),
        (["sweeps/studdy.yaml"], "`sweeps/studdy.yaml` does not exist", "`sweeps/study.yaml`"),
        (["study", "loss.esp=1"], "unknown key `loss.esp`", "`eps`"),
        (["study", "los=ipo"], "unknown key `los`", "`loss`"),
        (["study", "trainer=bultin"], "there is no trainer `bultin`", "`builtin`"),
        (["study", "overlay=[fast]"], "there is no overlay `fast`", ""),
        (["study", "max_steps=-3"], "`max_steps` is -3", "at least 1"),
        (["study", "max_steps=1e30"], "`max_steps` is 1e+30, want a whole number", ""),
        (["study", "+loss.x=1"], "adds or deletes a key", ""),
        (["study", "loss"], "override `loss` has no `=`", "key=value"),
        (["study", "--conf", "nowhere"], "`nowhere` is not a folder", ""),
        (["study", "--as", "a b"], "'a b' can't be the name of a sweep", ""),
        (["study", "--as", "../x"], "'../x' can't be the name of a sweep", ""),
        (["study", "trainer.native.x=1"], "changes what the runs of `study` compute", "--as"),
        (["study", "--jsn"], "there is no option `--jsn`", ""),
        (["study.yaml"], "`study.yaml` does not exist", "`sweeps/study.yaml`"),
        (["s" * 300], "there is no sweep", "`study`"),
        (
            ["study", "trainer.metrics_keys={stepp: s}"],
            "there is no metric `stepp`",
            "did you mean `step`?",
        ),
    ],
)
def test_planning_and_running_refuse_mistakes_and_write_nothing(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    arguments: list[str],
    error: str,
    hint: str,
) -> None:
    expect_refusal(folder, capsys, [verb, *arguments], error, hint)


@pytest.mark.parametrize(
    ("old", "new", "error", "hint"),
    [
        ("baseline: ipo", "baseline: none", "the baseline `none` is not an arm", "ipo"),
        (
            "[loss=ipo, loss.eps=0.5]",
            "[loss=ipo, max_steps=3]",
            "in more than `loss`",
            "may_differ",
        ),
        ("[loss=ipo, loss.eps=0.5]", "[loss=ipo]", "compute the same", ""),
        ("question: q", "question: [q", "study.yaml:3: not valid YAML", "line"),
        ("seeds: [0]", "seeds: [0, 0]", "the seed 0 stands twice", ""),
        ("seeds: [0]", "seeds: [-1]", "`seeds` is -1", ""),
        ("arms:", "arms: {}\nx:", "unknown key `x`", ""),
        ('"trainer.argv=[train]"', "\"trainer.argv=['{sed}']\"", "{sed}", "`seed`"),
    ],
)
def test_a_broken_sweep_file_is_refused_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, error: str, hint: str
) -> None:
    assert old in SWEEP
    (folder / "sweeps" / "study.yaml").write_text(SWEEP.replace(old, new, 1))
    expect_refusal(folder, capsys, ["run", "study"], error, hint)


@pytest.mark.parametrize("verb", ["status", "report", "cancel", "clean"])
def test_verbs_on_a_sweep_that_has_not_run_say_how_to_run_it(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    expect_refusal(folder, capsys, [verb, "study"], "has not been run", "harness run study")
    expect_refusal(folder, capsys, [verb, "studdy"], "there is no sweep `studdy`", "")


@pytest.mark.parametrize("verb", ["rnu", "--verison"])
def test_an_unknown_verb_or_option_hints_at_the_near_miss(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    hint = {"rnu": "`run`", "--verison": ""}[verb]
    expect_refusal(folder, capsys, [verb], f"`{verb}`", hint)


def test_a_missing_argument_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = "the following arguments are required: SWEEP"
    expect_refusal(folder, capsys, ["plan"], error, "harness plan --help")
    assert run_command(["plan"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {error}"


def test_a_usage_error_without_a_hint_of_its_own_points_to_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verb, hint in [
        ("run", "hint: `harness run --help` tells what it takes"),
        ("rnu", "hint: `harness --help` lists the verbs"),
    ]:
        print_error(UsageError("the sweep holds nothing"), verb=verb)
        assert capsys.readouterr().err.splitlines() == ["error: the sweep holds nothing", hint]


def test_an_error_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(UsageError("a \x1b[31mred\x1b[0m\n key\x07", "\x1bc"))
    assert capsys.readouterr().err == "error: a red key\\x07\nhint: \\x1bc\n"


def test_a_path_that_does_not_exist_is_never_taken_for_a_sweep_of_that_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "outputs" / "study").mkdir(parents=True)
    (folder / "outputs" / "study" / "plan.json").write_text("{}")
    for verb in ("clean", "status", "cancel", "report"):
        error = "`/nonexist/zzz/study` does not exist"
        expect_refusal(folder, capsys, [verb, "/nonexist/zzz/study"], error, "`study`")


def test_an_output_root_that_is_a_file_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "blocked").write_text("")
    monkeypatch.setenv("HARNESS_OUTPUTS", str(folder / "blocked"))
    expect_refusal(folder, capsys, ["run", "study"], "can't be written", "HARNESS_OUTPUTS")


@pytest.mark.parametrize("root", ["a:b", "o" * 300])
def test_an_output_root_that_no_code_can_run_from_is_refused(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    root: str,
) -> None:
    monkeypatch.setenv("HARNESS_OUTPUTS", root)
    error = {"a:b": "path with `:`"}.get(root, "File name too long")
    for verb in ("run", "plan"):
        expect_refusal(folder, capsys, [verb, "study"], error, "HARNESS_OUTPUTS")


def test_an_output_root_that_nobody_may_write_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_OUTPUTS", "/proc/self/outputs")
    expect_refusal(folder, capsys, ["run", "study"], "can't be written", "HARNESS_OUTPUTS")


def test_an_option_in_two_conf_folders_is_refused_naming_both(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine" / "loss").mkdir(parents=True)
    (folder / "mine" / "loss" / "ipo.yaml").write_text("type: ipo\n")
    expect_refusal(
        folder, capsys, ["run", "study", "--conf", "mine"], "mine/loss/ipo.yaml", "rename"
    )


def test_an_overlay_in_the_wrong_package_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine" / "overlay").mkdir(parents=True)
    (folder / "mine" / "overlay" / "slow.yaml").write_text("trainer: {native: {lr: 1}}\n")
    expect_refusal(
        folder, capsys, ["run", "study", "--conf", "mine"], "no package line", "@package _global_"
    )


def test_help_goes_to_stdout_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["run", "--help"]):
        assert run_command(arguments) == 0
        output = capsys.readouterr()
        assert "usage: harness" in output.out
        assert output.err == ""
