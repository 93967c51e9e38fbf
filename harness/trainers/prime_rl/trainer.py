"""prime-rl as a trainer of this harness: it is called, never imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.layout import RunPaths
from harness.trainers.interface import (
    Candidate,
    Command,
    Launch,
    Progress,
    RunFiles,
    RunName,
    Trainer,
    Verdict,
)
from harness.trainers.prime_rl.expand import expand
from harness.trainers.prime_rl.needs import needs
from harness.trainers.prime_rl.owned import run_name
from harness.trainers.prime_rl.remarks import remarks
from harness.trainers.prime_rl.run_folder import CHECKPOINTS
from harness.trainers.prime_rl.settings import PrimeRlConfig, check_settings
from harness.trainers.prime_rl.stamp import stamp
from harness.trainers.prime_rl.start import check_prime_rl_start
from harness.trainers.prime_rl.tables import get_table, get_value

_TRAINER_FOLDER = RunPaths(Path()).trainer_dir.name
_LOGS = "logs/latest"


def files(config: Mapping[str, Any], name: RunName) -> RunFiles:
    """Return where a run leaves its files: all stand below the folder by its name."""
    native = config["trainer"]["native"]
    folder = f"{_TRAINER_FOLDER}/{run_name(name)}"
    parts = ["trainer", "orchestrator"]
    if get_table(native, "inference") is not None:
        parts.append("inference")
    has_tokens = get_value(native, "trainer.enable_token_export") is True
    return RunFiles(
        metrics=folder,
        metrics_format="prime_rl_run",
        tokens=folder if has_tokens else None,
        tokens_format="prime_rl" if has_tokens else None,
        checkpoints=f"{folder}/{CHECKPOINTS}",
        checkpoints_format="step_folders",
        logs={part: f"{folder}/{_LOGS}/{part}.log" for part in parts},
    )


def _command(launch: Launch) -> Command:
    from harness.trainers.prime_rl.launch import command  # noqa: PLC0415 (only where runs start)

    return command(launch)


def _validate(
    candidates: Sequence[Candidate], baseline: str, may_differ: Sequence[str], progress: Progress
) -> Verdict:
    from harness.trainers.prime_rl.validate import validate  # noqa: PLC0415 (only where planned)

    return validate(candidates, baseline, may_differ, progress)


TRAINER = Trainer(
    name="prime_rl",
    config_type=PrimeRlConfig,
    files=files,
    command=_command,
    is_deterministic=False,
    check=check_settings,
    derives="trainer.native",
    expand=expand,
    remarks=remarks,
    needs=needs,
    stamp=stamp,
    validate=_validate,
    check_start=check_prime_rl_start,
)
