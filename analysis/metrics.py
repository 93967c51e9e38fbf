"""What is measured: canonical metrics, their definitions, and the keys that trainers log them as.

Adding a metric is one `MetricSpec` in `METRICS`; a key that another trainer uses is one more
pattern in `keys`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["higher", "lower", "none"]
Scale = Literal["difference", "ratio"]


@dataclass(frozen=True)
class MetricSpec:
    """One canonical metric.

    Attributes:
        name: canonical name, used in tables, plans and code.
        label: what the report calls it.
        unit: unit of a value; empty for a pure number.
        direction: which way is better; "none" for a diagnostic.
        scale: how two runs are compared: by difference, or by ratio (logs are averaged).
        definition: one sentence, with the weighting.
        keys: patterns of trainer keys (full match), in order of preference.
        bounds: values that are possible; intervals are cut there.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    scale: Scale
    definition: str
    keys: tuple[str, ...]
    bounds: tuple[float | None, float | None] = (None, None)


_SHARE = (0.0, 1.0)
_POSITIVE = (0.0, None)

_SPECS = (
    MetricSpec(
        "solve_rate",
        "solve rate",
        "",
        "higher",
        "difference",
        "mean reward (0 or 1) over all rollouts of a step; failed rollouts count as 0",
        (
            r"train/agg/all/[^/]+/reward/mean",
            r"train/[^/]+/all/[^/]+/reward/mean",
            r"train/agg/all/reward/mean",
            r"train/[^/]+/all/reward/mean",
            r"reward/all/mean",
            r"reward/mean",
        ),
        _SHARE,
    ),
    MetricSpec(
        "solve_rate_effective",
        "solve rate (effective)",
        "",
        "higher",
        "difference",
        "mean reward over the rollouts that are trained on; groups that are all solved or all "
        "failed may be left out, so it hides collapse",
        (
            r"train/agg/effective/[^/]+/reward/mean",
            r"train/[^/]+/effective/[^/]+/reward/mean",
            r"train/agg/effective/reward/mean",
            r"train/[^/]+/effective/reward/mean",
        ),
        _SHARE,
    ),
    MetricSpec(
        "mismatch_kl",
        "mismatch KL",
        "nats",
        "lower",
        "ratio",
        "mean over trained tokens of r - log r - 1, r = trainer / inference probability (k3)",
        (r"mismatch_kl/all/mean", r"mismatch_kl/mean"),
        _POSITIVE,
    ),
    MetricSpec(
        "mismatch_kl_sampled",
        "mismatch KL (sampled)",
        "nats",
        "lower",
        "ratio",
        "the same over all sampled tokens, trained or not",
        (r"mismatch_kl/sampled/mean",),
        _POSITIVE,
    ),
    MetricSpec(
        "is_masked",
        "masked fraction",
        "",
        "none",
        "difference",
        "mean over sequences of the share of their tokens that the loss masks",
        (r"is_masked/mean",),
        _SHARE,
    ),
    MetricSpec(
        "is_masked_token",
        "masked fraction (tokens)",
        "",
        "none",
        "difference",
        "masked tokens / trained tokens of a step",
        (r"is_masked/token_mean",),
        _SHARE,
    ),
    MetricSpec(
        "masked_mismatch_kl",
        "mismatch KL of masked tokens",
        "nats",
        "none",
        "ratio",
        "mismatch KL over masked tokens; in prime-rl a mean over sequences, 0 where none is masked",
        (r"masked_mismatch_kl/mean",),
        _POSITIVE,
    ),
    MetricSpec(
        "unmasked_mismatch_kl",
        "mismatch KL of kept tokens",
        "nats",
        "none",
        "ratio",
        "mismatch KL over kept tokens; in prime-rl a mean over sequences",
        (r"unmasked_mismatch_kl/mean",),
        _POSITIVE,
    ),
    MetricSpec(
        "entropy",
        "entropy",
        "nats",
        "none",
        "difference",
        "mean over trained tokens of the entropy of the trainer's distribution",
        (r"entropy/all/mean", r"entropy/mean"),
        _POSITIVE,
    ),
    MetricSpec(
        "grad_norm",
        "gradient norm",
        "",
        "none",
        "ratio",
        "global gradient norm before clipping",
        (r"optim/grad_norm",),
        _POSITIVE,
    ),
    MetricSpec(
        "importance_ratio_max_kept",
        "largest kept ratio",
        "",
        "none",
        "ratio",
        "largest trainer / inference probability among the tokens that the loss keeps in a step",
        (r"importance_ratio/max_kept",),
        _POSITIVE,
    ),
    MetricSpec(
        "token_class_rise",
        "rise tokens",
        "",
        "none",
        "difference",
        "share of trained tokens with r > 5 whose probability moved by at most 0.3: a ratio band "
        "up to 5 masks them, a mask on |dp| > 0.3 keeps them",
        (r"token_class/rise",),
        _SHARE,
    ),
    MetricSpec(
        "token_class_drop",
        "drop tokens",
        "",
        "none",
        "difference",
        "share of trained tokens with r >= 0.2 whose probability fell by more than 0.3: a mask on "
        "|dp| > 0.3 takes them, a ratio band from 0.2 keeps them",
        (r"token_class/drop",),
        _SHARE,
    ),
    MetricSpec(
        "nonfinite",
        "non-finite tokens",
        "tokens",
        "none",
        "difference",
        "tokens inside the loss mask whose log-probability is not finite",
        (r"nonfinite/count",),
        _POSITIVE,
    ),
    MetricSpec(
        "staleness",
        "staleness",
        "updates",
        "none",
        "difference",
        "mean number of updates between sampling and training",
        (r"off_policy/mean",),
        _POSITIVE,
    ),
    MetricSpec(
        "loss",
        "loss",
        "",
        "none",
        "difference",
        "the loss as the trainer logs it",
        (r"loss/mean",),
    ),
    MetricSpec(
        "learning_rate",
        "learning rate",
        "",
        "none",
        "difference",
        "learning rate of the step",
        (r"optim/lr",),
    ),
    MetricSpec(
        "solved_none",
        "groups all failed",
        "",
        "none",
        "difference",
        "share of prompt groups without any solved rollout",
        (r"train/[^/]+/all/[^/]+/solved_none", r"train/[^/]+/all/solved_none", r"solve_none/all"),
        _SHARE,
    ),
    MetricSpec(
        "solved_all",
        "groups all solved",
        "",
        "none",
        "difference",
        "share of prompt groups whose rollouts are all solved",
        (r"train/[^/]+/all/[^/]+/solved_all", r"train/[^/]+/all/solved_all", r"solve_all/all"),
        _SHARE,
    ),
    MetricSpec(
        "tokens",
        "trained tokens",
        "tokens",
        "none",
        "ratio",
        "tokens trained on since the start of the run",
        (r"progress/tokens",),
        _POSITIVE,
    ),
    MetricSpec(
        "throughput",
        "throughput",
        "tokens/s",
        "none",
        "ratio",
        "tokens per second as the trainer logs them",
        (r"perf/throughput",),
        _POSITIVE,
    ),
    MetricSpec(
        "step_time_s",
        "step time",
        "s",
        "none",
        "ratio",
        "wall-clock seconds of a trainer step",
        (r"time/step",),
        _POSITIVE,
    ),
)

METRICS: Mapping[str, MetricSpec] = {spec.name: spec for spec in _SPECS}
"""Every known metric by canonical name, in the order in which reports list them."""

_PATTERNS = {
    spec.name: tuple(re.compile(key) for key in (re.escape(spec.name), *spec.keys))
    for spec in _SPECS
}


@dataclass(frozen=True)
class KeyResolution:
    """Which key means which metric in one run.

    Attributes:
        keys: canonical name -> key, for the metrics that are there.
        problems: canonical name -> why it isn't, where more can be said than "not logged".
    """

    keys: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def metric_spec(name: str) -> MetricSpec:
    """Return the metric called `name`; one that nobody registered is a plain diagnostic."""
    known = METRICS.get(name)
    if known is not None:
        return known
    return MetricSpec(name, name, "", "none", "difference", "as the trainer logs it", ())


def is_metric_key(key: str) -> bool:
    """Whether `key` may mean a registered metric."""
    return any(pattern.fullmatch(key) for patterns in _PATTERNS.values() for pattern in patterns)


def resolve_keys(available: Collection[str], metrics_keys: Mapping[str, str]) -> KeyResolution:
    """Return which of the `available` keys mean which metric.

    A canonical name in `metrics_keys` (from run.json) stands for that key and no other. Of a
    metric's patterns the first with a match counts; several matches of one pattern are ambiguous
    and resolve to nothing. Definitions are never mixed: `solve_rate` doesn't fall back to the
    effective one.
    """
    resolution = KeyResolution()
    for name in (*METRICS, *(n for n in metrics_keys if n not in METRICS and n != "step")):
        if name in metrics_keys:
            key = metrics_keys[name]
            if key in available:
                resolution.keys[name] = key
            else:
                resolution.problems[name] = f"no key `{key}`{nearest_keys(key, available)}"
            continue
        for pattern in _PATTERNS[name]:
            matches = sorted(key for key in available if pattern.fullmatch(key))
            if len(matches) == 1:
                resolution.keys[name] = matches[0]
            elif matches:
                listed = ", ".join(f"`{key}`" for key in matches)
                resolution.problems[name] = f"several keys may mean it: {listed}"
            if matches:
                break
    return resolution


def nearest_keys(name: str, available: Iterable[str]) -> str:
    """Return "; nearest: ..." with up to three similar keys, or nothing."""
    near = difflib.get_close_matches(name, sorted(available), n=3, cutoff=0.5)
    return f"; nearest: {', '.join(f'`{key}`' for key in near)}" if near else ""
