"""What a replay comes to: counts, before anything is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.replay.tokens import TokenFile


@dataclass(frozen=True)
class RuleCount:
    """What one rule would have masked.

    Attributes:
        label: as users write it, `ipo:eps=0.3`.
        type: name of the rule; `knobs` all of its knobs, resolved; `dtype` what it decides in.
        needs: columns that it needs; `refused` says which one is missing (then nothing else is
            there).
        num_masked: tokens that it masks, of `num_tokens`; `num_undecidable` of them and of the
            kept ones lie so near an edge that rounding of the input decides.
        num_with_advantage, num_masked_with_advantage: the same of tokens with a non-zero
            advantage; None without advantages.
        low, high: interval of the masked fraction over sequences (Poisson bootstrap); None without
            sequences, or with fewer than two.
        masked_kl, kept_kl: mean mismatch KL (k3) of masked and of kept tokens, in nats; None where
            there are none.
        masked_probability: sum of q over masked tokens / sum of q over all.
    """

    label: str
    type: str
    knobs: Mapping[str, Any]
    dtype: str = "float32"
    needs: tuple[str, ...] = ()
    refused: str = ""
    num_tokens: int = 0
    num_masked: int = 0
    num_undecidable: int = 0
    num_with_advantage: int | None = None
    num_masked_with_advantage: int | None = None
    low: float | None = None
    high: float | None = None
    masked_kl: float | None = None
    kept_kl: float | None = None
    masked_probability: float | None = None

    @property
    def fraction(self) -> float | None:
        return self.num_masked / self.num_tokens if self.num_tokens else None


@dataclass(frozen=True)
class Curve:
    """Masked tokens over one threshold of a rule; all [num_thresholds].

    Attributes:
        fixed: the rule's other knobs.
        thresholds: increasing; each decided as the rule does at exactly that float32 value.
        low, high: interval of the fraction from cluster sums over sequences; empty without them.
    """

    type: str
    knob: str
    fixed: Mapping[str, Any]
    thresholds: tuple[float, ...]
    num_masked: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """Tokens that two rules mask or keep; labels as in `RuleCount`."""

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int


@dataclass(frozen=True)
class Bucket:
    """Tokens whose probability under the engine lies in (low, high] (the lowest includes 0).

    Attributes:
        num_masked: by label of the rule.
        mean_kl: mean k3; None without tokens.
    """

    low: float
    high: float
    num_tokens: int
    num_masked: Mapping[str, int]
    mean_kl: float | None


@dataclass(frozen=True)
class StepWindow:
    """The same for the steps from `first` to `last`."""

    first: int
    last: int
    num_tokens: int
    num_masked: Mapping[str, int]
    mean_kl: float | None


@dataclass(frozen=True)
class Example:
    """One pair of probabilities of the page, and which rules would mask it.

    Attributes:
        decisions: label -> masked; None where the rule needs more than the two probabilities.
    """

    inference: float
    trainer: float
    ratio: float
    decisions: Mapping[str, bool | None]


@dataclass(frozen=True)
class Density:
    """Joint counts of (q, p): `counts[i][j]` tokens with q in bin i and p in bin j, of equal bins
    over [0, 1]."""

    num_bins: int
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DifferingToken:
    """A stored decision that the replay doesn't reproduce."""

    step: int | None
    sequence: int | None
    trainer_logprob: float
    inference_logprob: float
    advantage: float | None
    stored: bool


@dataclass(frozen=True)
class SelfCheck:
    """The trainer's own decisions against a replay of its own loss.

    Attributes:
        rule: label of that loss's rule.
        differing: the first few tokens that differ.
    """

    rule: str
    num_stored: int
    num_reproduced: int
    num_undecidable: int
    differing: tuple[DifferingToken, ...]


@dataclass(frozen=True)
class Recommendation:
    """The smallest threshold that the two conditions leave, or why there is none.

    Attributes:
        threshold: None where none fulfils both; `reasons` says why, in sentences.
        max_share: at most this share may be masked; `moved` is the change of probability whose
            tail must be masked.
    """

    type: str
    knob: str
    threshold: float | None
    max_share: float
    moved: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ReplayResult:
    """Everything that one pass over the tokens of a source gave.

    Attributes:
        total_kl: sum of k3 over all tokens, nats; `max_kl` the largest.
        num_identical: tokens whose two log-probabilities are equal.
        seed, num_replicates: of the bootstrap.
        warnings: sentences.
    """

    label: str
    files: tuple[TokenFile, ...]
    loss: Mapping[str, Any] | None
    decimals: int | None
    num_tokens: int
    num_sequences: int | None
    num_identical: int
    total_kl: float
    max_kl: float | None
    rules: tuple[RuleCount, ...]
    curves: tuple[Curve, ...]
    agreements: tuple[Agreement, ...]
    buckets: tuple[Bucket, ...]
    steps: tuple[StepWindow, ...]
    examples: tuple[Example, ...]
    density: Density | None
    self_check: SelfCheck | None
    recommendations: tuple[Recommendation, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    num_replicates: int = 0
    warnings: tuple[str, ...] = ()
