"""The rules that a replay knows: what each needs, its knobs, and how users write it.

What a rule masks is defined in `harness.losses.masks`, for training and replay alike; where its
edges lie is told in `analysis.replay.edges`. A replay reads two policies: what was trained, p, and
the engine that sampled, q. Rules that papers anchor at a third policy are read with it equal to q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.replay.tokens import TokenColumns
from harness.errors import UsageError
from harness.losses import masks
from harness.near import did_you_mean

MAX_RATIO = 1e30
"""Largest ratio bound or cap, as in training."""

_WHY = {
    "advantages": "looks at the sign of each token's advantage, and the records hold no advantages",
    "sequences": "decides on whole sequences, and the records don't say which token is whose",
}


@dataclass(frozen=True)
class Knob:
    """A number that a rule is set by, and its bounds; None is unbounded."""

    name: str
    default: float
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def problem(self, value: float) -> str:
        """Return which bound `value` breaks; empty where it keeps all."""
        if not math.isfinite(value):
            return "must be finite"
        if self.ge is not None and value < self.ge:
            return f"must be at least {shown(self.ge)}"
        if self.gt is not None and value <= self.gt:
            return f"must be above {shown(self.gt)}"
        if self.le is not None and value > self.le:
            return f"must be at most {shown(self.le)}"
        if self.lt is not None and value >= self.lt:
            return f"must be below {shown(self.lt)}"
        return ""


@dataclass(frozen=True)
class RuleSpec:
    """A kind of rule.

    Attributes:
        source: whose definition and defaults these are.
        mask: of `harness.losses.masks`; its keyword-only arguments are the knobs.
        needs: optional columns that it needs.
        curve_knobs: knobs that a curve can run over.
    """

    type: str
    source: str
    mask: Callable[..., Any]
    knobs: tuple[Knob, ...]
    curve_knobs: tuple[str, ...]
    needs: tuple[str, ...] = ()

    @property
    def is_sequence_rule(self) -> bool:
        return "sequences" in self.needs

    def knob(self, name: str) -> Knob:
        """Return the knob of that name.

        Raises:
            UsageError: there is none; with the near miss.
        """
        for knob in self.knobs:
            if knob.name == name:
                return knob
        raise UsageError(
            f"rule `{self.type}` has no knob `{name}`",
            did_you_mean(name, [knob.name for knob in self.knobs], what=f"knobs of `{self.type}`"),
        )


@dataclass(frozen=True)
class Rule:
    """A rule with all of its knobs."""

    type: str
    knobs: Mapping[str, float] = field(default_factory=dict)

    @property
    def spec(self) -> RuleSpec:
        return RULES[self.type]

    @property
    def label(self) -> str:
        """As users write it, with every knob: `kpop:phi=0.1,clamp=1e-06`."""
        return f"{self.type}:{','.join(f'{key}={shown(to)}' for key, to in self.knobs.items())}"

    def refusal(self, columns: TokenColumns) -> str:
        """Return why tokens of these columns can't be replayed under the rule; empty if they can.

        Nothing is approximated: a rule whose columns are missing has no counts.
        """
        for need in self.spec.needs:
            if not getattr(columns, need):
                return f"`{self.type}` {_WHY[need]} (column `{need}`)"
        return ""


def shown(value: float) -> str:
    """Return the shortest text that reads back as exactly `value`."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def _band(low: float, high: float) -> tuple[Knob, Knob]:
    return (
        Knob("ratio_low", low, ge=0, le=MAX_RATIO),
        Knob("ratio_high", high, gt=0, le=MAX_RATIO),
    )


def _clip(low: float, high: float) -> tuple[Knob, Knob]:
    return Knob("ratio_low", low, gt=0, le=1), Knob("ratio_high", high, ge=1, le=MAX_RATIO)


_EPS = Knob("eps", 0.3, ge=0, le=1)
_CAP = Knob("max_importance_ratio", 2.0, ge=1, le=MAX_RATIO)
_RATIOS = ("ratio_low", "ratio_high")

RULES: dict[str, RuleSpec] = {
    spec.type: spec
    for spec in (
        RuleSpec("ipo", "prime-rl `ipo`", masks.ipo_drop_mask, (_EPS,), ("eps",)),
        RuleSpec(
            "icepop",
            "Ring-1T (arXiv 2510.18855, band 0.5 to 5); prime-rl `icepop`, band 0.2 to 5",
            masks.ratio_band_mask,
            _band(0.2, 5.0),
            _RATIOS,
        ),
        RuleSpec(
            "kpop",
            "Ring-2.6 (arXiv 2606.15079); prime-rl #3283, phi 0.1 and clamp 1e-6",
            masks.kpop_drop_mask,
            (Knob("phi", 0.1, ge=0, le=100), Knob("clamp", 1e-6, gt=0, lt=0.5)),
            ("phi",),
        ),
        RuleSpec(
            "ipo_band",
            "`ipo` and `icepop` at once",
            masks.ipo_band_drop_mask,
            (_EPS, *_band(0.2, 5.0)),
            ("eps", *_RATIOS),
        ),
        RuleSpec(
            "dppo_tv",
            "DPPO (arXiv 2602.04879); verl `dppo_tv`",
            masks.dppo_tv_drop_mask,
            (Knob("delta_low", 0.15, ge=0, le=1), Knob("delta_high", 0.15, ge=0, le=1)),
            ("delta_low", "delta_high"),
            ("advantages",),
        ),
        RuleSpec(
            "dppo_kl",
            "DPPO (arXiv 2602.04879); verl `dppo_kl`",
            masks.dppo_kl_drop_mask,
            (Knob("delta", 0.05, ge=0, le=100),),
            ("delta",),
            ("advantages",),
        ),
        RuleSpec(
            "ppo",
            "PPO and GRPO (arXiv 1707.06347), clip 0.2; where the surrogate has no gradient",
            masks.ppo_clip_mask,
            _clip(0.8, 1.2),
            _RATIOS,
            ("advantages",),
        ),
        RuleSpec(
            "dapo",
            "DAPO's clip-higher (arXiv 2503.14476)",
            masks.ppo_clip_mask,
            _clip(0.8, 1.28),
            _RATIOS,
            ("advantages",),
        ),
        RuleSpec(
            "cispo",
            "MiniMax-M1 (arXiv 2506.13585); prime-rl `cispo`: tokens whose weight is clipped",
            masks.ratio_band_mask,
            _band(0.0, 5.0),
            _RATIOS,
        ),
        RuleSpec(
            "tis",
            "truncated importance sampling, verl `rollout_is: token`: tokens whose weight is cut",
            masks.ratio_cap_mask,
            (_CAP,),
            ("max_importance_ratio",),
        ),
        RuleSpec(
            "mis",
            "masked importance sampling on tokens: weights outside the band become 0",
            masks.ratio_band_mask,
            _band(0.5, 2.0),
            _RATIOS,
        ),
        RuleSpec(
            "k1",
            "verl `token_k1`: a band on q/p, the inverse ratio",
            masks.k1_drop_mask,
            _band(0.5, 2.0),
            _RATIOS,
        ),
        RuleSpec(
            "k2",
            "verl `token_k2`",
            masks.k2_drop_mask,
            (Knob("delta", 0.1, ge=0, lt=200),),
            ("delta",),
        ),
        RuleSpec(
            "k3",
            "verl `token_k3`",
            masks.k3_drop_mask,
            (Knob("delta", 0.1, ge=0, lt=19),),
            ("delta",),
        ),
        RuleSpec(
            "gspo",
            "GSPO (arXiv 2507.18071)",
            masks.gspo_clip_mask,
            _clip(0.9997, 1.0004),
            _RATIOS,
            ("advantages", "sequences"),
        ),
        RuleSpec(
            "seq_tis",
            "verl `rollout_is: sequence`, TRL `sequence_truncate`: tokens of cut sequences",
            masks.sequence_cap_mask,
            (_CAP,),
            ("max_importance_ratio",),
            ("sequences",),
        ),
        RuleSpec(
            "seq_mis",
            "TRL `sequence_mask`, cap 3 and no lower bound",
            masks.sequence_band_mask,
            _band(0.0, 3.0),
            _RATIOS,
            ("sequences",),
        ),
        RuleSpec(
            "geo_mis",
            "SkyRL `sequence_mask_metric: geometric`, band 0.99 to 1.01",
            masks.geometric_band_mask,
            _band(0.99, 1.01),
            _RATIOS,
            ("sequences",),
        ),
    )
}
"""By name. The source says whose definition a rule follows, and whose defaults."""


def make_rule(type: str, knobs: Mapping[str, float]) -> Rule:
    """Return the rule with `knobs`, the others at their defaults.

    Raises:
        UsageError: no such rule or knob, a value out of bounds, or a band upside down.
    """
    spec = spec_of(type)
    resolved = {knob.name: knob.default for knob in spec.knobs}
    for name, value in knobs.items():
        problem = spec.knob(name).problem(value)
        if problem:
            raise UsageError(
                f"`{name}` of rule `{type}` is {shown(value)}",
                f"`{name}` {problem}",
            )
        resolved[name] = float(value)
    low, high = resolved.get("ratio_low"), resolved.get("ratio_high")
    if low is not None and high is not None and low > high:
        raise UsageError(
            f"rule `{type}`: `ratio_low` {shown(low)} is above `ratio_high` {shown(high)}",
            "the band is [ratio_low, ratio_high]",
        )
    return Rule(type, resolved)


def spec_of(type: str) -> RuleSpec:
    """Return the spec of that name.

    Raises:
        UsageError: there is none; with the near miss.
    """
    if type not in RULES:
        raise UsageError(f"there is no rule `{type}`", did_you_mean(type, RULES, what="rules"))
    return RULES[type]


def parse_rule(text: str) -> Rule:
    """Return the rule that `text` writes: `ipo`, `ipo:eps=0.3`, `icepop:ratio_low=0.2,...`.

    Raises:
        UsageError: as `make_rule`, and for what is no `name=number`.
    """
    type, _, rest = text.strip().partition(":")
    spec = spec_of(type.strip())
    given: dict[str, float] = {}
    for name, value in parse_knobs(text, rest):
        spec.knob(name)
        given[name] = parse_number(text, name, value)
    return make_rule(spec.type, given)


def parse_knobs(text: str, rest: str) -> list[tuple[str, str]]:
    """Return the pairs of `rest`, the part of `text` behind the rule's name: `name=value,...`.

    Raises:
        UsageError: a part is no pair, or a name comes twice.
    """
    pairs: list[tuple[str, str]] = []
    for part in rest.split(",") if rest.strip() else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise UsageError(f"`{part.strip()}` in `{text}` is no knob", "write `name=value`")
        if name in dict(pairs):
            raise UsageError(f"`{name}` stands twice in `{text}`", "give each knob once")
        pairs.append((name, value))
    return pairs


def parse_number(text: str, name: str, value: str) -> float:
    """Return the number that `value`, of knob `name` in `text`, writes.

    Raises:
        UsageError: it is no number.
    """
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"`{name}={value}` in `{text}` is no number", "like `0.3`") from None
