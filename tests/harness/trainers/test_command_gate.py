from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run_command
from harness.config.check import check_group
from harness.errors import UsageError
from harness.records.model import KeyDifference
from harness.trainers.command import TRAINER, CommandConfig
from harness.trainers.interface import Candidate, RunName, Verdict

TRL = """
question: Does a wider upper clip help?
baseline: grpo
seeds: [7]
common:
  - trainer=trl
  - loss=external
  - task=external
  - model=external
  - trainer.native.model_name_or_path=Qwen/Qwen3-0.6B
  - trainer.native.dataset_name=my/prompts
may_differ: [loss, trainer.native.loss_type, trainer.native.epsilon_high]
arms:
  grpo: [loss.name=grpo]
  wide: [loss.name=grpo, "loss.options={KNOB: 0.28}"]
"""
VERL = """
question: Does DPPO's mask help?
baseline: vanilla
seeds: [7]
common:
  - trainer=verl
  - loss=external
  - task=external
  - model=external
  - trainer.native.actor_rollout_ref.model.path=Qwen/Qwen3-0.6B
  - trainer.native.data.train_files=/data/train.parquet
  - trainer.native.data.val_files=/data/val.parquet
may_differ: [loss, trainer.native.actor_rollout_ref.actor]
arms:
  vanilla: [loss.name=vanilla]
  dppo_tv: [loss.name=dppo_tv, "loss.options={KNOB: 0.15, clip_ratio_high: 0.15}"]
"""

GENERIC = "remove one of them, or check that its overrides do what they should"


def make_candidate(
    arm: str, loss: Mapping[str, Any], max_steps: int = 400, **trainer: Any
) -> Candidate:
    config = {
        "loss": dict(loss),
        "task": {"type": "external", "name": "external", "options": {}},
        "trainer": check_group(CommandConfig, trainer, "trainer", lambda key: "test"),
        "seed": 3,
        "max_steps": max_steps,
    }
    return Candidate(RunName("toy", arm, 3, arm * 4), config, max_steps)


def external(name: str = "grpo", **options: Any) -> dict[str, Any]:
    return {"type": "external", "name": name, "options": options}


def plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sweep: str
) -> tuple[int, str, list[str]]:
    """Return exit code, stdout and the lines of stderr of `harness plan`."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HARNESS_OUTPUTS", raising=False)
    (folder / "study.yaml").write_text(sweep)
    code = run_command(["plan", "./study.yaml"])
    output = capsys.readouterr()
    return code, output.out, output.err.splitlines()


def validate(*candidates: Candidate) -> Verdict:
    return TRAINER.validate(candidates, candidates[0].name.arm, ("loss",), lambda _a, _b: None)


def refusal(*candidates: Candidate) -> UsageError:
    with pytest.raises(UsageError) as raised:
        validate(*candidates)
    assert raised.value.hint is not None
    assert "\n" not in f"{raised.value.message}{raised.value.hint}"
    return raised.value


def rendered(render: str = "yaml", **native: Any) -> dict[str, Any]:
    return {"argv": ["train", "{native}"], "render": render, "native": native}


@pytest.mark.parametrize("render", ["yaml", "toml", "json", "hydra", "flags"])
def test_a_misspelt_knob_that_no_rendering_takes_over_is_refused(render: str) -> None:
    trainer = rendered(render, epsilon_high=0.2, beta=0.0, name="{arm}-s{seed}", out="{run_dir}")
    error = refusal(
        make_candidate("grpo", external(), **trainer),
        make_candidate("wide", external(epsilon_hihg=0.28), **trainer),
    )
    assert error.message == (
        "the arms `grpo` and `wide` are the same to the program: its arguments, variables and keys"
        " (`trainer.native`) are equal"
    )
    assert error.hint == (
        "nothing passes on `loss.options.epsilon_hihg` (meant for `trainer.native.epsilon_high`?):"
        " write `${loss.options.epsilon_hihg}` where `trainer.native` or `trainer.argv` is to take"
        " it over, or give the program all of it: `{config}`, in `trainer.env` for example"
    )


def test_losses_that_nothing_mentions_are_refused_by_their_type() -> None:
    error = refusal(
        make_candidate("ipo", {"type": "ipo", "eps": 0.3}, **rendered(lr=1e-6)),
        make_candidate("icepop", {"type": "icepop", "low": 0.2, "high": 5}, **rendered(lr=1e-6)),
    )
    assert "`ipo` and `icepop` are the same to the program" in error.message
    assert error.hint is not None
    assert error.hint.startswith("nothing passes on `loss.type`: write `${loss.type}` where")


def test_a_knob_near_one_that_another_arm_has_is_found() -> None:
    error = refusal(
        make_candidate("a", external(), **rendered(lr=1)),
        make_candidate("b", external(clip_hihg=0.28), **rendered(lr=1)),
        make_candidate("c", external(clip_high=0.28), **rendered(lr=0.28)),
    )
    assert error.hint is not None
    assert "`loss.options.clip_hihg` (or `loss.options.clip_high`?)" in error.hint


def test_many_lost_keys_are_counted() -> None:
    error = refusal(
        make_candidate("a", external("a"), **rendered(lr=1)),
        make_candidate("b", external("b", x=1, y=2, z=3), **rendered(lr=1)),
    )
    assert error.hint is not None
    assert error.hint.startswith(
        "nothing passes on `loss.name`, `loss.options.x`, `loss.options.y` and 1 more:"
    )


def test_arms_that_differ_in_what_leaves_no_trace_are_refused() -> None:
    error = refusal(
        make_candidate("a", external(), **rendered("flags", lr=1, bias=False)),
        make_candidate("b", external(), **rendered("flags", lr=1)),
    )
    assert error.hint == GENERIC


def test_neither_the_order_of_keys_nor_the_length_of_runs_tells_arms_apart() -> None:
    refusal(
        make_candidate("a", external("a"), 100, **rendered(x={"a": 1, "b": 2}, n="{max_steps}")),
        make_candidate("b", external("b"), 200, **rendered(n="{max_steps}", x={"b": 2, "a": 1})),
    )


@pytest.mark.parametrize(
    ("trainer", "other"),
    [
        (rendered(lr=1), rendered(lr=2)),
        (rendered(lr=1), {**rendered(lr=1), "argv": ["train", "{native}", "--wide"]}),
        (rendered(lr=1), {**rendered(lr=1), "env": {"WIDE": "1"}}),
        (rendered(lr=1), {**rendered(lr=1), "cwd": "wide"}),
        (rendered(lr=1), rendered("json", lr=1)),
    ],
    ids=["native", "argv", "env", "cwd", "render"],
)
def test_arms_that_the_program_tells_apart_are_accepted(
    trainer: dict[str, Any], other: dict[str, Any]
) -> None:
    verdict = validate(
        make_candidate("a", external("a"), **trainer),
        make_candidate("b", external("b"), **other),
    )
    assert (verdict.remarks, verdict.warnings) == ((), ())


@pytest.mark.parametrize(
    "trainer",
    [
        {**rendered(lr=1), "argv": ["train", "{native}", "--all={config}"]},
        {**rendered(lr=1), "env": {"CONFIG": "{config}"}},
        {**rendered(lr=1), "env": {"CONFIG": "{run_dir}/config.json"}},
        rendered(base={"files": ["{config}"]}),
    ],
    ids=["argv", "env", "run_dir", "native"],
)
def test_a_program_that_gets_the_config_sees_all_of_it(trainer: dict[str, Any]) -> None:
    verdict = validate(
        make_candidate("a", external("a"), **trainer),
        make_candidate("b", external("b", x=0.125), **trainer),
    )
    assert (verdict.remarks, verdict.warnings) == ((), ())


def test_a_literal_brace_gives_no_config() -> None:
    trainer = {**rendered(lr=1), "env": {"CONFIG": "{{config}}", "RUN": "{{run_dir}}/config.json"}}
    refusal(
        make_candidate("a", external("a"), **trainer),
        make_candidate("b", external("b"), **trainer),
    )


@pytest.mark.parametrize("word", ["train", "{trainer_dir}", "{arm}"])
def test_equal_commands_without_a_config_are_remarked_on(word: str) -> None:
    verdict = validate(
        make_candidate("a", external("a"), argv=["train", word]),
        make_candidate("b", external("b"), argv=["train", word]),
        make_candidate("c", external("c"), argv=["train", "c"]),
    )
    assert verdict.remarks == (
        "The command of `a`, `b` is the same, and passes neither {config} nor {native}: the program"
        " finds its arm in HARNESS_RUN_DIR/config.json.",
    )
    assert verdict.differs == {}


@pytest.mark.parametrize("word", ["{config}", "{run_dir}"])
def test_a_command_that_passes_the_config_or_its_folder_is_not_remarked_on(word: str) -> None:
    verdict = validate(
        make_candidate("a", external("a"), argv=["train", word]),
        make_candidate("b", external("b"), argv=["train", word]),
    )
    assert verdict == Verdict()
    verdict = validate(make_candidate("a", external("a"), argv=["train"]))
    assert verdict == Verdict()


def test_differences_are_in_the_programs_own_keys() -> None:
    verdict = validate(
        make_candidate("a", external("a"), **rendered(loss={"clip": 0.2}, n="{arm}", s="{seed}")),
        make_candidate("b", external("b"), **rendered(loss={"clip": 0.3}, n="{arm}", s="{seed}")),
        make_candidate("c", external("c"), **rendered(loss={}, n="{arm}-c", s="{seed}")),
        make_candidate("d", external("d"), argv=["{config}"]),
    )
    assert verdict.differs == {
        "a": (),
        "b": (KeyDifference("loss.clip", 0.2, 0.3),),
        "c": (KeyDifference("loss.clip", 0.2, None), KeyDifference("n", "{arm}", "{arm}-c")),
    }


def test_a_knob_whose_value_reaches_nothing_is_named_though_its_arm_differs_elsewhere() -> None:
    verdict = validate(
        make_candidate("a", external("a"), **rendered(mode="a", epsilon_high=0.2, batch=256)),
        make_candidate(
            "b", external("b", epsilon_hihg=5), **rendered(mode="b", epsilon_high=0.2, batch=256)
        ),
    )
    assert verdict.warnings == (
        "Nothing that the program is given holds the value of `loss.options.epsilon_hihg` (meant"
        " for `trainer.native.epsilon_high`?) in `b`.",
    )


@pytest.mark.parametrize("options", [{"x": 5}, {"x": [5, "b"]}, {"x": None}, {"x": {}}, {"x": "b"}])
def test_a_knob_whose_value_is_given_in_any_form_is_not_named(options: dict[str, Any]) -> None:
    native: dict[str, Any] = {"texts": ["eps-5", "a/b.json"], "none": None}
    verdict = validate(
        make_candidate("a", external("a"), **rendered()),
        make_candidate("b", external("b", **options), **rendered(**native)),
    )
    assert verdict.warnings == ()


def test_a_plan_with_a_misspelt_knob_of_trl_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = TRL.replace("KNOB", "epsilon_hihg")
    code, out, lines = plan(tmp_path, monkeypatch, capsys, sweep)
    assert (code, out, len(lines)) == (2, "", 2)
    assert lines[0].startswith("error: the arms `grpo` and `wide` are the same to the program")
    assert lines[1].startswith("hint: nothing passes on `loss.options.epsilon_hihg`")
    assert "(meant for `trainer.native.epsilon_high`?)" in lines[1]
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_plan_with_a_knob_that_trl_takes_over_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = TRL.replace("KNOB", "epsilon_high")
    code, out, lines = plan(tmp_path, monkeypatch, capsys, sweep)
    assert (code, lines) == (0, [])
    assert "note:" not in out


@pytest.mark.parametrize(("knob", "has_note"), [("clip_ratio_low", False), ("clip_low", True)])
def test_a_plan_names_a_knob_of_verl_that_nothing_takes_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    knob: str,
    has_note: bool,
) -> None:
    sweep = VERL.replace("KNOB: 0.15", f"{knob}: 0.125")
    code, out, lines = plan(tmp_path, monkeypatch, capsys, sweep)
    assert (code, lines) == (0, [])
    found = "holds the value of `loss.options.clip_low`" in " ".join(out.split())
    assert found is has_note
