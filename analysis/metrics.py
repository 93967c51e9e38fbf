"""Which key of a run means which metric, and by which definition."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from analysis.metric_spec import Direction, Key, MetricSpec, Scale
from analysis.registry import METRICS

__all__ = [
    "METRICS",
    "Direction",
    "Key",
    "KeyResolution",
    "MetricSpec",
    "Scale",
    "is_metric_key",
    "metric_spec",
    "nearest_keys",
    "resolve_keys",
]


@dataclass(frozen=True)
class KeyResolution:
    """Which key means which metric in one run.

    Attributes:
        keys: canonical name -> key, for the metrics that are there.
        problems: canonical name -> why it isn't, where more can be said than "not logged".
        definitions: canonical name -> which of the metric's definitions the key follows; empty for
            the metric's own, and for keys that a user or a run record named.
    """

    keys: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)


_PATTERNS: Mapping[str, tuple[tuple[re.Pattern[str], Key], ...]] = {
    spec.name: tuple(
        (re.compile(key.pattern), key) for key in (Key(re.escape(spec.name)), *spec.keys)
    )
    for spec in METRICS.values()
}


def metric_spec(name: str) -> MetricSpec:
    """Return the metric called `name`; one that nobody registered is a plain diagnostic."""
    known = METRICS.get(name)
    if known is not None:
        return known
    return MetricSpec(name, name, "", "none", "difference", "as the trainer logs it", ())


@functools.lru_cache(maxsize=100_000)
def is_metric_key(key: str) -> bool:
    """Whether `key` may mean a registered metric, in a run of whatever framework."""
    return any(pattern.fullmatch(key) for patterns in _PATTERNS.values() for pattern, _ in patterns)


def resolve_keys(
    available: Collection[str], metrics_keys: Mapping[str, str], framework: str = ""
) -> KeyResolution:
    """Return which of the `available` keys mean which metric, and by which definition.

    A canonical name in `metrics_keys` (from run.json, or from a user) stands for that key and no
    other. Of a metric's keys the first with a match counts; several matches of one pattern are
    ambiguous and resolve to nothing. `solve_rate` falls back to the effective one only where
    nothing counts all rollouts, and says so in `definitions`.

    Args:
        framework: whose keys they are; empty where nobody knows, and then keys that mean a metric
            in one framework alone are left out.
    """
    resolution = KeyResolution()
    for name in (*METRICS, *(n for n in metrics_keys if n not in METRICS and n not in _NO_METRICS)):
        if name in metrics_keys:
            key = metrics_keys[name]
            if key in available:
                resolution.keys[name] = key
                resolution.definitions[name] = _definition_of(name, key, framework)
            else:
                resolution.problems[name] = f"no key `{key}`{nearest_keys(key, available)}"
            continue
        for pattern, meant in _PATTERNS[name]:
            if meant.frameworks and framework not in meant.frameworks:
                continue
            matches = sorted(key for key in available if pattern.fullmatch(key))
            if len(matches) == 1:
                resolution.keys[name] = matches[0]
                resolution.definitions[name] = meant.definition
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


_NO_METRICS = ("step", "time", "attempt")
"""What a mapping may name beside metrics."""


def _definition_of(name: str, key: str, framework: str) -> str:
    """Return the definition of a key that was named; the metric's own for one nobody registered."""
    for pattern, meant in _PATTERNS.get(name, ()):
        of_it = not meant.frameworks or framework in meant.frameworks
        if of_it and pattern.fullmatch(key):
            return meant.definition
    return ""
