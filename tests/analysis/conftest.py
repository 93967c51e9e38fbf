"""Lays out sweep folders by the contract on disk, filled with synthetic metrics.

No training happens here: the numbers are drawn from simple curves, as a stand-in for a trainer,
so that every shape that a run can take (a collapse, a resume, a torn line) can be asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.files import write_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import (
    SCHEMA_VERSION,
    AnalysisSpec,
    Claim,
    CodeRecord,
    Exit,
    Heartbeat,
    KeyDifference,
    PlannedArm,
    PlannedRun,
    PlanRecord,
    RunRecord,
    to_record,
)

START = 1_790_000_000.0
MACHINE = {
    "hostname": "synthetic-host",
    "cpu_model": "Synthetic CPU 1",
    "gpus": [],
    "python": "3.11.7",
    "versions": {"harness": "0.1.0", "torch": "2.13.0"},
}
SPEC = AnalysisSpec(last_steps=20, baseline_steps=(5, 20), collapse_window=10)

Row = dict[str, Any]


@dataclass(frozen=True)
class Behaviour:
    """What a synthetic run does. Steps count from 1; None means never.

    Attributes:
        level: solve rate before anything happens.
        explodes_at: from this step mismatch KL is 200 times higher.
        collapses_at: from this step the solve rate is 0.02.
        vanishes_at: from this step mismatch KL is missing, though the trainer goes on.
        resumes_at: a second attempt begins at this step, after the first came 6 steps further.
        ends_at: the last step that is logged.
        outcome: reason of the newest exit; None for a run without an exit.
        drops: keys that are never logged.
        has_torn_line: a writer was cut off in the middle of a line.
        has_metrics: whether there is a metrics file at all.
        is_started: whether there is an attempt at all.
        gpus: that each attempt holds, for its 60 s.
    """

    level: float = 0.85
    explodes_at: int | None = None
    collapses_at: int | None = None
    vanishes_at: int | None = None
    resumes_at: int | None = None
    ends_at: int | None = None
    outcome: str | None = "done"
    drops: tuple[str, ...] = ()
    has_torn_line: bool = False
    has_metrics: bool = True
    is_started: bool = True
    machine: Mapping[str, Any] | None = None
    code_hash: str = "c0de"
    gpus: tuple[str, ...] = ()


HEALTHY = Behaviour()
COLLAPSING = Behaviour(explodes_at=40, collapses_at=60)

Choice = Behaviour | Callable[[int], Behaviour]
MakeSweep = Callable[..., Path]


def make_rows(behaviour: Behaviour, seed: int, arm: str, max_steps: int) -> list[Row]:
    """Return one row per step with prime-rl's keys."""
    generator = np.random.default_rng([seed, *arm.encode()])
    rows = []
    for step in range(1, (behaviour.ends_at or max_steps) + 1):
        has_exploded = _reached(step, behaviour.explodes_at)
        has_collapsed = _reached(step, behaviour.collapses_at)
        kl = 1e-3 * math.exp(0.3 * generator.normal()) * (200.0 if has_exploded else 1.0)
        level = 0.02 if has_collapsed else behaviour.level + 0.01 * seed
        solve_rate = float(np.clip(level + 0.03 * generator.normal(), 0.0, 1.0))
        rise, drop = (float(1e-4 * generator.random() * (30 if has_exploded else 1)) for _ in "ab")
        row: Row = {
            "step": step,
            "time": START + 10.0 * step,
            "attempt": 1,
            "mismatch_kl/all/mean": kl,
            "mismatch_kl/all/max": 50 * kl,
            "entropy/all/mean": 0.4 + 0.02 * float(generator.normal()),
            "is_masked/mean": rise + drop,
            "is_masked/token_mean": rise + drop,
            "token_class/rise": rise,
            "token_class/drop": drop,
            "importance_ratio/max_kept": 3.0 + (2000.0 if has_exploded else 0.0),
            "optim/grad_norm": 0.0 if has_collapsed else 1.0 + float(generator.random()),
            "optim/lr": 0.5,
            "train/reverse/all/agent/reward/mean": solve_rate,
            "train/reverse/effective/agent/reward/mean": 0.5 + 0.1 * solve_rate,
            "off_policy/mean": 8.0,
            "progress/tokens": 576 * step,
            "time/step": 0.03,
        }
        if _reached(step, behaviour.vanishes_at):
            del row["mismatch_kl/all/mean"]
        rows.append({key: value for key, value in row.items() if key not in behaviour.drops})
    return rows


def make_sweep(
    root: Path,
    arms: Mapping[str, Choice],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    max_steps: int = 120,
    baseline: str | None = None,
    question: str = "SYNTHETIC STAND-IN: which arm keeps training?",
    spec: AnalysisSpec = SPEC,
    earlier_spec: Sequence[AnalysisSpec] = (),
    pairing: str = "seed",
    left: Sequence[str] = (),
    extra_config: Callable[[str, int], Mapping[str, Any]] = lambda arm, seed: {},
    replicates: Mapping[str, str] | None = None,
) -> Path:
    """Write a whole sweep folder below `root` and return it.

    Args:
        replicates: replicate, which is among `arms`, too -> its arm.
    """
    of = replicates or {}
    paths = SweepPaths(root / "synthetic_stand_in")
    runs = tuple(
        PlannedRun(arm, seed, f"id-{arm}-{seed}", max_steps) for seed in seeds for arm in arms
    )
    base = baseline or next(iter(arms))
    plan = PlanRecord(
        schema_version=SCHEMA_VERSION,
        sweep=paths.name,
        question=question,
        baseline=base,
        pairing=pairing,
        may_differ=("loss",),
        common=("task=reverse",),
        overrides=(),
        conf_dirs=("conf",),
        trainer="synthetic stand-in",
        seeds=tuple(seeds),
        arms=tuple(
            PlannedArm(
                name=arm,
                overrides=(f"loss={loss}",),
                differs=() if loss == base else (KeyDifference("loss.type", base, loss),),
                restated=(),
                loss={"type": loss},
                replicate_of=of.get(arm),
            )
            for arm, loss in ((arm, of.get(arm, arm)) for arm in arms)
        ),
        runs=runs,
        left=tuple(left),
        analysis=spec,
        earlier_analysis=tuple(earlier_spec),
        code=CodeRecord("c0de", "abc123", False, {"numpy": "2.4.6", "torch": "2.13.0"}),
    )
    write_json(paths.plan, to_record(plan))
    for planned in runs:
        choice = arms[planned.arm]
        behaviour = choice if isinstance(choice, Behaviour) else choice(planned.seed)
        config = {
            "loss": {"type": of.get(planned.arm, planned.arm)},
            "task": {"type": "reverse"},
            "seed": planned.seed,
            **({"replicate": 1} if planned.arm in of else {}),
            **extra_config(planned.arm, planned.seed),
        }
        write_run(paths.run(planned.arm, planned.seed), planned, behaviour, config)
    return paths.root


def write_run(
    paths: RunPaths, planned: PlannedRun, behaviour: Behaviour, config: Mapping[str, Any]
) -> None:
    """Write config, record, attempts and metrics of one run."""
    record = RunRecord(
        schema_version=SCHEMA_VERSION,
        sweep=paths.sweep.name,
        arm=planned.arm,
        seed=planned.seed,
        identity=planned.identity,
        trainer="synthetic stand-in",
        metrics=str(paths.metrics.relative_to(paths.root)),
        metrics_format="prime_rl",
    )
    write_json(paths.record, to_record(record))
    write_json(paths.config, dict(config))
    if not behaviour.is_started:
        return
    rows = make_rows(behaviour, planned.seed, planned.arm, planned.max_steps)
    attempts = [rows]
    if behaviour.resumes_at is not None:
        place = behaviour.resumes_at - 1
        # What the first attempt logged beyond the resume is far off: it must not count.
        stale = [{**row, "mismatch_kl/all/mean": 9.0} for row in rows[place : place + 6]]
        attempts = [rows[:place] + stale, [{**row, "attempt": 2} for row in rows[place:]]]
    for number, part in enumerate(attempts, start=1):
        is_newest = number == len(attempts)
        steps = (part[0]["step"], part[-1]["step"])
        _write_attempt(paths, planned, behaviour, number, steps, is_newest=is_newest)
    if behaviour.has_metrics:
        lines = [json.dumps(row) for part in attempts for row in part]
        if behaviour.has_torn_line:
            lines.insert(30, lines[30][: len(lines[30]) // 2])
        paths.metrics.parent.mkdir(parents=True)
        paths.metrics.write_text("\n".join(lines) + "\n")


def _write_attempt(
    paths: RunPaths,
    planned: PlannedRun,
    behaviour: Behaviour,
    number: int,
    steps: tuple[int, int],
    *,
    is_newest: bool,
) -> None:
    first_step, last_step = steps
    attempt = paths.attempt(number)
    start = START + 5000.0 * (number - 1) + 100.0 * planned.seed
    claim = Claim(
        schema_version=SCHEMA_VERSION,
        attempt=number,
        submission="0001",
        nonce="nonce",
        host="synthetic-host",
        pid=1,
        pid_started="1",
        time=start,
        max_steps=planned.max_steps,
        code_hash=behaviour.code_hash,
        machine=dict(behaviour.machine or MACHINE),
        gpus=behaviour.gpus,
    )
    heartbeat = Heartbeat(
        schema_version=SCHEMA_VERSION,
        attempt=number,
        time=start + 30.0,
        step=last_step,
        max_steps=planned.max_steps,
        tokens=576 * last_step,
        mismatch_kl=1e-3,
        solve_rate=0.8,
        steps_per_s=2.0,
        trainer_pid=2,
        first_step=first_step,
    )
    write_json(attempt.claim, to_record(claim))
    write_json(attempt.heartbeat, to_record(heartbeat))
    outcome = behaviour.outcome if is_newest else "cancelled"
    if outcome is None:
        return
    record = Exit(
        schema_version=SCHEMA_VERSION,
        attempt=number,
        reason=outcome,
        code=1 if outcome == "failed" else 0,
        signal=None,
        error="RuntimeError: <b>synthetic</b> failure" if outcome == "failed" else "",
        last_step=last_step,
        max_steps=planned.max_steps,
        nodes=("synthetic-host",),
        gpus=behaviour.gpus,
        start=start,
        end=start + 60.0,
        first_step=first_step,
    )
    write_json(attempt.exit, to_record(record))


def _reached(step: int, threshold: int | None) -> bool:
    return threshold is not None and step >= threshold


@pytest.fixture
def sweep_maker(tmp_path: Path) -> MakeSweep:
    """`make_sweep`, writing below a folder of this test."""
    return lambda arms, **options: make_sweep(tmp_path, arms, **options)
