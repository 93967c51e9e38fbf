"""How a replay was counted, written out from its parameters."""

from __future__ import annotations

from analysis.replay.result import ReplayResult
from analysis.replay.tables import loss_text
from analysis.replay.wording import CAVEAT, format_knob


def describe_method(result: ReplayResult) -> list[tuple[str, str]]:
    """Return (term, explanation) pairs, in reading order."""
    terms = [
        ("Tokens", _token_text(result)),
        ("Made under", f"{loss_text(result)}. {CAVEAT}"),
        ("Decisions", _decision_text()),
        ("Undecidable", _undecidable_text(result)),
        ("Mismatch KL", _kl_text()),
        ("Intervals", _interval_text(result)),
    ]
    if result.recommendations:
        terms.append(("Recommendation", _recommendation_text(result)))
    return terms


def _token_text(result: ReplayResult) -> str:
    num_files = f"{len(result.files):,} file{'' if len(result.files) == 1 else 's'}"
    return (
        f"{result.num_tokens:,} tokens inside the loss mask with finite, possible "
        f"log-probabilities, from {num_files}. "
        "Whatever else was recorded is counted by reason and left out; nothing is imputed."
    )


def _decision_text() -> str:
    return (
        "every rule is the training loss's own definition, in float32, with its strict and "
        "inclusive edges; a threshold of a curve is decided as the rule does with that knob. "
        "Counts are exact, and the same however the tokens are cut into files."
    )


def _undecidable_text(result: ReplayResult) -> str:
    rounding = (
        "the log-probabilities show no rounding to a few decimals and are taken as exact"
        if result.decimals is None
        else f"the log-probabilities were rounded to {result.decimals} decimals before they were "
        "stored"
    )
    return (
        f"{rounding}. A decision counts as undecidable where that rounding plus 4 units in the "
        "last place reach across an edge of the rule. Such tokens are in the counts as the stored "
        "numbers decide them."
    )


def _kl_text() -> str:
    return "k3 of a token, r - 1 - log r with r = p/q, in nats: p the trainer's, q the engine's."


def _interval_text(result: ReplayResult) -> str:
    if result.num_sequences is None:
        return "none: the records don't say which sequence a token belongs to."
    if result.num_sequences < 2 or not result.num_replicates:
        return "none: that needs at least two sequences."
    return (
        f"95 %, over the {result.num_sequences:,} sequences, not over tokens, which are not "
        f"independent within one: of listed rules by a Poisson bootstrap ({result.num_replicates:,}"
        f" replicates, seed {result.seed}), of curves by sums over sequences. Where nothing is "
        "masked it is 0 to 0, which tells nothing of tokens that weren't recorded."
    )


def _recommendation_text(result: ReplayResult) -> str:
    first = result.recommendations[0]
    return (
        f"the smallest counted threshold that masks at most {100 * first.max_share:g} % of "
        f"the tokens and still masks every token whose probability moved by more than "
        f"{format_knob(first.moved)}. It rests on these tokens alone: look at the curve around it."
    )
