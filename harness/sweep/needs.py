"""Whether a profile gives the runs of a plan what their trainer needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from harness.dispatch.slots import plan_slots
from harness.errors import UsageError
from harness.profile import LocalProfile, Profile
from harness.records.layout import SweepPaths
from harness.records.model import PlannedRun, PlanRecord
from harness.slurm_profile import SlurmProfile, count_gpus, override_settings
from harness.trainers.interface import Needs
from harness.trainers.registry import load_trainer


def needs_of(
    configs: Mapping[str, Mapping[str, Any]], runs: Sequence[PlannedRun]
) -> dict[str, Needs]:
    """Return what the arms of `runs` need; seeds don't change it.

    Args:
        configs: run id -> resolved configuration.
    """
    needs: dict[str, Needs] = {}
    for run in runs:
        if run.arm not in needs:
            config = configs[run.run_id]
            needs[run.arm] = load_trainer(config["trainer"]["type"]).needs(config)
    return needs


def check_needs(
    plan: PlanRecord,
    needs: Mapping[str, Needs],
    profile: Profile,
    paths: SweepPaths,
    *,
    num_runs: int,
) -> tuple[str, ...]:
    """Return warnings about what `num_runs` runs of the arms in `needs` would get on `profile`.

    Raises:
        UsageError: a run would get too few nodes or GPUs, would share a node that it must not
            share, or its trainer would kill the runner by its name.
    """
    warnings: dict[str, None] = {}
    for arm, need in needs.items():
        if need == Needs():
            continue
        if isinstance(profile.settings, LocalProfile):
            found = _check_local(need, profile.settings, profile.name, arm, num_runs)
            python = sys.executable
        else:
            settings = override_settings(
                profile.settings,
                plan.resources.get(arm, {}),
                f"`resources.{arm}` of the sweep `{plan.sweep}`, on the profile `{profile.name}`",
            )
            found = _check_slurm(need, settings, profile.name, arm)
            python = settings.python or sys.executable
        _check_names(need, paths, arm, python)
        warnings.update(dict.fromkeys(found))
    return tuple(warnings)


def _check_local(
    needs: Needs, settings: LocalProfile, profile: str, arm: str, num_runs: int
) -> list[str]:
    if needs.nodes is not None and needs.nodes > 1:
        raise UsageError(
            f"arm `{arm}` needs {needs.nodes} nodes, and the profile `{profile}` is this machine",
            "name a cluster's profile with --on",
        )
    slots = plan_slots(settings, profile)
    if needs.is_alone and slots.num_slots > 1 and num_runs > 1:
        raise UsageError(
            f"arm `{arm}` can't share a machine, and `{profile}` runs {slots.num_slots} at once",
            "--slots 1",
        )
    if needs.gpus_per_node is None:
        return []
    if slots.gpus_per_run is None:
        return [f"each run uses {_gpus(needs)}, and this machine shows none"]
    if slots.gpus_per_run < needs.gpus_per_node:
        raise UsageError(
            f"arm `{arm}` uses {_gpus(needs)}, and the profile `{profile}` gives each run"
            f" {slots.gpus_per_run}",
            f"set `gpus_per_run: {needs.gpus_per_node}` in the profile",
        )
    return []


def _check_slurm(needs: Needs, settings: SlurmProfile, profile: str, arm: str) -> list[str]:
    where = f"set it in the profile `{profile}`, or `resources: {{{arm}: {{%s}}}}` in the sweep"
    if needs.nodes is not None and settings.nodes != needs.nodes:
        raise UsageError(
            f"arm `{arm}` needs {_count(needs.nodes, 'node')}, and the profile `{profile}` gives"
            f" each run {settings.nodes}",
            where % f"nodes: {needs.nodes}",
        )
    if needs.is_alone and not settings.sbatch.get("exclusive"):
        raise UsageError(
            f"arm `{arm}` must have its nodes to itself, and the profile `{profile}` lets runs"
            " share them",
            where % "sbatch: {exclusive: true}",
        )
    total = count_gpus(settings)
    given = None if total is None else total // settings.nodes
    if needs.gpus_per_node is None or given == needs.gpus_per_node:
        return []
    if given is None:
        return [
            f"each run uses {_gpus(needs)} on a node, and the profile `{profile}` doesn't say how"
            " many it gives"
        ]
    if given < needs.gpus_per_node:
        raise UsageError(
            f"arm `{arm}` uses {_gpus(needs)} on each node, and the profile `{profile}` gives it"
            f" {given}",
            where % f"gpus_per_node: {needs.gpus_per_node}",
        )
    idle = given - needs.gpus_per_node
    return [f"{_count(idle, 'GPU')} of {given} on each node would be idle"]


def _check_names(needs: Needs, paths: SweepPaths, arm: str, python: str) -> None:
    """Refuse names by which the trainer's clean-up would kill the runner."""
    places = {
        "the arm": arm,
        "the sweep": paths.name,
        "the folder of outputs": str(paths.root.absolute().parent),
        "the Python of the runs": python,
    }
    hints = {
        "the arm": "rename the arm",
        "the sweep": "give it another name with --as NAME",
        "the folder of outputs": "choose another place with HARNESS_OUTPUTS=DIR",
        "the Python of the runs": "install the harness elsewhere, or set `python` in the profile",
    }
    for word in needs.fatal_names:
        for what, text in places.items():
            if word in text:
                raise UsageError(
                    f"{what} is `{text}`: on several nodes the trainer kills every process with"
                    f" `{word}` in its command line, and so would end its own runner",
                    hints[what],
                )


def _gpus(needs: Needs) -> str:
    return _count(needs.gpus_per_node or 0, "GPU")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
