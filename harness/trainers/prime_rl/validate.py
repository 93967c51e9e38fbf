"""Checks the arms of a sweep before anything is queued: does prime-rl take them, and do they differ
in what was declared and in nothing else, once prime-rl has resolved them?

All arms are rendered under one name and with the same ports, so that nothing which only tells runs
apart is among the differences.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from harness.errors import UsageError
from harness.records.model import KeyDifference
from harness.trainers.interface import Candidate, Progress, Verdict
from harness.trainers.prime_rl.config_schema import check_document, read_schema
from harness.trainers.prime_rl.dry_run import Resolved, can_run, dry_run, has_program
from harness.trainers.prime_rl.gate import (
    ResolvedArm,
    compare,
    find_undeclared,
    refuse_equal,
    refuse_undeclared,
)
from harness.trainers.prime_rl.needs import OWN_PORTS, is_multi_node, needs
from harness.trainers.prime_rl.ports import FIRST
from harness.trainers.prime_rl.render import render_document
from harness.trainers.prime_rl.settings import find_checkout

AUTO, DRY_RUN, SCHEMA = "auto", "dry_run", "schema"
AT_ONCE = 2
"""Dry runs at a time: each imports prime-rl, which takes seconds of a processor."""

_BY_DRY_RUN = "prime-rl's own dry run resolved every arm, and the arms are compared as resolved."
_NOWHERE = Path("/nonexistent")


def validate(
    candidates: Sequence[Candidate], baseline: str, may_differ: Sequence[str], progress: Progress
) -> Verdict:
    """Return how the arms were checked, and where they differ from `baseline` by prime-rl's keys.

    Args:
        candidates: the arms, each with an expanded config.
        may_differ: keys of our config in which arms may differ.

    Raises:
        UsageError: prime-rl (or, where it can't be asked, its declarations) refuses an arm; an arm
            differs in more than was declared; two arms are the same; prime-rl renders no script for
            several nodes, or one for another number of them; `trainer.validate` is `dry_run`, and
            none is possible.
    """
    progress(0, len(candidates))
    first = next(candidate for candidate in candidates if candidate.name.arm == baseline)
    trainer = first.config["trainer"]
    checkout = find_checkout(trainer)
    documents = [_render(candidate, first) for candidate in candidates]
    why_not = _why_no_dry_run(trainer, checkout)
    if why_not is not None:
        remark = _check_names(candidates, documents, checkout, why_not, trainer["validate"])
        arms = [
            ResolvedArm(candidate.name.arm, document, document, was_asked=False)
            for candidate, document in zip(candidates, documents, strict=True)
        ]
        progress(len(candidates), len(candidates))
        return _judge(arms, baseline, may_differ, frozenset(), remark)
    with tempfile.TemporaryDirectory(prefix="ablation-", ignore_cleanup_errors=True) as folder:
        resolved = _resolve_all(candidates, documents, Path(folder), progress)
        arms = [
            ResolvedArm(candidate.name.arm, document, one.config, was_asked=True)
            for candidate, document, one in zip(candidates, documents, resolved, strict=True)
        ]
        made_up: frozenset[str] = frozenset()
        base = next(arm for arm in arms if arm.name == baseline)
        if any(_undeclared(arm, base, may_differ, made_up) for arm in arms):
            # What prime-rl makes up anew each time differs between two looks at one arm, too.
            again = _resolve(first, base.document, Path(folder) / "again", None)
            made_up = frozenset(d.key for d in compare(base.config, again.config))
    return _judge(arms, baseline, may_differ, made_up, _BY_DRY_RUN)


def _render(candidate: Candidate, first: Candidate) -> dict[str, Any]:
    trainer = candidate.config["trainer"]
    has_own_ports = trainer["ports"] == OWN_PORTS and not is_multi_node(trainer["native"])
    try:
        return render_document(
            candidate.config,
            first.name,
            candidate.max_steps,
            _NOWHERE,
            ports=FIRST if has_own_ports else None,
        )
    except UsageError as error:
        raise _named(candidate, error) from None


def _why_no_dry_run(trainer: Mapping[str, Any], checkout: Path) -> str | None:
    """Return None where dry runs are wanted and possible.

    Raises:
        UsageError: they are asked for, and impossible.
    """
    if trainer["validate"] == SCHEMA:
        return "`trainer.validate` is `schema`"
    if not has_program(trainer["command"], checkout, trainer["env"]):
        raise UsageError(
            f"`trainer.command` starts `{trainer['command'][0]}`, and there is no such program on"
            " this machine",
            "install it, or choose trainer.validate=schema where only the nodes have it",
        )
    why_not = can_run(trainer["command"], checkout, trainer["env"])
    if why_not is not None and trainer["validate"] == DRY_RUN:
        raise UsageError(
            f"`trainer.validate` is `dry_run`, but {why_not}",
            f"`uv sync` in `{checkout}`, set `trainer.command`, or choose trainer.validate=auto",
        )
    return why_not


def _check_names(
    candidates: Sequence[Candidate],
    documents: Sequence[Mapping[str, Any]],
    checkout: Path,
    why_not: str,
    mode: str,
) -> str:
    """Return the remark for arms that are checked by the declarations of prime-rl alone."""
    try:
        schema = read_schema(checkout)
    except UsageError as error:
        if mode == SCHEMA:
            raise
        return f"prime-rl did not check the arms, and nothing else did: {why_not}; {error.message}."
    for candidate, document in zip(candidates, documents, strict=True):
        try:
            check_document(document, schema)
        except UsageError as error:
            raise _named(candidate, error) from None
    return (
        f"prime-rl itself did not check the arms: {why_not}. Only the names of their keys were"
        f" checked, against the classes in `{checkout}`."
    )


def _resolve_all(
    candidates: Sequence[Candidate],
    documents: Sequence[Mapping[str, Any]],
    folder: Path,
    progress: Progress,
) -> list[Resolved]:
    resolved: list[Resolved] = []
    stop = Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [
            pool.submit(_resolve, candidate, document, folder / str(i), stop)
            for i, (candidate, document) in enumerate(zip(candidates, documents, strict=True))
        ]
        try:
            for future in waiting:
                resolved.append(future.result())
                progress(len(resolved), len(candidates))
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return resolved


def _resolve(
    candidate: Candidate, document: Mapping[str, Any], folder: Path, stop: Event | None
) -> Resolved:
    trainer = candidate.config["trainer"]
    folder.mkdir()
    try:
        resolved = dry_run(
            trainer["command"], find_checkout(trainer), document, folder, trainer["env"], stop=stop
        )
        if is_multi_node(document):
            _check_script(resolved, needs(candidate.config).nodes)
    except UsageError as error:
        raise _named(candidate, error) from None
    return resolved


def _check_script(resolved: Resolved, nodes: int | None) -> None:
    if not resolved.has_script:
        raise UsageError(
            "this version of prime-rl renders no script for several nodes in its dry run",
            "use a version that does, or a deployment on one node",
        )
    if resolved.nodes not in (None, nodes):
        raise UsageError(
            f"prime-rl's script is for {resolved.nodes} nodes, and the run would get {nodes}",
            "set `deployment.num_train_nodes`, `num_infer_nodes` and `num_infer_replicas`, so that"
            " nothing is left to derive",
        )


def _undeclared(
    arm: ResolvedArm, base: ResolvedArm, may_differ: Sequence[str], made_up: frozenset[str]
) -> Sequence[KeyDifference]:
    differs = [d for d in compare(base.config, arm.config) if d.key not in made_up]
    return find_undeclared(arm, base, differs, may_differ)


def _judge(
    arms: Sequence[ResolvedArm],
    baseline: str,
    may_differ: Sequence[str],
    made_up: frozenset[str],
    remark: str,
) -> Verdict:
    base = next(arm for arm in arms if arm.name == baseline)
    for arm in arms:
        refuse_undeclared(arm, base, _undeclared(arm, base, may_differ, made_up), may_differ)
    refuse_equal(arms, made_up)
    was_asked = all(arm.was_asked for arm in arms)
    return Verdict(
        remarks=(remark,) if was_asked else (),
        warnings=() if was_asked else (remark,),
        differs={
            arm.name: tuple(d for d in compare(base.config, arm.config) if d.key not in made_up)
            for arm in arms
        },
    )


def _named(candidate: Candidate, error: UsageError) -> UsageError:
    return UsageError(f"arm `{candidate.name.arm}`: {error.message}", error.hint)
