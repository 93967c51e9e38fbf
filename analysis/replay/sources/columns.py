"""Which column of a file of any origin holds what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from analysis.metrics import nearest_keys
from harness.errors import UsageError
from harness.near import did_you_mean

ROLES = ("trainer", "inference", "advantage", "loss_mask", "sequence", "step", "is_masked")
MAPPABLE = (*ROLES, "trainer_prob", "inference_prob")
"""What a column mapping may name."""

NO_COLUMNS: Mapping[str, str] = MappingProxyType({})

_REQUIRED = ("trainer", "inference")
_USUAL = {
    "trainer": ("trainer_logprob", "trainer_logprobs", "trainer"),
    "inference": ("inference_logprob", "inference_logprobs", "inference"),
    "trainer_prob": ("trainer_prob", "trainer_probs"),
    "inference_prob": ("inference_prob", "inference_probs"),
    "advantage": ("advantage", "advantages"),
    "loss_mask": ("loss_mask",),
    "sequence": ("sequence", "sequence_id"),
    "step": ("step",),
    "is_masked": ("is_masked",),
}
"""Names that are taken for a role where none is mapped to it."""

_MAX_LISTED = 8


@dataclass(frozen=True)
class Roles:
    """The columns of one file by role, and which of them were mapped by the user."""

    columns: Mapping[str, str]
    mapped: frozenset[str]
    probabilities: bool

    def get(self, role: str) -> str | None:
        return self.columns.get(role)

    def without(self, role: str) -> Roles:
        left = {one: column for one, column in self.columns.items() if one != role}
        return Roles(left, self.mapped, self.probabilities)


def check_mapping(columns: Mapping[str, str], probabilities: bool | None) -> None:
    """Raise UsageError where the mapping names a role that there isn't, or mixes scales."""
    for role in columns:
        if role not in MAPPABLE:
            raise UsageError(
                f"columns: there is no `{role}` to map", did_you_mean(role, MAPPABLE, what="known")
            )
    given = [role for role in _REQUIRED if f"{role}_prob" in columns]
    logs = [role for role in _REQUIRED if role in columns]
    twice = [role for role in given if role in logs]
    if twice:
        raise UsageError(
            f"columns: `{twice[0]}` and `{twice[0]}_prob` are both mapped", "map one of them"
        )
    if given and (logs or probabilities is False):
        raise UsageError(
            f"columns: `{given[0]}_prob` is mapped, but "
            + (f"`{logs[0]}` holds log-probabilities" if logs else "probabilities are ruled out"),
            "give both as probabilities, or both as log-probabilities",
        )


def choose_roles(
    path: Path,
    available: Collection[str],
    columns: Mapping[str, str],
    probabilities: bool | None,
) -> Roles:
    """Return the columns of `path`: as mapped, else by their usual names.

    Raises:
        UsageError: a mapped column isn't there, or none holds one of the two probabilities.
    """
    for role, column in columns.items():
        if column not in available:
            near = nearest_keys(column, available).removeprefix("; ")
            raise UsageError(
                f"`{path}` has no column `{column}`, which `{role}` is mapped to",
                near or f"its columns: {_listed(available)}",
            )
    is_prob = bool(probabilities) or any(f"{role}_prob" in columns for role in _REQUIRED)
    chosen: dict[str, str] = {}
    for role in ROLES:
        mapped = columns.get(f"{role}_prob") or columns.get(role)
        found = mapped or _usual(role, available)
        if found is not None:
            chosen[role] = found
    if any(role not in chosen for role in _REQUIRED) and probabilities is not False:
        usual = {role: _usual(f"{role}_prob", available) for role in _REQUIRED}
        if not any(role in columns for role in _REQUIRED) and all(usual.values()):
            chosen.update({role: name for role, name in usual.items() if name})
            is_prob = True
    for role in _REQUIRED:
        if role not in chosen:
            near = nearest_keys(f"{role}_logprob", available).removeprefix("; ")
            raise UsageError(
                f"`{path}` has no column with the {role}'s log-probabilities",
                f"map it, as in `{role}=NAME`; {near or 'its columns: ' + _listed(available)}",
            )
    return Roles(chosen, frozenset(role.removesuffix("_prob") for role in columns), is_prob)


def _usual(role: str, available: Collection[str]) -> str | None:
    return next((name for name in _USUAL[role] if name in available), None)


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:_MAX_LISTED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(f"`{name}`" for name in shown) + more if shown else "none"
