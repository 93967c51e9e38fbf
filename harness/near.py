"""Near misses: what the user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Return the entry of `known` closest to `word`, or None where nothing is close."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], *, what: str = "known") -> str:
    """Return a hint: the near miss, or the list of what there is."""
    options = sorted(known)
    near = near_miss(word, options)
    if near is not None:
        return f"did you mean `{near}`?"
    if not options:
        return "there are none yet" if what == "known" else f"there are no {what} yet"
    return f"{what}: {', '.join(f'`{option}`' for option in options)}"
