"""How the numbers were computed, written out from the parameters of the sweep."""

from __future__ import annotations

from analysis.barriers import MIN_RUNS, NOT_LOGGED
from analysis.cost import TARGET_SHARE
from analysis.replicates import MIN_OWN_RUNS
from analysis.report.cells import Report
from analysis.report.forks import fork_text
from analysis.report.numbers import format_number
from analysis.report.stops import stop_text
from analysis.resampling import MIN_IQM_RUNS
from analysis.statistics import POWER


def describe_method(report: Report) -> list[tuple[str, str]]:
    """Return (term, explanation) pairs, in reading order."""
    spec = report["analysis"]
    forks, stops = fork_text(report), stop_text(report)
    return [
        ("Values", _value_text()),
        *([("Forks", forks)] if forks else []),
        ("Final window", _window_text(report)),
        ("Baseline window", _baseline_text(spec)),
        ("Judged up to", _judged_text(report)),
        ("Exploded", _exploded_text(spec)),
        ("Onset", _onset_text(spec)),
        ("Collapsed", _collapsed_text(spec)),
        ("Other events", _other_events_text(spec)),
        ("Per arm", _arm_text(spec)),
        ("Against the baseline", _test_text(report)),
        ("Events between arms", _event_text(spec)),
        *_replicate_terms(report),
        ("Several comparisons", _holm_text(report)),
        ("Verdicts", _verdict_text(spec)),
        ("Runs left out", _left_out_text(spec)),
        *([("Stop rules", stops)] if stops else []),
        ("Costs", _cost_text(report)),
    ]


def describe_command(report: Report) -> str:
    """Return the command that made the runs, up to where its sweep file lies."""
    if report["kind"] == "comparison":
        return "harness compare"
    return " ".join(["harness run", report["sweep"], *report["overrides"]])


def describe_trainer(report: Report) -> str:
    """Return the trainer's name, with the commit of the program where the plan recorded one."""
    code = report["code"]
    if not code.get("program_commit"):
        return str(report["trainer"])
    dirty = " with uncommitted changes" if code.get("program_is_dirty") else ""
    return f"{report['trainer']}, its program at commit {code['program_commit']}{dirty}"


def _value_text() -> str:
    return (
        "as logged; nothing is interpolated, filled forward or smoothed (smoothing is for the eye "
        "alone, in charts). Where a resume logged steps again, the newer rows count. A step at "
        "which a metric was due and isn't there is flagged in curves.parquet: a gap, or vanished. "
        "The solve rate is of the rollouts that were sampled for training, no held-out evaluation."
    )


def _window_text(report: Report) -> str:
    window, spec = report["window"], report["analysis"]
    rule = (
        f"of a comparison, the last {spec['last_steps']} steps that every finished run of its two "
        "arms logged; of an arm's own mean, those that every finished run of every arm logged. A "
        "run's value is the mean over the steps of the window at which it logged a finite value."
    )
    if window is None:
        return f"{rule} There is none yet."
    return (
        f"{rule} Over all arms: steps {window['first']} to {window['last']} "
        f"({window['num_steps']} steps), of {window['num_common']} common steps from "
        f"{window['common_first']} to {window['common_last']}."
    )


def _baseline_text(spec: Report) -> str:
    first, last = spec["baseline_steps"]
    return (
        f"steps {first} to {last} of the run itself; a run that doesn't cover it has no event, and "
        "an event within it is an error of the report."
    )


def _exploded_text(spec: Report) -> str:
    return (
        f"mismatch KL above {spec['explode_factor']:g} times its median in the baseline window for "
        f"{spec['explode_hold']} consecutive logged steps, from the baseline window on. A step at "
        "which it is not finite, or is gone while the trainer trains and logs on, counts as above. "
        "The step is the first of them."
    )


def _onset_text(spec: Report) -> str:
    return (
        "where log mismatch KL begins to rise: Page's CUSUM from the run's own baseline median, "
        "spread and autocorrelation, with a threshold that was calibrated by simulating the whole "
        f"procedure, so that it fires in {100 * spec['onset_false_alarm']:g} % of runs whose KL "
        "only fluctuates (autocorrelation up to 0.98). In brackets the last step in control and "
        "the step of the alarm. A baseline of fewer than 20 values is too short for it."
    )


def _collapsed_text(spec: Report) -> str:
    return (
        f"the mean solve rate over {spec['collapse_window']} steps is below "
        f"{spec['collapse_fraction']:g} times its mean in the baseline window, and stays there to "
        "the last step that is judged, so one that begins near the end had little time to recover. "
        "The step is the first such window's last. A stretch that recovered is a dip; stretches "
        "less than a window apart are one. Shares above and below a threshold count from after the "
        "baseline window."
    )


def _other_events_text(spec: Report) -> str:
    return (
        f"entropy collapsed: its windowed mean below {spec['entropy_fraction']:g} times its "
        f"baseline, to the end. Gradient spike: above {spec['spike_factor']:g} times its baseline "
        "median. Mask silent: the KL has risen and the windowed masked fraction stays below "
        f"{spec['mask_floor']:g}. Mask heavy: masked fraction above {spec['mask_ceiling']:g} while "
        "the entropy is falling. Where arms part: the same CUSUM on the difference of their means, "
        "upwards and downwards. Share of healthy runs: Kaplan and Meier's estimate; a run that "
        "ended healthy is censored at its end."
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
        "the metric can be; of the logs, for metrics compared as ratios (a geometric mean, which "
        "there is none of where a run's is 0)."
    )


def _test_text(report: Report) -> str:
    if report["pairing"] == "seed":
        test = (
            "runs of equal seed share their random numbers, so the differences of pairs are "
            "tested: paired t test"
        )
    else:
        test = "runs are independent: Welch's t test"
    bootstrap = report["bootstrap"]
    return (
        f"{test}, two-sided; mismatch KL as the log of a ratio. One number per run enters. An "
        f"interval is cut at what a difference can be. From {MIN_IQM_RUNS} runs per arm on, "
        "the difference of interquartile means stands beside it, with the interval of a bootstrap "
        "over pairs, or over the runs of each arm where they are unpaired "
        f"({bootstrap['num_replicates']:,} replicates, NumPy's default generator with seed "
        f"{bootstrap['seed']}). With one run per arm an effect is a fact about two runs, and "
        "intervals within a run are step noise, not seed noise."
    )


def _event_text(spec: Report) -> str:
    return (
        "shares of judged runs with Jeffreys intervals; Fisher's exact test, two-sided, under "
        "either pairing. Shared random numbers make runs of a seed agree, which tends to make it "
        "more careful. Where a run of either arm collapsed, this test on the collapses gives the "
        "verdict in place of the t test, for every metric; where some runs exploded and others "
        "didn't, the one on the explosions does for mismatch KL: runs that either hold or break "
        "have two humps, and a t test of few of them is no 5 % test. A test whose place an event "
        "takes stays in the family as p = 1. The interval of a difference of shares is Newcombe's, "
        "from both Jeffreys intervals; it may exclude 0 where Fisher's p is above the level."
    )


def _holm_text(report: Report) -> str:
    family = [
        item
        for item in report["comparisons"]
        if item["detail"] != NOT_LOGGED
        and not item["is_exploratory"]
        and not item.get("replicate_of")
    ]
    return (
        f"p values are adjusted after Holm for all {len(family)} comparisons: primary metrics and "
        "events of every arm. Intervals are before Holm."
    )


def _replicate_terms(report: Report) -> list[tuple[str, str]]:
    """Return what is to be said of replicates, where there are some."""
    replicates = [arm for arm in report["arms"] if arm.get("replicate_of")]
    if not replicates:
        return []
    named = ", ".join(f"{arm['name']} of {arm['replicate_of']}" for arm in replicates)
    shared = ""
    if report["pairing"] == "seed":
        shared = (
            " Its pairs share what the trainer makes once per seed (the warm start, a fork's"
            " checkpoint) and no other random number, while pairs of other arms may share all: an"
            " A/A difference then is the larger noise."
        )
    return [
        (
            "Replicates (A/A)",
            f"{named}: the same configuration with other noise, compared with its arm by the"
            f" declared test, outside Holm's family and without better or worse.{shared} Beside"
            " each comparison stand the A/A differences of either arm; a warning names effects no"
            " further from none than the furthest end of an A/A interval. With fewer than"
            f" {MIN_OWN_RUNS} runs on a side, and without --noise-from, the spread between runs of"
            " an arm and its replicates"
            f"{' of equal seed' if report['pairing'] == 'seed' else ''}, pooled, is laid around the"
            " effect.",
        )
    ]


def _verdict_text(spec: Report) -> str:
    return (
        "equivalent where two one-sided t tests put the solve rate within "
        f"{spec['margin']:g} of the baseline's (adjusted after Holm for how many are tried, a "
        "family of its own); else "
        f"better or worse where the adjusted p is below {spec['alpha']:g}; collapsed where that is "
        "so of the collapses; else no detectable difference, with the smallest true effect that "
        f"the test would find with a power of {POWER:g} (MDE) at the first step of Holm's "
        "procedure, and the interval that the uncertainty of the spread leaves it. Not decidable: "
        f"fewer than {MIN_RUNS} seeds, or too few to reach the level whatever comes out. While "
        "planned runs are missing the verdict is incomplete, and intervals are interim."
    )


def _left_out_text(spec: Report) -> str:
    return (
        "runs that failed or ended early are counted, named and left out; an arm that lost more "
        f"than {100 * spec['max_left_out']:g} % of its planned runs is incomplete. Runs that a "
        "rule stopped enter events alone."
    )


def _cost_text(report: Report) -> str:
    target = report["cost_target"]
    here = "" if target is None else f" Here: {format_number(target)}."
    return (
        "hours and GPU-hours count all attempts. The target is "
        f"{TARGET_SHARE:g} times the highest mean solve rate that an arm ends at, first reached by "
        f"a windowed mean.{here}"
    )
