"""report.json: everything that the renderings show, as plain JSON.

Made from records alone: the same records give the same report, byte for byte. What there is no
number for is null, with the reason beside it; a number that came out beyond floats is its name
(`"inf"`, `"-inf"` or `"nan"`), as JSON has no other for it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.curve import median_of
from analysis.events import Event
from analysis.metrics import METRICS, MetricSpec, metric_spec
from analysis.report.findings import find_findings
from analysis.report.forks import fork_records
from analysis.report.notices import find_notices
from analysis.report.stops import stop_fields
from analysis.resampling import BOOTSTRAP_SEED, NUM_REPLICATES
from analysis.results import Results
from analysis.runs import Notice, Run, Sweep
from analysis.sources import FileProvenance
from analysis.summary import ArmSummary, EventShare, RunSummary
from analysis.windows import FinalWindow
from harness.records.files import finite_or_text, to_json
from harness.records.model import to_record

SCHEMA_VERSION = 2


def build_report(results: Results, notices: Sequence[Notice] = ()) -> dict[str, Any]:
    """Return the content of report.json, in plain JSON types.

    Args:
        notices: what is to be said beside that of `results`.
    """
    sweep, plan = results.sweep, results.sweep.plan
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "comparison" if any(run.source for run in sweep.runs) else "sweep",
        "sweep": plan.sweep,
        "question": plan.question,
        "note": plan.note,
        "remarks": list(plan.remarks),
        "baseline": plan.baseline,
        "pairing": plan.pairing,
        "trainer": plan.trainer,
        "common": list(plan.common),
        "overrides": list(plan.overrides),
        "may_differ": list(plan.may_differ),
        "seeds": list(plan.seeds),
        "left": list(plan.left),
        "forks": fork_records(results),
        "analysis": to_record(plan.analysis),
        "stop_when": [rule.text for rule in plan.stop_when],
        "earlier_analysis": [to_record(spec) for spec in plan.earlier_analysis],
        "newest_record": _newest_record(sweep),
        "window": _window(results.window),
        "judged_to": results.judged_to,
        "metrics": [_metric(metric_spec(name), sweep.runs) for name in _metric_names(sweep)],
        "arms": [_arm(arm, results) for arm in results.arms],
        "runs": [_run(summary, results) for summary in results.runs],
        "partings": [dataclasses.asdict(parting) for parting in results.partings],
        "cost_target": results.cost_target,
        "costs": [dataclasses.asdict(cost) for cost in results.costs],
        "comparisons": [dataclasses.asdict(item) for item in results.comparisons],
        "bootstrap": {"seed": BOOTSTRAP_SEED, "num_replicates": NUM_REPLICATES},
        "differences": [
            {
                "area": item.area,
                "key": item.key,
                "is_declared": item.is_declared,
                "values": {text: list(holders) for text, holders in item.values.items()},
            }
            for item in results.circumstances.differences
        ],
        "same": dict(results.circumstances.same),
        "code": to_record(plan.code),
        "files": [_file(run, file) for run in sweep.runs for file in run.files],
    }
    report["notices"] = [
        dataclasses.asdict(notice) for notice in (*find_notices(results), *notices)
    ]
    report["findings"] = find_findings(results)
    plain: dict[str, Any] = json.loads(to_json(_encodable(report)))
    return plain


def _encodable(value: Any) -> Any:
    """Return `value` so that JSON and UTF-8 can hold every number and every string of it."""
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    if isinstance(value, float):
        return finite_or_text(value)
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value


def _metric_names(sweep: Sweep) -> list[str]:
    logged = {name for run in sweep.runs for name in run.curves}
    primary = [name for name in sweep.plan.analysis.primary if name not in METRICS]
    return [*METRICS, *primary, *sorted(logged - METRICS.keys() - set(primary))]


def _metric(spec: MetricSpec, runs: tuple[Run, ...]) -> dict[str, Any]:
    keys = sorted({run.keys.keys[spec.name] for run in runs if spec.name in run.keys.keys})
    problems = {run.keys.problems[spec.name] for run in runs if spec.name in run.keys.problems}
    return {
        "name": spec.name,
        "label": spec.label,
        "unit": spec.unit,
        "direction": spec.direction,
        "scale": spec.scale,
        "definition": spec.definition,
        "definitions": _definitions(spec, runs),
        "keys": keys,
        "problems": sorted(problems),
        "num_runs": sum(run.curve(spec.name) is not None for run in runs),
    }


def _definitions(spec: MetricSpec, runs: tuple[Run, ...]) -> dict[str, str]:
    """Return the definitions that keys of some runs follow; "" names the metric's own."""
    found = {run.keys.definitions[spec.name] for run in runs if spec.name in run.keys.definitions}
    return {variant: spec.definition_of(variant) for variant in sorted(found)}


def _arm(arm: ArmSummary, results: Results) -> dict[str, Any]:
    plan = results.sweep.plan
    planned = plan.arm(arm.arm)
    states: dict[str, int] = {}
    for summary in arm.runs:
        states[summary.run.state] = states.get(summary.run.state, 0) + 1
    peaks = [summary.peak_kl for summary in arm.judged if summary.peak_kl is not None]
    logged = {name for summary in arm.runs for name in summary.run.curves}
    return {
        "name": arm.arm,
        "is_baseline": arm.arm == plan.baseline,
        "replicate_of": planned.replicate_of,
        "loss": planned.loss,
        "overrides": list(planned.overrides),
        "restated": list(planned.restated),
        "changes": [to_record(item) for item in planned.differs],
        "num_planned": len(arm.runs),
        "num_done": len(arm.done),
        "states": states,
        "logged": sorted(logged),
        "metrics": {name: dataclasses.asdict(mean) for name, mean in arm.means.items()},
        "median_peak_kl": median_of(np.array(peaks)) if peaks else None,
        "exploded": _share(arm.exploded),
        "collapsed": _share(arm.collapsed),
        "survival": _survival(results, arm.arm),
    }


def _share(event: EventShare) -> dict[str, Any]:
    return dataclasses.asdict(event)


def _survival(results: Results, arm: str) -> dict[str, Any] | None:
    curve = results.survivals.get(arm)
    if curve is None:
        return None
    found = dataclasses.asdict(curve)
    for end in ("low", "high"):  # a share of 0 has no interval by Greenwood's variance
        found[end] = [None if math.isnan(value) else value for value in found[end]]
    return found


def _happenings(summary: RunSummary) -> dict[str, Any] | None:
    """Return what else happened in a run, beside explosion and collapse."""
    if summary.events is None:
        return None
    found = dataclasses.asdict(summary.events)
    del found["exploded"], found["collapsed"]
    return found


def _run(summary: RunSummary, results: Results) -> dict[str, Any]:
    run = summary.run
    newest = run.attempts[-1] if run.attempts else None
    return {
        "arm": run.arm,
        "seed": run.seed,
        "identity": run.planned.identity,
        "state": run.state,
        "foreign": run.foreign,
        "source": run.source,
        "framework": run.framework,
        "keys": dict(run.keys.keys),
        "first_step": run.first_step,
        "last_step": run.last_step,
        "max_steps": run.planned.max_steps,
        "error": newest.exit.error if newest is not None and newest.exit is not None else "",
        "num_attempts": len(run.attempts),
        "num_superseded_steps": run.num_superseded,
        "metrics": {name: dataclasses.asdict(mean) for name, mean in summary.means.items()},
        "within": {
            name: dataclasses.asdict(noise)
            for name, noise in results.within.get((run.arm, run.seed), {}).items()
        },
        "exploded": _event(summary.exploded),
        "collapsed": _event(summary.collapsed),
        "events": _happenings(summary),
        "peak_kl": summary.peak_kl,
        "peak_kl_step": summary.peak_kl_step,
        "baseline_explosion_step": summary.baseline_explosion_step,
        "start": run.time.start,
        "end": run.time.end,
        "wall_s": run.time.wall_s,
        "steps_per_s": run.time.steps_per_s,
        "late_collapse_step": summary.late_collapse_step,
        # Nothing says what a foreign run held.
        "gpu_hours": None if run.source else run.time.gpu_hours,
        "lost_gpu_hours": None if run.source else run.time.lost_gpu_hours,
        **stop_fields(run),
        "hosts": sorted({a.claim.node or a.claim.host for a in run.attempts}),
        "processors": sorted({_processor(attempt.claim.machine) for attempt in run.attempts}),
    }


def _event(event: Event) -> dict[str, Any]:
    return dataclasses.asdict(event)


def _processor(machine: dict[str, Any]) -> str:
    """Return the CPU model, with the GPUs where a run had some."""
    cpu = machine.get("cpu_model")
    gpus = machine.get("gpus")
    names = [cpu] if isinstance(cpu, str) and cpu else []
    if isinstance(gpus, list):
        names += [str(gpu) for gpu in gpus]
    return " + ".join(names)


def _window(window: FinalWindow | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {
        "first": window.first,
        "last": window.last,
        "num_steps": len(window.steps),
        "common_first": window.common_first,
        "common_last": window.common_last,
        "num_common": window.num_common,
    }


def _file(run: Run, file: FileProvenance) -> dict[str, Any]:
    return {"arm": run.arm, "seed": run.seed, **dataclasses.asdict(file)}


def _newest_record(sweep: Sweep) -> float | None:
    times = [attempt.claim.time for run in sweep.runs for attempt in run.attempts]
    times += [run.time.end for run in sweep.runs if run.time.end is not None]
    return max(times, default=None)
