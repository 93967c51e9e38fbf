"""The shipped options for programs of others: what a sweep with them plans and starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config.compose import compose_all
from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides
from harness.errors import UsageError
from harness.records.layout import RunPaths
from harness.records.model import CodeRecord, KeyDifference
from harness.resources import CONF_DIR
from harness.sweep.plan import Plan, build_plan
from harness.sweep.spec import load_sweep
from harness.trainers.command import command_files, command_line
from harness.trainers.interface import Command, Launch, RunName

CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})

VERL = """
question: Does a wider upper clip help?
baseline: vanilla
seeds: [7]
common:
  - trainer=verl
  - loss=external
  - task=external
  - model=external
  - max_steps=300
  - trainer.native.actor_rollout_ref.model.path=Qwen/Qwen3-0.6B
  - trainer.native.data.train_files=/data/train.parquet
  - trainer.native.data.val_files=/data/val.parquet
may_differ: [loss, trainer.native.actor_rollout_ref.actor]
arms:
  vanilla: [loss.name=vanilla]
  dppo_tv: [loss.name=dppo_tv, "loss.options={clip_ratio_low: 0.15, clip_ratio_high: 0.15}"]
  long: [loss.name=vanilla, trainer.native.actor_rollout_ref.actor.ppo_mini_batch_size=128]
"""

TRL = """
question: Does a wider upper clip help?
baseline: dapo
seeds: [7]
common:
  - trainer=trl
  - loss=external
  - task=external
  - model=external
  - max_steps=300
  - trainer.native.model_name_or_path=Qwen/Qwen3-0.6B
  - trainer.native.dataset_name=my/prompts
may_differ: [loss, trainer.native.loss_type, trainer.native.epsilon_high]
arms:
  dapo: [loss.name=dapo]
  cispo: [loss.name=cispo, "loss.options={epsilon_high: 5.0}"]
"""


def make_plan(tmp_path: Path, sweep: str, *overrides: str) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(sweep)
    conf = load_conf((CONF_DIR,))
    return build_plan(load_sweep(path), conf, parse_overrides(overrides, "command line"), CODE)


def make_command(tmp_path: Path, plan: Plan, arm: str) -> tuple[Command, RunPaths]:
    paths = RunPaths(tmp_path / "study" / "runs" / arm / "seed_7")
    config = plan.configs[f"{arm}/seed_7"]
    launch = Launch(
        paths=paths,
        config=config,
        name=RunName("study", arm, 7, "0" * 16),
        attempt=2,
        max_steps=300,
        inputs_dir=paths.attempt(2).inputs_dir,
    )
    return command_line(launch), paths


def read_overrides(words: tuple[str, ...]) -> dict[str, object]:
    parsed = OverridesParser.create().parse_overrides(list(words))
    return {str(one.key_or_group): one.value() for one in parsed}


def test_verl_is_started_with_hydra_overrides(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, VERL)
    command, run = make_command(tmp_path, plan, "dppo_tv")
    assert command.argv[:3] == ("python", "-m", "verl.trainer.main_ppo")
    trainer_dir = str(run.trainer_dir)
    assert command.argv[3:] == (
        f"hydra.run.dir='{trainer_dir}/hydra'",
        "algorithm.adv_estimator='grpo'",
        "algorithm.rollout_correction.rollout_is=null",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
        "algorithm.rollout_correction.rollout_rs=null",
        "algorithm.rollout_correction.rollout_rs_threshold=null",
        "data.train_files='/data/train.parquet'",
        "data.val_files='/data/val.parquet'",
        "data.train_batch_size=256",
        "data.max_prompt_length=1024",
        "data.max_response_length=4096",
        "data.shuffle=true",
        "data.seed=7",
        "actor_rollout_ref.model.path='Qwen/Qwen3-0.6B'",
        "actor_rollout_ref.actor.policy_loss.loss_mode='dppo_tv'",
        "actor_rollout_ref.actor.clip_ratio_low=0.15",
        "actor_rollout_ref.actor.clip_ratio_high=0.15",
        "actor_rollout_ref.actor.clip_ratio_c=3.0",
        "actor_rollout_ref.actor.loss_agg_mode='token-mean'",
        "actor_rollout_ref.actor.ppo_mini_batch_size=256",
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
        "actor_rollout_ref.actor.data_loader_seed=7",
        "actor_rollout_ref.actor.optim.lr=1e-06",
        "actor_rollout_ref.rollout.name='vllm'",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.seed=7",
        "trainer.total_training_steps=300",
        "trainer.total_epochs=1000000",
        "trainer.project_name='study'",
        "trainer.experiment_name='dppo_tv-s7'",
        "trainer.logger=['console','file']",
        f"trainer.default_local_dir='{trainer_dir}/checkpoints'",
        "trainer.resume_mode='auto'",
        "trainer.save_freq=20",
        "trainer.max_actor_ckpt_to_keep=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.nnodes=1",
        "trainer.n_gpus_per_node=8",
    )
    assert read_overrides(command.argv[3:])["trainer.logger"] == ["console", "file"]
    assert dict(command.env) == {"VERL_FILE_LOGGER_ROOT": f"{trainer_dir}/metrics/attempt_2"}


def test_arms_of_verl_differ_in_the_keys_of_their_losses_alone(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, VERL)
    actor = "trainer.native.actor_rollout_ref.actor"
    _, dppo_tv, long = plan.record.arms
    assert dppo_tv.loss == {
        "type": "external",
        "name": "dppo_tv",
        "options": {"clip_ratio_low": 0.15, "clip_ratio_high": 0.15},
    }
    assert dppo_tv.differs == (
        KeyDifference("loss.name", "vanilla", "dppo_tv"),
        KeyDifference("loss.options.clip_ratio_high", None, 0.15),
        KeyDifference("loss.options.clip_ratio_low", None, 0.15),
        KeyDifference(f"{actor}.clip_ratio_high", 0.2, 0.15),
        KeyDifference(f"{actor}.clip_ratio_low", 0.2, 0.15),
        KeyDifference(f"{actor}.policy_loss.loss_mode", "vanilla", "dppo_tv"),
    )
    assert long.differs == (KeyDifference(f"{actor}.ppo_mini_batch_size", 256, 128),)


def test_trl_is_started_with_a_yaml_file(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, TRL)
    command, run = make_command(tmp_path, plan, "cispo")
    path = run.attempt(2).inputs_dir / "native.yaml"
    assert command.argv == ("python", "train_grpo.py", "--config", str(path))
    assert yaml.safe_load(path.read_text()) == {
        "model_name_or_path": "Qwen/Qwen3-0.6B",
        "dataset_name": "my/prompts",
        "output_dir": f"{run.trainer_dir}/output",
        "run_name": "study-cispo-s7",
        "seed": 7,
        "max_steps": 300,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "save_strategy": "steps",
        "save_steps": 20,
        "save_total_limit": 2,
        "learning_rate": 1e-6,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
        "max_completion_length": 2048,
        "beta": 0.0,
        "loss_type": "cispo",
        "epsilon": 0.2,
        "epsilon_high": 5.0,
        "importance_sampling_level": "token",
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "sequence_mask",
        "vllm_importance_sampling_clip_max": 3.0,
        "vllm_importance_sampling_clip_min": None,
    }


def test_the_metrics_of_both_land_where_reports_look(tmp_path: Path) -> None:
    name = RunName("study", "x", 7, "0" * 16)
    verl = command_files(make_plan(tmp_path, VERL).configs["long/seed_7"], name)
    assert (verl.metrics, verl.metrics_format) == ("trainer/metrics", "verl")
    assert verl.checkpoints == "trainer/checkpoints"
    trl = command_files(make_plan(tmp_path, TRL).configs["dapo/seed_7"], name)
    assert (trl.metrics, trl.metrics_format) == ("trainer/output", "trainer_state")
    assert trl.checkpoints == "trainer/output"


@pytest.mark.parametrize("sweep", [VERL, TRL], ids=["verl", "trl"])
def test_a_loss_of_this_project_is_refused_as_none_of_theirs(tmp_path: Path, sweep: str) -> None:
    common = yaml.safe_load(sweep)["common"]
    overrides = parse_overrides([o for o in common if o != "loss=external"], "command line")
    with pytest.raises(UsageError, match="can't be resolved: Interpolation key 'loss.name'"):
        compose_all(load_conf((CONF_DIR,)), [overrides])


@pytest.mark.parametrize(
    ("sweep", "key"),
    [(VERL, "trainer.native.data.train_files"), (TRL, "trainer.native.dataset_name")],
    ids=["verl", "trl"],
)
def test_what_only_the_user_knows_has_to_be_set(tmp_path: Path, sweep: str, key: str) -> None:
    lines = [line for line in sweep.splitlines() if key not in line]
    with pytest.raises(UsageError, match=f"`{key}` has no value"):
        make_plan(tmp_path, "\n".join(lines))
