"""The tables of what came out, made from report.json and rendered as HTML and Markdown alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.differ import text_of
from analysis.metrics import metric_spec
from analysis.report.cells import Cell, Column, Report, Table, make_arm_cell, make_cell
from analysis.report.numbers import (
    NONE,
    Number,
    format_effect,
    format_level,
    format_mean,
    format_metric,
    format_number,
    format_p,
    format_share,
)
from analysis.report.replicate_cells import REPLICATE_NOTE, beside_cell, replicate_cell
from analysis.report.stops import judged_runs, num_ended, seeds_cell_lines

SHOWN_METRICS = ("solve_rate", "solve_rate_effective", "mismatch_kl", "is_masked", "entropy")

_EVENT_NOUNS = {"collapsed": "collapse", "exploded": "explosion"}

_TONES = {
    "better": "good",
    "equivalent": "good",
    "worse": "bad",
    "collapsed": "bad",
    "incomplete": "warn",
    "not decidable": "muted",
    "no detectable difference": "muted",
}


def verdict_table(report: Report) -> Table:
    """One row per arm: how many seeds, what they come to, and the verdicts."""
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for item in report["comparisons"]:
        by_arm.setdefault(item["arm"], []).append(item)
    columns = (
        Column("arm"),
        Column("seeds", True, "finished of planned"),
        Column(f"against {report['baseline']}"),
        Column("solve rate", True, "below: over the rollouts that are trained on (effective)"),
        Column("mismatch KL", True, "below: median over seeds of the highest windowed mean"),
        Column("masked fraction", True),
        Column("entropy", True),
        Column("exploded", True),
        Column("collapsed", True),
    )
    rows = tuple(_verdict_row(arm, by_arm.get(arm["name"], [])) for arm in report["arms"])
    level = format_level(report["analysis"]["alpha"])
    note = (
        f"Means over seeds of each run's final window, with {level} t intervals; mismatch KL as a "
        "geometric mean. Effective: over the rollouts that are trained on, which hides groups "
        "that all failed, and runs that have no others. Peak: median over seeds of the highest "
        f"windowed mean. Exploded and collapsed: {judged_runs(report)}{_up_to(report)}, with "
        "Jeffreys intervals."
    )
    if any(arm["collapsed"]["steps"] for arm in report["arms"]):
        note += (
            " Where some runs collapsed, means and intervals mix two kinds of run: read the"
            " collapsed column. After a collapse weights freeze and the final KL says nothing:"
            " compare peaks."
        )
    return Table("verdicts", "Verdict", columns, rows, note)


def comparison_table(report: Report) -> Table:
    """One row per arm and primary metric or event, with everything behind the verdict."""
    has_replicates = any(item.get("replicate_of") for item in report["comparisons"])
    columns = (
        Column("arm"),
        Column("in"),
        Column("verdict"),
        Column("effect", True, "arm - baseline, or arm / baseline"),
        *([Column("A/A", True, "replicate - its arm, or / it")] if has_replicates else []),
        Column("p", True, "two-sided, unadjusted"),
        Column("p (Holm)", True, "adjusted for all comparisons of the sweep"),
        Column("MDE", True, "minimum detectable effect, and how well it is known"),
        Column("runs", True, "arm / baseline; pairs where paired"),
        Column("window", True, "steps that the values are taken over"),
        Column("decided by"),
    )
    rows = tuple(
        _comparison_row(item, has_replicates=has_replicates) for item in report["comparisons"]
    )
    level = format_level(report["analysis"]["alpha"])
    note = (
        f"Intervals ({level}) are before Holm, verdicts after it: an interval may exclude 0 (or a"
        " ratio of 1) where no difference is detectable. MDE: the smallest true effect that the"
        " test finds with a power of 0.8, with the interval that the uncertainty of the spread"
        " leaves it. The interval of a difference of shares is Newcombe's, from both Jeffreys"
        " intervals; it is narrower than Fisher's test allows."
    )
    if any(item["iqm"] for item in report["comparisons"]):
        bootstrap = report["bootstrap"]
        note += (
            " IQM: difference of interquartile means, with a bootstrap over pairs, or over the runs"
            " of each arm where they are unpaired (seed"
            f" {bootstrap['seed']}, {bootstrap['num_replicates']:,} replicates)."
        )
    if any(item["is_exploratory"] for item in report["comparisons"]):
        note += " Exploratory: outside Holm's family and without a better or worse."
    if has_replicates:
        note += REPLICATE_NOTE
    if any(item["is_interim"] for item in report["comparisons"]):
        note += " Interim: planned runs are missing, so effects and p will still move."
    return Table("comparisons", f"Every comparison with {report['baseline']}", columns, rows, note)


def _or_unset(value: Any) -> str:
    return "unset" if value is None else text_of(value)


def change_table(report: Report) -> Table:
    """What each arm sets, and what that changes against the baseline."""
    rows = []
    for arm in report["arms"]:
        changes = [
            f"{c['key']}: {_or_unset(c['baseline'])} \N{RIGHTWARDS ARROW} {_or_unset(c['arm'])}"
            for c in arm["changes"]
            if c["baseline"] is not None or c["arm"] is not None
        ]
        of = arm.get("replicate_of")
        same = "the baseline" if arm["is_baseline"] else "noise alone" if of else "nothing"
        sets = (f"replicate of {of}",) if of else arm["overrides"] or (NONE,)
        rows.append(
            (
                make_arm_cell(arm["name"]),
                make_cell(*sets),
                make_cell(*changes) if changes else make_cell(same, tone="muted"),
            )
        )
    columns = (Column("arm"), Column("set"), Column("changes against the baseline"))
    return Table("changes", "What each arm changes", columns, tuple(rows))


def event_table(report: Report) -> Table:
    """Where the two events happened, by arm."""
    rows = []
    for name in ("exploded", "collapsed"):
        for arm in report["arms"]:
            event = arm[name]
            without = sorted(set(event["censored_at"]))
            share = event["share"]
            rows.append(
                (
                    make_cell(name),
                    make_arm_cell(arm["name"]),
                    make_cell(_share_text(share), tone="bad" if event["steps"] else ""),
                    make_cell(", ".join(str(step) for step in event["steps"]) or NONE),
                    make_cell(", ".join(f">{step}" for step in without) or NONE),
                    make_cell(str(event["num_undecidable"]) if event["num_undecidable"] else NONE),
                )
            )
    columns = (
        Column("event"),
        Column("arm"),
        Column(judged_runs(report), True),
        Column("at steps"),
        Column("not up to step"),
        Column("not decidable", True),
    )
    note = (
        f"The two are separate facts, of {judged_runs(report)}{_up_to(report)}. A run without the "
        "event says so only up to the step that is named."
    )
    return Table("events", "Events", columns, tuple(rows), note)


def seed_table(report: Report) -> Table:
    """One row per run: state, final means, events."""
    columns = (
        Column("arm"),
        Column("seed", True),
        Column("state"),
        Column("step", True),
        *(Column(metric_spec(name).label, True) for name in SHOWN_METRICS),
        Column("peak KL", True),
        Column("exploded", True),
        Column("collapsed", True),
    )
    rows = tuple(
        (
            make_arm_cell(run["arm"]),
            make_cell(str(run["seed"])),
            make_cell(run["state"], tone="" if run["state"] == "done" else "warn"),
            make_cell(_progress_text(run)),
            *(_run_metric_cell(run, name) for name in SHOWN_METRICS),
            make_cell(_peak_text(run)),
            _event_cell(run["exploded"]),
            _event_cell(run["collapsed"]),
        )
        for run in report["runs"]
    )
    note = "Means over the final window, of finished runs. Peak KL: highest windowed mean, at step."
    if report["judged_to"] is not None:
        note += f" Events and peaks: every run{_up_to(report)}."
    return Table("seeds", "Every run", columns, rows, note)


def _verdict_row(arm: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> tuple[Cell, ...]:
    is_whole = num_ended(arm) == arm["num_planned"]
    if arm["is_baseline"]:
        verdict = make_cell("the baseline", tone="muted")
    else:
        verdict = _verdict_cell(items)
    return (
        make_arm_cell(arm["name"]),
        make_cell(*seeds_cell_lines(arm), tone="" if is_whole else "warn"),
        verdict,
        _arm_metric_cell(
            arm,
            "solve_rate",
            "effective",
            _arm_mean(arm, "solve_rate_effective"),
            _of_runs(arm, "solve_rate_effective"),
        ),
        _arm_metric_cell(arm, "mismatch_kl", "peak", arm["median_peak_kl"]),
        _arm_metric_cell(arm, "is_masked"),
        _arm_metric_cell(arm, "entropy"),
        _arm_event_cell(arm["exploded"]),
        _arm_event_cell(arm["collapsed"]),
    )


def _verdict_cell(items: Sequence[Mapping[str, Any]]) -> Cell:
    """Return the verdicts; the reasons stand here only where one reason holds for all."""
    if items and items[0].get("replicate_of"):
        return replicate_cell(items)
    words = {_words(item) for item in items}
    if len(words) == 1:
        return make_cell(words.pop(), tone=_TONES.get(items[0]["verdict"], ""))
    by_verdict: dict[str, list[str]] = {}
    for item in items:
        by_verdict.setdefault(item["verdict"], []).append(_label(item))
    lines = tuple(f"{verdict}: {', '.join(labels)}" for verdict, labels in by_verdict.items())
    return Cell(lines, tones=tuple(_TONES.get(verdict, "") for verdict in by_verdict))


def _comparison_row(item: Mapping[str, Any], *, has_replicates: bool) -> tuple[Cell, ...]:
    counts = f"{item['num_arm']} / {item['num_baseline']}"
    if item["test"] == "paired t":
        counts = f"{item['num_arm']} pairs"
    notes = [f"A/A of {item['replicate_of']}"] if item.get("replicate_of") else []
    notes += ["exploratory"] if item["is_exploratory"] else []
    return (
        make_arm_cell(item["arm"]),
        make_cell(_label(item), *notes),
        make_cell(_words(item), tone=_TONES.get(item["verdict"], "")),
        _effect_cell(item),
        *([beside_cell(item)] if has_replicates else []),
        make_cell(format_p(item["p"])),
        make_cell(format_p(item["p_holm"])),
        _mde_cell(item),
        make_cell(counts),
        make_cell(_window_text(item["window"])),
        make_cell(item["rule"] or item["test"]),
    )


def _effect_cell(item: Mapping[str, Any]) -> Cell:
    """Return effect and interval, and below them what stands beside the declared test."""
    effect = format_effect(item["scale"], item["effect"], item["low"], item["high"])
    is_interim = item["is_interim"] and item["effect"] is not None
    lines = [f"{effect} (interim)" if is_interim else effect]
    if item["iqm"]:
        iqm = item["iqm"]
        shown = format_effect(item["scale"], iqm["effect"], iqm["low"], iqm["high"])
        lines.append(f"IQM {shown}")
    if item["noise"]:
        noise = item["noise"]
        shown = format_effect(item["scale"], item["effect"], noise["low"], noise["high"])
        lines.append(f"by the seed noise of {noise['label']}: {shown}")
    return Cell(tuple(lines), tones=("", *("muted" for _ in lines[1:])))


def _window_text(window: Sequence[int] | None) -> str:
    return NONE if window is None else f"{window[0]}-{window[1]}"


def _mde_cell(item: Mapping[str, Any]) -> Cell:
    ends = [_mde_number(item, item[name]) for name in ("mde_low", "mde_high")]
    by_event = "Fisher" in item["rule"] and item["scale"] != "share"
    # Where an event decides, this is still what the declared test could have found.
    lines = [_mde_number(item, item["mde"]) + (f" ({item['test']})" if by_event else "")]
    if item["mde_low"] is not None and item["mde_high"] is not None:
        lines.append(f"[{ends[0]}, {ends[1]}]")
    return Cell(tuple(lines), tones=("", *("muted" for _ in lines[1:])))


def _mde_number(item: Mapping[str, Any], mde: Any) -> str:
    if mde is None:
        return NONE
    if isinstance(mde, str):
        return "> 1" if item["scale"] == "share" else format_number(mde)
    is_share = metric_spec(item["name"]).bounds == (0.0, 1.0) or item["scale"] == "share"
    if item["scale"] != "ratio" and is_share:
        return "> 1" if mde > 1 else f"{mde:.3f}"
    return format_effect(item["scale"], mde, None, None).removeprefix("+")


def _words(item: Mapping[str, Any]) -> str:
    detail = item["detail"]
    if item["verdict"] == "equivalent":
        return f"{item['verdict']} {detail}"
    return f"{item['verdict']} ({detail})" if detail else str(item["verdict"])


def _label(item: Mapping[str, Any]) -> str:
    return _EVENT_NOUNS.get(item["name"]) or metric_spec(item["name"]).label


def _arm_metric_cell(
    arm: Mapping[str, Any],
    name: str,
    extra_label: str = "",
    extra: Number = None,
    extra_note: str = "",
) -> Cell:
    """Return mean and interval of a metric, and below them a number that belongs beside it."""
    mean = arm["metrics"].get(name)
    if mean is None:
        lines = ["no value" if arm["num_done"] else NONE]
        if name not in arm["logged"] and arm["logged"]:
            lines = ["not logged"]
    else:
        text, _, interval = format_mean(name, mean["mean"], mean["low"], mean["high"]).partition(
            " ["
        )
        lines = [text, f"[{interval}"] if interval else [text]
    if extra is not None:
        lines.append(f"{extra_label} {format_metric(name, extra)}{extra_note}")
    first = "" if mean is not None else "muted"
    return Cell(tuple(lines), tones=(first, *("muted" for _ in lines[1:])))


def _arm_mean(arm: Mapping[str, Any], name: str) -> Number:
    mean = arm["metrics"].get(name)
    value: Number = None if mean is None else mean["mean"]
    return value


def _of_runs(arm: Mapping[str, Any], name: str) -> str:
    """Return ` (2 of 12)` where a metric has a value in some of the finished runs only."""
    mean = arm["metrics"].get(name)
    if mean is None or mean["n"] == arm["num_done"]:
        return ""
    return f" ({mean['n']} of {arm['num_done']})"


def _up_to(report: Report) -> str:
    """Return how far events and peaks are judged, behind what they are of."""
    return "" if report["judged_to"] is None else f" up to step {report['judged_to']}"


def _arm_event_cell(event: Mapping[str, Any]) -> Cell:
    text, _, interval = _share_text(event["share"]).partition(" [")
    lines = [text, f"[{interval}"] if interval else [text]
    if event["steps"]:
        first, last = event["steps"][0], event["steps"][-1]
        lines.append(f"step {first}" if first == last else f"steps {first}-{last}")
    if event["num_undecidable"]:
        lines.append(f"{event['num_undecidable']} not decidable")
    first_tone = "bad" if event["steps"] else ""
    return Cell(tuple(lines), tones=(first_tone, *("muted" for _ in lines[1:])))


def _event_cell(event: Mapping[str, Any]) -> Cell:
    if event["state"] == "yes":
        return make_cell(f"step {event['step']}", tone="bad")
    if event["state"] == "no":
        return make_cell(f"no (>{event['last_step']})")
    return make_cell("not decidable", tone="muted")


def _share_text(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return NONE
    return format_share(share["k"], share["n"], share["low"], share["high"])


def _run_metric_cell(run: Mapping[str, Any], name: str) -> Cell:
    mean = run["metrics"].get(name)
    if mean is None:
        return make_cell(NONE)
    lost = f" ({mean['num_nonfinite']} not finite)" if mean["num_nonfinite"] else ""
    lines = [format_metric(name, mean["mean"]) + lost]
    noise = run["within"].get(name)
    if noise is not None and noise["problem"]:
        lines.append(f"no step noise: {noise['problem']}")
    elif noise is not None:
        ends = ", ".join(format_metric(name, noise[end]) for end in ("low", "high"))
        lines.append(f"[{ends}] step noise only, not seed noise")
    return Cell(tuple(lines), tones=("", *("muted" for _ in lines[1:])))


def _progress_text(run: Mapping[str, Any]) -> str:
    step = NONE if run["last_step"] is None else str(run["last_step"])
    return f"{step} / {run['max_steps'] or '?'}"


def _peak_text(run: Mapping[str, Any]) -> str:
    if run["peak_kl"] is None:
        return NONE
    return f"{format_metric('mismatch_kl', run['peak_kl'])} @{run['peak_kl_step']}"
