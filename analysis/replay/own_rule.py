"""The rule that the trainer itself decided by, to check its stored decisions against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.replay.block import Block
from analysis.replay.edges import decide, undecidable
from analysis.replay.rules import RULES, Rule, make_rule
from analysis.replay.tokens import BoolArray, TokenColumns
from harness.errors import UsageError
from harness.losses.masks import DROP_RULES, keep_all_mask


@dataclass(frozen=True)
class OwnRule:
    """What the trainer's loss masks.

    Attributes:
        rule: None for a loss that drops no token.
    """

    label: str
    rule: Rule | None

    def decide(self, block: Block) -> BoolArray:
        """Return which tokens the loss masks."""
        return np.zeros(len(block), np.bool_) if self.rule is None else decide(self.rule, block)

    def undecidable(self, block: Block, decimals: int | None) -> BoolArray:
        """Return which decisions rounding could flip; see `analysis.replay.edges`."""
        if self.rule is None:
            return np.zeros(len(block), np.bool_)
        return undecidable(self.rule, block, decimals)


def own_rule(loss: Mapping[str, Any], columns: TokenColumns) -> OwnRule:
    """Return the rule of the resolved `loss`.

    Raises:
        UsageError: there is no such rule, a knob is missing or no number, or the rule needs columns
            that aren't there.
    """
    type = str(loss.get("type"))
    mask = DROP_RULES.get(type)
    if mask is keep_all_mask:
        return OwnRule(type, None)
    spec = RULES.get(type)
    if spec is None or spec.mask is not mask:
        raise UsageError(f"there is no mask rule for loss type `{type}`")
    knobs = {}
    for knob in spec.knobs:
        value = loss.get(knob.name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"the record of loss `{type}` doesn't say its knob `{knob.name}`")
        knobs[knob.name] = float(value)
    rule = make_rule(type, knobs)
    refusal = rule.refusal(columns)
    if refusal:
        raise UsageError(refusal)
    return OwnRule(rule.label, rule)
