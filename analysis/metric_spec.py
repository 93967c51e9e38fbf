"""What is said of a metric: meaning, unit, better side, scale, keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["higher", "lower", "none"]
Scale = Literal["difference", "ratio"]


@dataclass(frozen=True)
class Key:
    """Keys that mean a metric.

    Attributes:
        pattern: of the whole key.
        definition: which of the metric's definitions the values follow; empty for its own.
        frameworks: whose runs log it with that meaning; empty for any.
    """

    pattern: str
    definition: str = ""
    frameworks: tuple[str, ...] = ()


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
        keys: in order of preference.
        bounds: values that are possible; intervals are cut there.
        variants: name -> definition, of what other keys mean. Values of two definitions are never
            compared.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    scale: Scale
    definition: str
    keys: tuple[Key, ...]
    bounds: tuple[float | None, float | None] = (None, None)
    variants: Mapping[str, str] = field(default_factory=dict)

    def definition_of(self, variant: str) -> str:
        """Return the sentence for one of the definitions; "" stands for the metric's own."""
        return self.variants.get(variant, self.definition) if variant else self.definition
