from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.config.yaml_file import load_yaml
from harness.resources import CONF_DIR
from harness.trainers.interface import RunFiles
from harness.trainers.prime_rl.trainer import TRAINER, files
from tests.harness.trainers.prime_rl.arms import NAME, SHOWN, expand_document


def test_files_stand_below_the_folder_by_the_runs_name(tmp_path: Path) -> None:
    folder = f"trainer/{SHOWN}"
    logs = {
        part: f"{folder}/logs/latest/{part}.log"
        for part in ("trainer", "orchestrator", "inference")
    }
    document = {"inference": {}, "trainer": {"enable_token_export": True}}
    assert files(expand_document(tmp_path, document), NAME) == RunFiles(
        metrics=folder,
        metrics_format="prime_rl_run",
        tokens=folder,
        tokens_format="prime_rl",
        checkpoints=f"{folder}/checkpoints",
        checkpoints_format="step_folders",
        logs=logs,
    )
    plain = files(expand_document(tmp_path, {}), NAME)
    assert (plain.tokens, plain.tokens_format) == (None, None)
    assert sorted(plain.logs) == ["orchestrator", "trainer"]


def test_the_option_states_every_key_of_the_group_but_what_the_harness_sets() -> None:
    option = load_yaml(CONF_DIR / "trainer" / "prime_rl.yaml")
    fields = set(TRAINER.config_type.__dataclass_fields__) - {"replaced", "sources"}
    assert isinstance(option, dict)
    assert set(option) == fields
    for name, value in option.items():
        if name != "base":
            default = TRAINER.config_type(base=()).__getattribute__(name)
            assert value == (list(default) if isinstance(default, tuple) else default), name


def test_loading_the_trainer_loads_nothing_heavy() -> None:
    script = (
        "import sys, harness.trainers.prime_rl.trainer\n"
        "print(sorted({'torch', 'pandas', 'hydra', 'numpy', 'omegaconf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
