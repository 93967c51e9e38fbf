from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.config.fields import limits_of
from harness.errors import HarnessError, UsageError
from harness.trainers.builtin.config import (
    MODEL_TYPES,
    TASK_TYPES,
    BuiltinConfig,
    DriftConfig,
    MoeTransformerConfig,
    parse_config,
)

CONF = Path(__file__).parents[4] / "conf"


def load_yaml(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONF / path).read_text())
    return loaded


def fields_as_tree(kind: Any) -> dict[str, Any]:
    """Default values of a config dataclass, nested as in YAML."""
    tree: dict[str, Any] = dataclasses.asdict(kind())
    return tree


def same_keys(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        same_keys(left[key], right[key])
        for key in left
        if isinstance(left[key], dict) and isinstance(right[key], dict)
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((f"task/{name}.yaml", kind) for name, kind in TASK_TYPES.items()),
        ("model/moe_tiny.yaml", MODEL_TYPES["moe_transformer"]),
        ("trainer/builtin.yaml", BuiltinConfig),
    ],
)
def test_shipped_option_states_every_knob_and_no_other(path: str, kind: Any) -> None:
    assert same_keys(load_yaml(path), fields_as_tree(kind))


def test_shipped_trainer_option_equals_the_defaults_of_the_dataclass() -> None:
    assert load_yaml("trainer/builtin.yaml") == fields_as_tree(BuiltinConfig)


@pytest.mark.parametrize("name", ["stress", "engine_drift", "calm", "hard"])
def test_experiment_sets_only_keys_that_exist(name: str) -> None:
    experiment = load_yaml(f"experiment/{name}.yaml")
    del experiment["defaults"]
    assert isinstance(experiment.pop("max_steps"), int)
    assert experiment.keys() == {"trainer"}

    def check(changes: dict[str, Any], tree: dict[str, Any]) -> None:
        for key, value in changes.items():
            assert key in tree
            if isinstance(value, dict):
                check(value, tree[key])

    check(experiment["trainer"], load_yaml("trainer/builtin.yaml"))


def test_parse_config_fills_defaults(make_config: Any) -> None:
    config = parse_config(make_config({"trainer.optim.lr": 2}))
    assert config.trainer.optim.lr == 2.0
    assert config.trainer.rollouts.temperature == 1.0
    assert config.model.num_layers == 2
    assert config.task.length == 2


def test_parse_config_names_the_key_of_a_wrong_type(make_config: Any) -> None:
    with pytest.raises(HarnessError, match=r"`optim\.lr` can't be 'fast'"):
        parse_config(make_config({"trainer.optim.lr": "fast"}))


@pytest.mark.parametrize(("group", "hint"), [("task", "reverse"), ("model", "moe_transformer")])
def test_parse_config_names_what_there_is(make_config: Any, group: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"`{group}.type`: no {group} 'nothing'") as caught:
        parse_config(make_config({f"{group}.type": "nothing"}))
    assert hint in caught.value.hint


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(UsageError, match=r"`model\.num_heads`: 3 does not divide .* 32"):
        MoeTransformerConfig(num_heads=3)


def test_active_experts_must_exist() -> None:
    with pytest.raises(UsageError, match=r"`model\.num_active_experts`: 5 is more than .* 4"):
        MoeTransformerConfig(num_active_experts=5)


def test_drift_must_not_end_before_it_starts() -> None:
    with pytest.raises(UsageError, match=r"end_step`: 9 is before .*start_step` 10"):
        DriftConfig(start_step=10, end_step=9)


def test_native_must_stay_empty() -> None:
    with pytest.raises(UsageError, match=r"`trainer\.native`.*`lr`"):
        BuiltinConfig(native={"lr": 1})


def test_only_what_a_run_leaves_behind_and_where_it_runs_is_output() -> None:
    outputs = {f.name for f in dataclasses.fields(BuiltinConfig) if limits_of(f).is_output}
    assert outputs == {"checkpoints", "tokens", "trackers", "device"}


def test_planner_modules_import_without_torch() -> None:
    code = (
        "import sys; import harness.trainers.builtin.trainer, harness.trainers.builtin.config; "
        "print(sorted({'torch', 'numpy', 'wandb', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout == "[]\n", output.stderr
