"""The closed set of words that a comparison may end in, and what each carries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from analysis.noise import NoiseInterval
from analysis.resampling import IqmEffect


class Verdict(StrEnum):
    """The words that a comparison may end in."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    NO_DIFFERENCE = "no detectable difference"
    COLLAPSED = "collapsed"
    INCOMPLETE = "incomplete"
    NOT_DECIDABLE = "not decidable"


@dataclass(frozen=True)
class ReplicateDifference:
    """What an arm and its replicate differ by (A/A), beside a comparison in the same metric.

    Attributes:
        arm: the replicate; `replicate_of` its arm.
        effect, low, high: of the comparison of the two.
        covers: whether the effect that it stands beside is no further from none than the furthest
            end of this interval (than this effect, where one run is against one).
    """

    arm: str
    replicate_of: str
    effect: float | None
    low: float | None
    high: float | None
    covers: bool


@dataclass(frozen=True)
class Comparison:
    """One arm against the baseline, or a replicate against its arm, in one metric or event.

    Attributes:
        name: canonical metric, or an event of `comparison.EVENTS`.
        scale: what `effect`, `low`, `high` and `mde` are: arm - baseline ("difference"), arm /
            baseline ("ratio"), or the difference of shares ("share").
        test: that the sweep declared; `effect`, interval, numbers and `mde` are its own.
        num_arm, num_baseline: runs that entered; equal when paired.
        effect: of means over `window`; at one run each a plain fact about these two.
        low, high: interval of level 1 - alpha, before Holm.
        p, p_holm: two-sided; unadjusted, and adjusted for all comparisons of the sweep. Where
            an event decides instead of the declared test (see `rule`) they are the event's.
        p_equivalent: of two one-sided tests at the margin, adjusted for all such of the sweep.
        mde: smallest true effect that this test finds with a power of 0.8 at the first step of
            Holm's procedure, given the spread that was seen. `mde_low`, `mde_high`: what the
            uncertainty of that spread (of the baseline's share, for an event) leaves of it.
        iqm: interquartile means with bootstrap, on `scale`; from 8 runs per arm on.
        noise: where the effect would lie by the seed noise of other sweeps, at one run each; by
            that between an arm and its replicates, at one or two.
        detail: stands behind the verdict.
        rule: what decided.
        window: (first step, last step, number of steps) that the runs' values are taken over;
            of an event, that it could have been seen in.
        left_out: run ids of both sides that failed or are incomplete.
        is_interim: planned runs are missing.
        is_exploratory: outside Holm's family, without a verdict of better or worse.
        replicate_of: the arm that `arm` replicates and that stands in the baseline's place; empty
            for other arms. Such a comparison is outside Holm's family, too.
        replicates: A/A differences of either arm in the same metric or event.
    """

    arm: str
    name: str
    scale: str
    test: str
    num_arm: int
    num_baseline: int
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    p_equivalent: float | None = None
    mde: float | None = None
    mde_low: float | None = None
    mde_high: float | None = None
    iqm: IqmEffect | None = None
    noise: NoiseInterval | None = None
    verdict: Verdict = Verdict.NOT_DECIDABLE
    detail: str = ""
    rule: str = ""
    window: tuple[int, int, int] | None = None
    left_out: tuple[str, ...] = ()
    is_interim: bool = False
    is_exploratory: bool = False
    replicate_of: str = ""
    replicates: tuple[ReplicateDifference, ...] = ()

    @property
    def words(self) -> str:
        """The verdict with its detail."""
        if not self.detail:
            return str(self.verdict)
        if self.verdict is Verdict.EQUIVALENT:
            return f"{self.verdict} {self.detail}"
        return f"{self.verdict} ({self.detail})"

    @property
    def has_interval_beside_zero(self) -> bool:
        """Whether the interval, which is not adjusted, leaves out that there is no effect."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.no_effect or self.high < self.no_effect

    @property
    def no_effect(self) -> float:
        """What `effect` is where arm and baseline are equal."""
        return 1.0 if self.scale == "ratio" else 0.0
