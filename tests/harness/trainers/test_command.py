from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from analysis.load import load_sweep
from analysis.runs import RunState
from harness.config.check import check_group
from harness.errors import UsageError
from harness.records.layout import RunPaths
from harness.trainers.command import CommandConfig, check_command, command_files, command_line
from harness.trainers.interface import Launch, RunName, Start
from harness.trainers.registry import TRAINERS, load_trainer

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

RUN = RunPaths(Path("/out/toy/runs/ipo/seed_3"))
NAME = RunName("toy", "ipo", 3, "0" * 16)


def make_config(**trainer: Any) -> dict[str, Any]:
    data = {"argv": ["train"], **trainer}
    return {"trainer": check_group(CommandConfig, data, "trainer", lambda key: "test"), "seed": 3}


def make_launch(**trainer: Any) -> Launch:
    config = make_config(**trainer)
    return Launch(RUN, config, NAME, attempt=2, max_steps=400, inputs_dir=RUN.attempt(2).inputs_dir)


def test_every_placeholder_is_filled_in() -> None:
    argv = ["{python}", "--config={config}", "{run_dir}", "{trainer_dir}/x", "{shared_dir}"]
    argv += ["{sweep}-{arm}-{seed}", "{attempt}", "{max_steps}"]
    assert command_line(make_launch(argv=argv)).argv == (
        sys.executable,
        "--config=/out/toy/runs/ipo/seed_3/config.json",
        "/out/toy/runs/ipo/seed_3",
        "/out/toy/runs/ipo/seed_3/trainer/x",
        "/out/toy/shared",
        "toy-ipo-3",
        "2",
        "400",
    )


def test_environment_and_folder_are_filled_in_too() -> None:
    command = command_line(make_launch(env={"PRL_RUN_ID": "{sweep}-{arm}-{seed}"}, cwd="{run_dir}"))
    assert dict(command.env) == {"PRL_RUN_ID": "toy-ipo-3"}
    assert command.cwd == RUN.root
    assert command_line(make_launch()).cwd is None


def test_a_fork_is_told_its_start_and_other_runs_have_no_such_placeholder() -> None:
    launch = make_launch(argv=["--from={start_checkpoint}", "{start_step}"])
    fork = replace(launch, start=Start(Path("/out/parent/step_20"), 20))
    assert command_line(fork).argv == ("--from=/out/parent/step_20", "20")
    with pytest.raises(UsageError, match=r"unknown placeholder `\{start_checkpoint\}`"):
        command_line(launch)


def test_a_replicate_is_told_its_number_and_other_runs_a_zero() -> None:
    launch = make_launch(argv=["--replicate={replicate}"])
    again = replace(launch, config={**launch.config, "replicate": 2})
    assert command_line(launch).argv == ("--replicate=0",)
    assert command_line(again).argv == ("--replicate=2",)


def test_doubled_braces_are_literal() -> None:
    argv = ["--json={{}}", "{{seed}}", "{{{seed}}}"]
    assert command_line(make_launch(argv=argv)).argv == ("--json={}", "{seed}", "{3}")


def test_braces_in_a_value_mean_nothing() -> None:
    paths = RunPaths(Path("/out/{seed}/toy/runs/ipo/seed_3"))
    config = make_config(argv=["{run_dir}"])
    inputs_dir = paths.attempt(1).inputs_dir
    launch = Launch(paths, config, NAME, attempt=1, max_steps=1, inputs_dir=inputs_dir)
    assert command_line(launch).argv == ("/out/{seed}/toy/runs/ipo/seed_3",)


def test_any_string_reaches_the_program_unharmed(make_sweep: MakeSweep) -> None:
    words = [
        "a b",
        "it's",
        '"',
        "$HOME `id` $(id)",
        "*",
        "",
        "-",
        "\\",
        "\n",
        "ü \U0001f600",
        "a;b",
    ]
    sweep = make_sweep({"words": ("prints_arguments", "METRICS", *words)})
    code, _, _ = sweep.start_runner("words", sweep.submit()).wait()
    assert code == 0
    assert json.loads(sweep.run("words").attempt(1).log.read_text()) == words


def test_native_keys_are_written_to_a_file_of_the_attempt(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "out" / "toy" / "runs" / "ipo" / "seed_3")
    config = make_config(
        argv=["train", "--config", "{native}"],
        env={"KEYS": "{native}"},
        render="yaml",
        native={
            "seed": "{seed}",
            "max_steps": "{max_steps}",
            "name": "{arm}-{attempt}",
            "dir": "{trainer_dir}",
        },
    )
    check_command(config)
    inputs_dir = run.attempt(2).inputs_dir
    launch = Launch(run, config, NAME, attempt=2, max_steps=400, inputs_dir=inputs_dir)
    command = command_line(launch)
    path = inputs_dir / "native.yaml"
    assert command.argv == ("train", "--config", str(path))
    assert dict(command.env) == {"KEYS": str(path)}
    assert yaml.safe_load(path.read_text()) == {
        "seed": 3,
        "max_steps": 400,
        "name": "ipo-2",
        "dir": str(run.trainer_dir),
    }
    assert [p.name for p in inputs_dir.iterdir()] == ["native.yaml"]


@pytest.mark.parametrize(
    ("render", "suffix"), [("yaml", "yaml"), ("toml", "toml"), ("json", "json")]
)
def test_a_file_is_called_by_its_format(tmp_path: Path, render: str, suffix: str) -> None:
    config = make_config(argv=["{native}"], render=render, native={"a": 1})
    launch = Launch(RUN, config, NAME, attempt=1, max_steps=1, inputs_dir=tmp_path)
    assert command_line(launch).argv == (str(tmp_path / f"native.{suffix}"),)


def test_native_keys_become_several_arguments() -> None:
    native = {"a": {"b": 1, "c": "{arm}"}, "seed": "{seed}"}
    argv = ["train", "{native}", "--last"]
    hydra = make_launch(argv=argv, render="hydra", native=native)
    assert command_line(hydra).argv == ("train", "a.b=1", "a.c='ipo'", "seed=3", "--last")
    flags = {"bools": "bare", "joined_by": "-", "dashes": False}
    given = make_launch(argv=argv, render="flags", flags=flags, native=native)
    assert command_line(given).argv == (
        *("train", "--a-b", "1", "--a-c", "ipo", "--seed", "3", "--last"),
    )
    nothing = make_launch(argv=argv, render="hydra")
    assert command_line(nothing).argv == ("train", "--last")


def test_a_program_reads_its_own_keys_and_its_metrics_are_read(make_sweep: MakeSweep) -> None:
    native = {
        "max_steps": "{max_steps}",
        "first_step": 1,
        "kl": 0.5,
        "exit_code": 3,
        "text": "it's ${{x}}",
        "metrics": "{trainer_dir}/metrics/attempt_{attempt}/{sweep}/{arm}-{seed}.jsonl",
    }
    trainer = {"render": "yaml", "native": native, "metrics": "metrics", "metrics_format": "verl"}
    argv = ("reads_native", "{native}")
    sweep = make_sweep({"keys": argv}, max_steps=2, trainer=trainer)
    assert sweep.start_runner("keys", sweep.submit()).wait()[0] == 1
    goes_on = {**trainer, "native": {**native, "first_step": 2, "kl": 0.25, "exit_code": 0}}
    sweep.replan({"keys": argv}, max_steps=4, trainer=goes_on)
    assert sweep.start_runner("keys", sweep.submit()).wait()[0] == 0

    run = sweep.run("keys")
    said = [json.loads(run.attempt(k).log.read_text()) for k in (1, 2)]
    assert [one["keys"]["text"] for one in said] == ["it's ${x}", "it's ${x}"]
    assert [one["keys"]["max_steps"] for one in said] == [2, 4]
    assert [Path(one["file"]) for one in said] == [
        run.attempt(k).inputs_dir / "native.yaml" for k in (1, 2)
    ]
    assert [
        (sweep.exit("keys", k).first_step, sweep.exit("keys", k).last_step) for k in (1, 2)
    ] == [
        (1, 2),
        (2, 4),
    ]
    heartbeat = sweep.heartbeat("keys", 2)
    assert heartbeat is not None
    assert heartbeat.mismatch_kl == 1.0
    loaded = load_sweep(sweep.paths.root)
    (read,) = loaded.runs
    assert read.state is RunState.DONE
    curve = read.curves["mismatch_kl"]
    assert curve.steps.tolist() == [1, 2, 3, 4]
    assert curve.values.tolist() == [0.5, 0.5, 0.75, 1.0]
    assert [notice.kind for notice in loaded.notices] == ["superseded"]


@pytest.mark.parametrize(
    ("trainer", "error", "hint"),
    [
        ({"argv": []}, "`trainer.argv` is empty", "for example"),
        (
            {"argv": ["{python}", "{sed}"]},
            "`trainer.argv[1]` is '{sed}': unknown placeholder `{sed}`",
            "did you mean `seed`?; a literal brace is doubled: `{{sed}}`",
        ),
        ({"argv": ["{}"]}, "unknown placeholder `{}`", "`{{}}`"),
        ({"argv": ["a{"]}, "`trainer.argv[0]` is 'a{': single `{`", "write `{{`"),
        ({"argv": ["a}b"]}, "single `}`", "write `}}`"),
        ({"argv": ["a\0b"]}, "zero byte", ""),
        ({"cwd": "{home}"}, "`trainer.cwd` is '{home}': unknown placeholder", ""),
        ({"env": {"A": "{arms}"}}, "`trainer.env.A` is '{arms}'", "`arm`"),
        (
            {"env": {"WANDB_API_KEY": "x"}},
            "`trainer.env.WANDB_API_KEY` looks like a secret",
            "export",
        ),
        ({"env": {"HF_TOKEN": "x"}}, "looks like a secret", "export HF_TOKEN in the shell"),
        ({"env": {"db_password": "x"}}, "looks like a secret", "export"),
        ({"env": {"HARNESS_ATTEMPT": "9"}}, "the harness's own", ""),
        ({"env": {"A=B": "9"}}, "can't be the name of a variable", ""),
        ({"env": {"": "9"}}, "can't be the name of a variable", ""),
        ({"metrics": "/tmp/m.jsonl"}, "`trainer.metrics` is '/tmp/m.jsonl'", "{trainer_dir}"),
        ({"metrics": "../m.jsonl"}, "`trainer.metrics` is '../m.jsonl'", "{trainer_dir}"),
        ({"metrics": ""}, "`trainer.metrics` is ''", "{trainer_dir}"),
        ({"code_dir": "nowhere"}, "`trainer.code_dir` is 'nowhere', which is no folder", "folder"),
        ({"code_dir": ".", "cwd": "x"}, "`trainer.cwd` is 'x' beside `trainer.code_dir`", "drop"),
        ({"metrics_keys": {"stepp": "s"}}, "there is no metric `stepp`", "did you mean `step`?"),
        ({"metrics_keys": {"foo": "bar"}}, "`trainer.metrics_keys.foo`", "`mismatch_kl`"),
        ({"checkpoints": "a/../.."}, "`trainer.checkpoints` is 'a/../..'", "{trainer_dir}"),
        (
            {"argv": ["t", "{native}"]},
            "`trainer.argv[1]` is '{native}', but `trainer.render` is none",
            "yaml, toml, json, hydra, flags",
        ),
        ({"env": {"A": "{native}"}}, "`trainer.env.A` is '{native}', but", "yaml"),
        (
            {"render": "yaml", "native": {"a": 1}},
            "`trainer.render` is yaml, but `trainer.argv` or `trainer.env` has no {native}",
            "add an item {native}",
        ),
        ({"render": "hydra", "argv": ["t", "{{native}}"]}, "`trainer.argv` has no {native}", "add"),
        (
            {"render": "hydra", "argv": ["t", "--keys={native}"]},
            "`trainer.argv[1]` is '--keys={native}', but `trainer.render` hydra gives several",
            "an item of `trainer.argv` of its own",
        ),
        (
            {"render": "flags", "argv": ["{native}"], "env": {"A": "{native}"}},
            "`trainer.env.A` is '{native}'",
            "of its own",
        ),
        (
            {"render": "yaml", "argv": ["{native}"], "cwd": "{native}"},
            "`trainer.cwd` is '{native}': unknown placeholder",
            "",
        ),
        (
            {"render": "yaml", "argv": ["{native}"], "native": {"a": {"b": ["{sed}"]}}},
            "`trainer.native.a.b[0]` is '{sed}': unknown placeholder `{sed}`",
            "did you mean `seed`?",
        ),
        (
            {"render": "json", "argv": ["{native}"], "native": {"a": '{"b": 1}'}},
            "`trainer.native.a`",
            "doubled",
        ),
        (
            {"render": "toml", "argv": ["{native}"], "native": {"a": {"b": None}}},
            "`trainer.native.a.b` is null, which TOML can't say",
            "yaml or json",
        ),
    ],
)
def test_config_that_cannot_work_is_refused_when_planning(
    trainer: dict[str, Any], error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        check_command(make_config(**trainer))
    assert error in raised.value.message
    assert "\n" not in raised.value.message
    assert raised.value.hint
    assert hint in raised.value.hint


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "AUTHOR"])
def test_harmless_names_are_no_secrets(name: str) -> None:
    assert dict(command_line(make_launch(env={name: "1"})).env) == {name: "1"}


@pytest.mark.parametrize("trainer", [{"argv": [3]}, {"env": {"A": 1}}, {"metrics_format": "tsv"}])
def test_wrong_types_are_refused(trainer: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="trainer."):
        make_config(**trainer)


def test_files_stand_below_the_trainer_folder() -> None:
    keys = {"mismatch_kl": "kl"}
    files = command_files(
        make_config(
            metrics="logs/m.csv", metrics_format="csv", metrics_keys=keys, checkpoints="ckpt"
        ),
        NAME,
    )
    assert asdict(files) == {
        "metrics": "trainer/logs/m.csv",
        "metrics_format": "csv",
        "metrics_keys": keys,
        "tokens": None,
        "tokens_format": None,
        "checkpoints": "trainer/ckpt",
        "checkpoints_format": "step_folders",
        "logs": {},
    }
    assert command_files(make_config(), NAME).checkpoints is None


def test_known_metrics_may_have_keys_of_their_own() -> None:
    keys = {"step": "s", "tokens": "t", "mismatch_kl": "kl", "solve_rate": "reward"}
    config = make_config(metrics_keys=keys)
    check_command(config)
    assert command_files(config, NAME).metrics_keys == keys


def test_every_registered_trainer_loads_under_its_name() -> None:
    for name in TRAINERS:
        assert load_trainer(name).name == name


def test_unknown_trainer_is_refused_with_the_near_miss() -> None:
    with pytest.raises(UsageError, match="no trainer `comand`") as error:
        load_trainer("comand")
    assert error.value.hint == "did you mean `command`?"
