"""How the numbers were computed, written out from the parameters of the sweep."""

from __future__ import annotations

from analysis.comparison import MIN_RUNS, NOT_LOGGED
from analysis.report.cells import Report
from analysis.statistics import POWER


def describe_method(report: Report) -> list[tuple[str, str]]:
    """Return (term, explanation) pairs, in reading order."""
    spec = report["analysis"]
    return [
        ("Final window", _window_text(report)),
        ("Baseline window", _baseline_text(spec)),
        ("Exploded", _exploded_text(spec)),
        ("Collapsed", _collapsed_text(spec)),
        ("Judged up to", _judged_text(report)),
        ("Per arm", _arm_text(spec)),
        ("Against the baseline", _test_text(report)),
        ("Events", _event_text(spec)),
        ("Several comparisons", _holm_text(report)),
        ("Verdicts", _verdict_text(spec)),
    ]


def describe_command(report: Report) -> str:
    """Return the command that made the runs, up to where its sweep file lies."""
    return " ".join(["harness run", report["sweep"], *report["overrides"]])


def _window_text(report: Report) -> str:
    window, spec = report["window"], report["analysis"]
    rule = (
        f"the last {spec['last_steps']} steps that every finished run logged; a run's value is the "
        "mean over the steps of the window at which it logged a finite value. Nothing is "
        "interpolated or filled forward."
    )
    if window is None:
        return f"{rule} There is none yet."
    return (
        f"{rule} Here: steps {window['first']} to {window['last']} ({window['num_steps']} steps), "
        f"of {window['num_common']} common steps from {window['common_first']} to "
        f"{window['common_last']}."
    )


def _baseline_text(spec: Report) -> str:
    first, last = spec["baseline_steps"]
    return f"steps {first} to {last} of the run itself; a run that doesn't cover it has no event."


def _exploded_text(spec: Report) -> str:
    return (
        f"mismatch KL above {spec['explode_factor']:g} times its median in the baseline window for "
        f"{spec['explode_hold']} consecutive logged steps, from the baseline window on. A step at "
        "which it is not finite, or is gone while the trainer trains and logs on, counts as above."
    )


def _collapsed_text(spec: Report) -> str:
    return (
        f"the mean solve rate over {spec['collapse_window']} steps is below "
        f"{spec['collapse_fraction']:g} times its mean in the baseline window, and stays there to "
        "the last step that is judged, so one that begins near the end had little time to recover. "
        "The step is the first such window's last."
    )


def _judged_text(report: Report) -> str:
    rule = (
        "events and peaks count up to the last step that every finished run of every arm logged, "
        "so that no arm had more chances than another."
    )
    if report["judged_to"] is None:
        return f"{rule} While no run has finished, each run is judged to its own last step."
    return f"{rule} Here: step {report['judged_to']}."


def _arm_text(spec: Report) -> str:
    return (
        f"mean over seeds with Student's t interval of level {1 - spec['alpha']:g}, cut at what "
        "the metric can be; of the logs, for metrics compared as ratios (a geometric mean)."
    )


def _test_text(report: Report) -> str:
    if report["pairing"] == "seed":
        test = (
            "runs of equal seed share their random numbers, so the differences of pairs are "
            "tested: paired t test"
        )
    else:
        test = "runs are independent: Welch's t test"
    return (
        f"{test}, two-sided; mismatch KL as the log of a ratio. One number per run enters. An "
        "interval is cut at what a difference can be. Where runs either hold or collapse, the t "
        "interval is rough and the share of collapsed runs says more."
    )


def _event_text(spec: Report) -> str:
    return (
        "shares of finished runs with Clopper-Pearson intervals; Fisher's exact test, two-sided, "
        "under either pairing. Shared random numbers make runs of a seed agree, which tends to "
        "make it more careful."
    )


def _holm_text(report: Report) -> str:
    family = [item for item in report["comparisons"] if item["detail"] != NOT_LOGGED]
    return (
        f"p values are adjusted after Holm for all {len(family)} comparisons: primary metrics and "
        "events of every arm. Intervals are before Holm."
    )


def _verdict_text(spec: Report) -> str:
    return (
        "first, within margin where the whole interval of the solve rate (not adjusted) lies "
        f"within {spec['margin']:g} of the baseline's; else better or worse where the adjusted p "
        f"is below {spec['alpha']:g}; else no detectable difference, with the smallest true effect "
        f"that the test would find with a power of {POWER:g} (MDE) at the first step of Holm's "
        f"procedure. Below {MIN_RUNS} seeds nothing is decided; while planned runs are missing the "
        "verdict is incomplete."
    )
