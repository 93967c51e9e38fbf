"""What a report says of runs that start from another run's checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analysis.parents import Parent
from analysis.report.cells import Report
from analysis.report.numbers import format_runs
from analysis.results import Results
from analysis.runs import Notice, Run


def find_parents(runs: Iterable[Run]) -> list[tuple[Parent, list[Run]]]:
    """Return what the forks among `runs` start from, each with the runs that do."""
    found: dict[tuple[str, int], tuple[Parent, list[Run]]] = {}
    for run in runs:
        if run.parent is not None:
            key = (run.parent.place, run.parent.step)
            found.setdefault(key, (run.parent, []))[1].append(run)
    return list(found.values())


def fork_records(results: Results) -> list[dict[str, Any]]:
    """Return what stands of forks in report.json."""
    return [
        {
            "parent": parent.name,
            "step": parent.step,
            "place": parent.place,
            "problem": parent.problem,
            "runs": [[run.arm, run.seed] for run in runs],
        }
        for parent, runs in find_parents(results.sweep.runs)
    ]


def describe_forks(report: Report) -> str:
    """Return what the runs start from, in a sentence or more; empty where none is a fork."""
    forks = report.get("forks", [])
    if len(forks) == 1 and len(forks[0]["runs"]) == len(report["runs"]):
        return f"Every run {_start(forks[0])}."
    pair = _pairing(forks)
    if pair and sum(len(fork["runs"]) for fork in forks) == len(report["runs"]):
        arm, step = pair
        return f"Every run starts after step {step} of the run of its own seed in {arm}."
    return "; ".join(f"{format_runs(_pairs(fork))}: {_start(fork)}" for fork in forks)


def _pairing(forks: Sequence[Any]) -> tuple[str, int] | None:
    """Return the parents' arm and the step, where each run starts from the run of its own seed."""
    found = set()
    for fork in forks:
        arm, _, seed = fork["parent"].rpartition("/seed_")
        if not arm or any(str(own) != seed for _, own in _pairs(fork)):
            return None
        found.add((arm, fork["step"]))
    return found.pop() if len(found) == 1 else None


def _start(fork: Report) -> str:
    place = "" if fork["place"] == fork["parent"] else f" ({fork['place']})"
    return f"starts after step {fork['step']} of {fork['parent']}{place}"


def _pairs(fork: Report) -> list[tuple[str, int]]:
    return [(arm, seed) for arm, seed in fork["runs"]]


def fork_text(report: Report) -> str:
    """Return how forks were judged; empty where there is none."""
    forks = report.get("forks", [])
    if not forks:
        return ""
    text = (
        "a run that starts from another run's checkpoint has that run's values up to there in "
        "front of its own, for baselines and windowed means. Explosions, onsets, dips, spikes and "
        "shares count from the fork on, a collapse wherever it began; final windows and common "
        "steps hold own steps alone. From the fork on a run draws its data and samples by its own "
        "seed."
    )
    if _is_one_past(forks):
        text += (
            " All runs share their past: the spread between seeds is what came after the fork, and "
            "says nothing of how another checkpoint would have fared."
        )
    return text


def _is_one_past(forks: Sequence[Any]) -> bool:
    return len(forks) == 1 and len({seed for _, seed in forks[0]["runs"]}) > 1


def fork_notices(results: Results) -> list[Notice]:
    """Say how far results of forks reach, and which parents' curves are missing."""
    forks = fork_records(results)
    found = []
    if _is_one_past(forks):
        [fork] = forks
        message = (
            f"runs share their past up to step {fork['step']} of {fork['parent']}: results speak of"
            " this checkpoint, not of the recipe"
        )
        found.append(Notice("forks_of_one", message))
    for fork in forks:
        if fork["problem"]:
            message = (
                f"the past of forks of {fork['parent']} (up to step {fork['step']}) is missing:"
                f" {fork['problem']}; a baseline window there is not decidable"
                f" ({format_runs(_pairs(fork))})"
            )
            found.append(Notice("no_past", message))
    return found
