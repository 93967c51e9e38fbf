"""From what the user typed to the runs of a sweep that exists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.errors import UsageError
from harness.near import did_you_mean
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import PlanRecord, read_record
from harness.state.model import RunState, RunStatus
from harness.sweep.locate import split_target


def select_runs(
    paths: SweepPaths, states: Sequence[RunStatus], target: str | None
) -> list[RunStatus]:
    """Return the runs that `target` names (all without one). Raises UsageError for none."""
    arm, seed = split_target(target)
    chosen = [
        s for s in states if (arm is None or s.arm == arm) and (seed is None or s.seed == seed)
    ]
    if not chosen and arm is not None:
        raise _no_run(paths, [(s.arm, s.seed) for s in states], arm, seed)
    return chosen


def find_run(paths: SweepPaths, target: str) -> RunPaths:
    """Return the folder of the one run that `target` names. Raises UsageError."""
    arm, seed = split_target(target)
    plan = read_record(PlanRecord, paths.plan)
    if arm is None or seed is None:
        raise UsageError(
            f"`{target}` names an arm, want one run", f"write `{target}/{plan.seeds[0]}`"
        )
    known = [(run.arm, run.seed) for run in plan.runs]
    known += [(run.arm, run.seed) for run in paths.runs() if (run.arm, run.seed) not in known]
    if (arm, seed) not in known:
        raise _no_run(paths, known, arm, seed)
    return paths.run(arm, seed)


def parse_states(text: str) -> frozenset[RunState]:
    """Return the states in a list such as `failed,lost`. Raises UsageError."""
    wanted = []
    for word in text.split(","):
        try:
            wanted.append(RunState(word.strip().lower()))
        except ValueError:
            names = [str(state) for state in RunState]
            raise UsageError(
                f"--state: there is no state `{word}`", did_you_mean(word, names, what="states")
            ) from None
    return frozenset(wanted)


def count_states(states: Iterable[RunStatus]) -> dict[RunState, int]:
    """Return how many runs are in each state, in the order of RunState."""
    found = [status.state for status in states]
    return {state: found.count(state) for state in RunState if state in found}


def show_counts(counts: dict[RunState, int]) -> str:
    """Return `12 done, 3 queued`."""
    return ", ".join(f"{number} {state}" for state, number in counts.items())


def _no_run(
    paths: SweepPaths, known: Collection[tuple[str, int]], arm: str, seed: int | None
) -> UsageError:
    arms = sorted({name for name, _ in known})
    if arm not in arms:
        return UsageError(
            f"sweep `{paths.name}` has no arm `{arm}`", did_you_mean(arm, arms, what="arms")
        )
    seeds = ", ".join(str(number) for name, number in known if name == arm)
    return UsageError(f"arm `{arm}` of `{paths.name}` has no seed {seed}", f"seeds: {seeds}")
