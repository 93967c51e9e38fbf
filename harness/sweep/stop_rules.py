"""`stop_when:` of a sweep file: what stops a run before its last step.

Rules say how long runs go on, never what they compute: no run's identity and no difference between
arms holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.config.check import check_value
from harness.config.fields import Limits
from harness.config.groups import MAX_MAX_STEPS
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.model import STOP_EVENTS, AnalysisSpec, StopRule
from harness.trainers.registry import load_trainer

DEFAULT = "default"
"""Stands for `default_rules`."""

_UNSOLVED = 0.001
_NUM_WINDOWS = 3
_BESIDE_EVENT = {"collapsed": "below", "entropy_collapsed": "below", "exploded": "above"}
_EXAMPLE = "write `stop_when: [{event: collapsed, hold_steps: 40}]`, or `stop_when: default`"


def default_rules(analysis: AnalysisSpec) -> tuple[StopRule, ...]:
    """Return the rules that `default` stands for: the solve rate has collapsed, and not one rollout
    in a thousand was solved in any of the steps of three collapse windows.

    Where every rollout fails no group has rewards that differ, so that there is nothing to learn
    from. A solve rate that is merely low, however long, and an explosion of mismatch KL are no
    reason: runs come back from both. Of 120 runs of the recipe of `ipo_vs_icepop` (24 seeds) it
    stops 58 of the 62 that collapsed and none of the others, one of which had 31 such steps in a
    row.
    """
    hold_steps = _NUM_WINDOWS * analysis.collapse_window
    return (StopRule("collapsed", below=_UNSOLVED, hold_steps=hold_steps),)


def load_stop_when(content: Any, path: Path, analysis: AnalysisSpec) -> tuple[StopRule, ...]:
    """Return the checked rules of a `stop_when:` block; none where there is no block.

    Raises:
        UsageError: an entry is no rule; names the file, the key and the value.
    """
    where = f"`{path}`: `stop_when`"
    if content is None:
        return ()
    if content == DEFAULT:
        return default_rules(analysis)
    if not isinstance(content, list):
        raise UsageError(f"{where} is {content!r}, want a list of rules", _EXAMPLE)
    return _distinct((rule for entry in content for rule in _load(entry, analysis, where)), where)


def parse_rules(texts: Iterable[str], analysis: AnalysisSpec) -> tuple[StopRule, ...]:
    """Return the rules that words such as `collapsed:hold_steps=40` say; `default` may be one.

    Raises:
        UsageError: a word is no rule.
    """
    rules: list[StopRule] = []
    for text in texts:
        where = f"--rule {text}"
        name, has_keys, rest = text.partition(":")
        if name == DEFAULT and not has_keys:
            rules += default_rules(analysis)
            continue
        kind = "event" if name in STOP_EVENTS else "metric"
        entry: dict[str, Any] = {kind: name}
        for part in filter(None, rest.split(",")):
            key, is_given, value = part.partition("=")
            if not is_given or key in ("event", "metric") or key in entry:
                raise UsageError(
                    f"{where}: want NAME:KEY=VALUE,…, each key once",
                    "such as --rule collapsed:hold_steps=40 or --rule mismatch_kl:above=0.5",
                )
            entry[key] = _value(value, where)
        rules += _load(entry, analysis, where)
    return _distinct(rules, "--rule")


def earliest_step(rule: StopRule, analysis: AnalysisSpec) -> int:
    """Return the first step of a run, counted from 1, at which `rule` could fire."""
    end = analysis.baseline_steps[1]
    if rule.event in ("collapsed", "entropy_collapsed"):
        return end + max(analysis.collapse_window, rule.hold_steps)
    if rule.event == "exploded":
        return end + 1
    return rule.after_step + rule.hold_steps


def check_logged(
    rules: Iterable[StopRule], configs: Mapping[str, Mapping[str, Any]], path: Path
) -> None:
    """Refuse a rule on metrics that the trainer of a run is known not to log.

    Args:
        configs: run -> its resolved configuration.

    Raises:
        UsageError: names the rule and the run.
    """
    rules = tuple(rules)
    if not rules:
        return
    from analysis.stopping import metrics_of  # noqa: PLC0415 (numpy, only where there are rules)

    for run_id, config in configs.items():
        logged = load_trainer(config["trainer"]["type"]).logged(config)
        for rule in rules if logged is not None else ():
            names = metrics_of(rule)
            if not set(names) & set(logged or ()):
                raise UsageError(
                    f"`{path}`: `stop_when`: `{rule.text}` could never hold: the trainer"
                    f" `{config['trainer']['type']}` of {run_id} logs no"
                    f" {' and no '.join(f'`{name}`' for name in names)}",
                    did_you_mean(names[0], logged or (), what="metrics"),
                )


def _load(entry: Any, analysis: AnalysisSpec, where: str) -> tuple[StopRule, ...]:
    if entry == DEFAULT:
        return default_rules(analysis)
    if isinstance(entry, str):
        entry = {"event": entry}
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} holds {entry!r}, which is no rule", _EXAMPLE)
    return (_load_mapping(entry, where),)


def _load_mapping(entry: Mapping[Any, Any], where: str) -> StopRule:
    known = ("event", "metric", "above", "below", "hold_steps", "after_step")
    for key in entry:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key `{key}`", did_you_mean(str(key), known, what="keys")
            )
    if ("event" in entry) == ("metric" in entry):
        raise UsageError(f"{where}: {dict(entry)!r} wants either `event` or `metric`", _EXAMPLE)
    steps = {
        key: check_value(int, entry[key], Limits(ge=1, le=MAX_MAX_STEPS), key, lambda _: where)
        for key in ("hold_steps", "after_step")
        if key in entry
    }
    bounds = {
        key: check_value(float, entry[key], Limits(), key, lambda _: where)
        for key in ("above", "below")
        if key in entry
    }
    if "event" in entry:
        _check_event(entry, where)
        return StopRule(event=entry["event"], **bounds, **steps)
    _check_predicate(str(entry["metric"]), bounds, where)
    return StopRule(metric=entry["metric"], **bounds, **steps)


def _check_event(entry: Mapping[Any, Any], where: str) -> None:
    event = entry["event"]
    if event not in STOP_EVENTS:
        raise UsageError(
            f"{where}: there is no event `{event}`{_metric_hint(event)}",
            did_you_mean(str(event), (*STOP_EVENTS, DEFAULT), what="events"),
        )
    allowed = ("event", "hold_steps", _BESIDE_EVENT.get(event))
    for key in entry:
        if key not in allowed:
            shown = ", ".join(f"`{name}`" for name in allowed[1:] if name)
            raise UsageError(f"{where}: `{event}` takes no `{key}`", f"it takes {shown}")


def _check_predicate(metric: str, bounds: Mapping[str, float], where: str) -> None:
    from analysis.metrics import METRICS  # noqa: PLC0415 (only where it is declared)

    if metric not in METRICS:
        raise UsageError(
            f"{where}: there is no metric `{metric}`",
            did_you_mean(metric, (*METRICS, *STOP_EVENTS), what="metrics"),
        )
    if not bounds:
        raise UsageError(
            f"{where}: `{metric}` has no bound", "add `above: NUMBER` or `below: NUMBER`"
        )
    above, below = bounds.get("above"), bounds.get("below")
    if above is not None and below is not None and above >= below:
        raise UsageError(
            f"{where}: no value of `{metric}` is above {above:g} and below {below:g}",
            "where either is a reason, make it two rules",
        )
    low, high = METRICS[metric].bounds
    is_too_high = above is not None and high is not None and above >= high
    is_too_low = below is not None and low is not None and below <= low
    if is_too_high or is_too_low:
        beyond = f"above {above:g}" if is_too_high else f"below {below:g}"
        raise UsageError(
            f"{where}: `{metric}` is never {beyond}",
            f"it lies between {'-inf' if low is None else f'{low:g}'} and"
            f" {'inf' if high is None else f'{high:g}'}",
        )


def _metric_hint(name: Any) -> str:
    from analysis.metrics import METRICS  # noqa: PLC0415 (only for this message)

    is_metric = isinstance(name, str) and name in METRICS
    return ", and a metric needs a bound" if is_metric else ""


def _value(text: str, where: str) -> Any:
    try:
        number = yaml.safe_load(text)
    except yaml.YAMLError:
        number = text
    if isinstance(number, str):  # YAML 1.1 takes 1e-3 for text
        try:
            return float(number)
        except ValueError:
            raise UsageError(
                f"{where}: {text!r} is no number", "write NAME:KEY=VALUE, such as above=0.5"
            ) from None
    return number


def _distinct(rules: Iterable[StopRule], where: str) -> tuple[StopRule, ...]:
    found: dict[str, StopRule] = {}
    for rule in rules:
        if rule.text in found:
            raise UsageError(f"{where}: the rule `{rule.text}` stands twice", "name it once")
        found[rule.text] = rule
    return tuple(found.values())
