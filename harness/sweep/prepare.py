"""From what the user typed to a plan that may be carried out. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config.check import output_keys
from harness.config.conf_dir import Conf, load_conf
from harness.config.groups import type_of
from harness.config.override import Override, parse_overrides
from harness.errors import UsageError
from harness.records.layout import SweepPaths, is_valid_name, outputs_root
from harness.resources import CONF_DIR
from harness.sweep.code_copy import Code, read_code
from harness.sweep.locate import SweepSource, check_outputs_root, find_sweep_file
from harness.sweep.plan import Plan, Progress, build_plan
from harness.sweep.spec import SweepSpec, load_sweep
from harness.sweep.start_from import FoundStart, find_start_warnings, find_starts
from harness.sweep.store import read_stored, reconcile
from harness.trainers.interface import Stamp
from harness.trainers.registry import load_trainer

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Prepared:
    """A plan, where it goes, and the code that would run it.

    Attributes:
        warnings: what may keep its runs from starting.
    """

    source: SweepSource
    spec: SweepSpec
    paths: SweepPaths
    plan: Plan
    code: Code
    warnings: tuple[str, ...] = ()


def prepare(
    word: str,
    *,
    overrides: Sequence[str] = (),
    conf_dirs: Sequence[Path] = (),
    as_name: str | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Return the plan for the sweep that `word` names.

    A sweep given by the name of an earlier `--as` goes on with the overrides and folders it had.

    Raises:
        UsageError: any gate; nothing was written.
    """
    source = find_sweep_file(word)
    name = as_name if as_name is not None else source.name
    if as_name is not None and not is_valid_name(as_name):
        raise UsageError(
            f"--as {as_name!r} can't be the name of a sweep", "use letters, digits, `.`, `_`, `-`"
        )
    spec = load_sweep(source.path, name)
    paths = SweepPaths(outputs_root() / name)
    check_outputs_root(paths.root)
    stored = read_stored(paths).plan
    is_renamed = as_name is not None or source.is_stored
    if stored is not None and source.is_stored:
        conf_dirs = conf_dirs or [Path(text) for text in stored.conf_dirs]
        asked = {override.key for override in parse_overrides(overrides, COMMAND_LINE)}
        kept = parse_overrides(stored.overrides, COMMAND_LINE)
        overrides = [*(o.text for o in kept if o.key not in asked), *overrides]
    conf = load_conf((CONF_DIR, *conf_dirs))
    parsed = parse_overrides(overrides, COMMAND_LINE)
    code = read_code()
    starts = find_starts(
        spec.start_from,
        [arm.name for arm in spec.arms],
        spec.seeds,
        str(spec.path),
        paths,
        stored,
    )
    plan = build_plan(spec, conf, parsed, code.record, progress, starts)
    if parsed and not is_renamed:
        _refuse_new_identities(plan, spec, conf, parsed, code, starts)
    program_dir, stamp = _program_dir(plan), _stamp(plan)
    if program_dir is not None or stamp is not None:
        code = read_code(program_dir, stamp)
        plan = replace(plan, record=replace(plan.record, code=code.record))
    warnings = find_start_warnings(starts, paths)
    return Prepared(source, spec, paths, reconcile(plan, paths), code, warnings)


def _program_dir(plan: Plan) -> Path | None:
    """Return the folder of code that the runs' trainer wants frozen beside the harness."""
    found: dict[str, str] = {}
    for run_id, config in plan.configs.items():
        folder = load_trainer(config["trainer"]["type"]).code_dir(config)
        if folder is not None:
            found.setdefault(folder, run_id)
    if len(found) > 1:
        (first, one), (second, other) = list(found.items())[:2]
        raise UsageError(
            f"`trainer.code_dir` is `{first}` for {one} and `{second}` for {other}",
            "the runs of a sweep share one copy of the code",
        )
    return Path(next(iter(found))) if found else None


def _stamp(plan: Plan) -> Stamp | None:
    """Return the version of the program that the runs' trainer starts where it lies."""
    found: dict[Stamp | None, str] = {}
    asked: dict[str, Stamp | None] = {}
    for run_id, config in plan.configs.items():
        trainer = config["trainer"]
        key = f"{trainer['type']}:{trainer.get('checkout')}"
        if key not in asked:
            asked[key] = load_trainer(trainer["type"]).stamp(config)
        found.setdefault(asked[key], run_id)
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise UsageError(
            f"{one} and {other} run from different checkouts of their trainer",
            "the arms of a sweep share one version of the program",
        )
    return next(iter(found))


def _refuse_new_identities(
    plan: Plan,
    spec: SweepSpec,
    conf: Conf,
    overrides: Sequence[Override],
    code: Code,
    starts: Mapping[int, FoundStart],
) -> None:
    """Refuse overrides that make the runs other runs than those of the sweep file."""
    # What stays out of identities may be what the file leaves open, such as a checkout.
    outside = set(output_keys(type_of("trainer", plan.record.trainer), "trainer"))
    harmless = [override for override in overrides if override.key in outside]
    if len(harmless) == len(overrides):
        return
    plain = build_plan(spec, conf, harmless, code.record, starts=starts)
    asked = {run.run_id: run.identity for run in plain.record.runs}
    for run in plan.record.runs:
        if asked[run.run_id] != run.identity:
            shown = " ".join(o.text for o in overrides)
            raise UsageError(
                f"`{shown}` changes what the runs of `{spec.name}` compute",
                f"give the changed sweep a name of its own: --as {spec.name}_2",
            )
