"""harness compare: runs that the harness never launched, as the arms of one report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.cli import tell
from harness.cli.gates import check_gates, judge
from harness.cli.report import find_noise, log_to_wandb, show_report, shown, with_status
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import MAX_NAME_LENGTH, is_valid_name
from harness.sweep.spec import load_analysis

if TYPE_CHECKING:
    from analysis.foreign import ArmSource


def compare_command(
    *,
    sources: Sequence[str],
    baseline: str,
    keys: Sequence[str],
    analysis_values: Sequence[str],
    pairing: str,
    max_steps: int | None,
    may_differ: Sequence[str],
    question: str,
    name: str,
    out: Path | None,
    into_run_folder: bool,
    gates: Sequence[str],
    noise_from: Sequence[str],
    wandb_project: str | None,
    as_json: bool,
) -> int:
    """Compare foreign runs and write the report; exit codes as `harness report`."""
    import analysis  # noqa: PLC0415 (pandas and matplotlib load only for a report)
    from analysis.foreign import ComparisonSpec  # noqa: PLC0415

    arm_sources = [_arm_source(text) for text in sources]
    if not is_valid_name(name):
        raise UsageError(
            f"--name {name}: no name of a comparison",
            f"letters, digits, `.`, `_` and `-`, up to {MAX_NAME_LENGTH} of them",
        )
    spec = ComparisonSpec(
        baseline=baseline,
        name=name,
        question=question,
        pairing=pairing,
        analysis=load_analysis(_values(analysis_values), Path("--analysis")),
        metrics_keys=_keys(keys),
        may_differ=tuple(may_differ),
        max_steps=max_steps,
    )
    check_gates(gates, tuple(dict.fromkeys(item.arm for item in arm_sources)), baseline)
    folder = out or Path(name)
    _check_folder(folder)
    noise_dirs = find_noise(noise_from)
    written = with_status(
        lambda say: analysis.compare_runs(
            arm_sources,
            spec,
            folder,
            into_run_folders=into_run_folder,
            noise_from=noise_dirs,
            progress=say,
        )
    )
    show_report(written, as_json=as_json)
    for path in written.copies:
        tell(f"report: {shown(path)}")
    if wandb_project is not None:
        log_to_wandb(written, wandb_project, name)
    return judge(gates, written.report)


def _arm_source(text: str) -> ArmSource:
    from analysis.foreign import ArmSource  # noqa: PLC0415

    arm, is_given, source = text.partition("=")
    if not is_given or not arm or not source:
        raise UsageError(f"--arm {text}: want ARM=SOURCE", "such as --arm ipo=runs/ipo_0")
    return ArmSource(arm, source)


def _keys(pairs: Sequence[str]) -> dict[str, str]:
    from analysis.metrics import METRICS  # noqa: PLC0415

    known = {*METRICS, "step", "time"}
    found: dict[str, str] = {}
    for text in pairs:
        metric, is_given, key = text.partition("=")
        if not is_given or not key:
            raise UsageError(f"--key {text}: want METRIC=KEY", "such as --key mismatch_kl=my/kl")
        if metric not in known:
            raise UsageError(
                f"--key {text}: there is no metric `{metric}`",
                did_you_mean(metric, known, what="metrics"),
            )
        found[metric] = key
    return found


def _values(pairs: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in pairs:
        key, is_given, value = text.partition("=")
        if not is_given:
            raise UsageError(f"--analysis {text}: want KEY=VALUE", "such as last_steps=100")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--analysis {text}: {value!r} is no value", "quote it") from None
    return found


def _check_folder(folder: Path) -> None:
    """Refuse a folder that can't be made, or holds something else than an earlier report."""
    elsewhere = "name another folder with --out"
    nearest = folder
    try:
        while not nearest.exists() and not nearest.is_symlink():
            nearest = nearest.parent
        is_writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
        is_taken = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(
            f"`{folder}` can't be written: {error.strerror or error}", elsewhere
        ) from None
    if not is_writable:
        raise UsageError(
            f"`{folder}` can't be written: `{nearest}` is no folder that you may write to",
            elsewhere,
        )
    if is_taken and not (folder / "report.json").is_file():
        raise UsageError(f"`{folder}` holds other files", f"{elsewhere}, or an empty one")
