"""Replicates against their arms (A/A), and what they tell of the comparisons beside them.

Two arms of one configuration differ by chance alone, so what they differ by is the noise that a
difference between arms has to exceed. The test is the sweep's own: pairs of an arm and its
replicate share what the trainer makes once per seed (the warm start, a fork's checkpoint) and no
other random number. No A/A comparison is part of Holm's family or ends in better or worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.barriers import count_of
from analysis.comparison import EVENT_NOUNS, EVENTS
from analysis.drafts import Draft, draft_event, draft_metric, event_share, possible
from analysis.metrics import metric_spec
from analysis.noise import NoiseInterval, SeedNoise, noise_interval, seed_noise
from analysis.runs import Run, Sweep
from analysis.summary import ArmSummary, on_scale
from analysis.verdicts import Comparison, ReplicateDifference, Verdict
from harness.records.model import AnalysisSpec, PlannedArm

MIN_OWN_RUNS = 3
"""With fewer runs per arm, the spread of A/A differences is laid around an effect, too."""


def replicates_of(arms: Sequence[PlannedArm]) -> dict[str, str]:
    """Return the arm that each replicate is one of, in the order of the plan."""
    return {arm.name: arm.replicate_of for arm in arms if arm.replicate_of is not None}


def compare_replicates(
    arms: Sequence[ArmSummary],
    replicates: Mapping[str, str],
    *,
    pairing: str,
    spec: AnalysisSpec,
) -> list[Comparison]:
    """Return every replicate against its arm, in each primary metric, event and exploratory metric.

    Args:
        replicates: replicate -> its arm.
    """
    by_name = {arm.arm: arm for arm in arms}
    names = [*spec.primary, *(name for name in spec.exploratory if name not in spec.primary)]
    found = []
    for name, of in replicates.items():
        arm, base = by_name[name], by_name[of]
        drafts = [draft_metric(arm, base, metric_spec(m), pairing, spec, {}) for m in spec.primary]
        drafts += [draft_event(arm, base, event, spec) for event in EVENTS]
        drafts += [
            draft_metric(arm, base, metric_spec(m), pairing, spec, {})
            for m in names[len(spec.primary) :]
        ]
        found += [_decide(draft, arm, base, spec) for draft in drafts]
    return found


def hold_against_replicates(
    comparisons: Sequence[Comparison],
    of_replicates: Sequence[Comparison],
    arms: Sequence[ArmSummary],
    baseline: str,
    *,
    pairing: str,
    spec: AnalysisSpec,
    with_noise: bool = True,
) -> list[Comparison]:
    """Return `comparisons` with the A/A differences of either of their arms beside them.

    Args:
        of_replicates: what `compare_replicates` found.
        with_noise: with fewer than `MIN_OWN_RUNS` runs on a side, lay the spread between an arm and
            its replicates around the effect.
    """
    by_name = {arm.arm: [summary.run for summary in arm.done] for arm in arms}
    found = []
    for item in comparisons:
        sides = (baseline, item.arm)
        beside = [a for a in of_replicates if a.replicate_of in sides and a.name == item.name]
        families = {
            of: [of, *dict.fromkeys(a.arm for a in beside if a.replicate_of == of)]
            for of in dict.fromkeys(a.replicate_of for a in beside)
        }
        noise = None
        if with_noise and min(item.num_arm, item.num_baseline) < MIN_OWN_RUNS:
            cells = [
                cell
                for family in families.values()
                for cell in _cells([run for name in family for run in by_name[name]], pairing)
            ]
            noise = _noise(item, cells, f"{', '.join(families)} and replicates (A/A)", spec)
        found.append(
            replace(
                item,
                noise=noise or item.noise,
                replicates=tuple(_beside(item, a) for a in beside if a.effect is not None),
            )
        )
    return found


def repeating_runs(sweep: Sweep) -> dict[str, list[int]]:
    """Return the seeds with which a replicate logged what its arm did, to the last bit.

    No noise was drawn there: the trainer repeats equal seeds, and knew nothing of the replicate.
    """
    found: dict[str, list[int]] = {}
    for name, of in replicates_of(sweep.plan.arms).items():
        seeds = {run.seed: run for run in sweep.of_arm(of)}
        for run in sweep.of_arm(name):
            twin = seeds.get(run.seed)
            if twin is not None and _is_equal(run, twin, sweep.plan.analysis.primary):
                found.setdefault(name, []).append(run.seed)
    return found


def _is_equal(run: Run, twin: Run, metrics: Sequence[str]) -> bool:
    pairs = [(run.curve(name), twin.curve(name)) for name in metrics]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return bool(known) and all(
        np.array_equal(a.steps, b.steps) and np.array_equal(a.values, b.values, equal_nan=True)
        for a, b in known
    )


def _decide(draft: Draft, arm: ArmSummary, base: ArmSummary, spec: AnalysisSpec) -> Comparison:
    found = replace(
        draft.comparison,
        replicate_of=base.arm,
        is_exploratory=draft.comparison.name in spec.exploratory,
        rule=f"{draft.comparison.test}, A/A",
    )
    if draft.barrier is not None:
        barrier = draft.barrier
        return replace(found, verdict=barrier.verdict, detail=barrier.detail, rule=barrier.rule)
    if draft.decided_by:
        shares = (event_share(side, draft.decided_by) for side in (arm, base))
        number = sum(len(share.steps) for share in shares)
        noun = EVENT_NOUNS[draft.decided_by]
        return replace(found, p=None, detail=f"says little after the {noun} of {count_of(number)}")
    assert found.p is not None
    if found.p < spec.alpha:
        return replace(found, detail=f"A/A apart at {100 * spec.alpha:g} %")
    return replace(found, verdict=Verdict.NO_DIFFERENCE, detail="A/A")


def _beside(item: Comparison, aa: Comparison) -> ReplicateDifference:
    ends = [aa.effect] if aa.low is None or aa.high is None else [aa.low, aa.high]
    reach = [_distance(aa, end) for end in ends if end is not None]
    own = _distance(item, item.effect)
    known = [distance for distance in reach if distance is not None]
    covers = own is not None and len(known) == len(reach) and own <= max(known)
    return ReplicateDifference(aa.arm, aa.replicate_of, aa.effect, aa.low, aa.high, covers)


def _distance(item: Comparison, effect: float | None) -> float | None:
    """Return how far `effect` is from none, where differences are taken."""
    if effect is None or item.scale != "ratio":
        return None if effect is None else abs(effect)
    scaled = on_scale(metric_spec(item.name), effect)
    return float("inf") if scaled is None else abs(scaled)


def _cells(runs: Sequence[Run], pairing: str) -> list[list[Run]]:
    """Return runs that chance alone tells apart: those of equal seed, where seeds pair runs."""
    if pairing != "seed":
        return [list(runs)]
    return [[run for run in runs if run.seed == seed] for seed in sorted({r.seed for r in runs})]


def _noise(
    item: Comparison, cells: Sequence[Sequence[Run]], label: str, spec: AnalysisSpec
) -> NoiseInterval | None:
    if item.scale == "share" or item.effect is None or not cells:
        return None
    metric = metric_spec(item.name)
    noise: SeedNoise | None = seed_noise(cells, item.name, spec, label=label)
    effect = on_scale(metric, item.effect)
    if noise is None or noise.sd == 0 or effect is None:
        return None
    low, high = noise_interval(effect, noise, item.num_arm, item.num_baseline, spec.alpha)
    return NoiseInterval(
        possible(metric, low), possible(metric, high), noise.sd, noise.df, noise.label
    )
