"""What masks would have done to recorded tokens: one pass, exact counts.

`import analysis.replay` loads no third-party package; its functions load what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.replay.frames import ReplayTables
    from analysis.replay.result import ReplayResult
    from analysis.replay.rules import Rule

__all__ = ["DEFAULT_CURVES", "DEFAULT_RULES", "replay", "run_replay"]

DEFAULT_RULES = ("ipo:eps=0.3", "ipo:eps=0.2", "ipo:eps=0.1", "icepop", "kpop:phi=0.1", "ipo_band")
DEFAULT_CURVES = ("ipo:eps=0.01..1",)

Progress = Callable[[int, "int | None"], None]
"""Called with the tokens counted so far, and how many there are about, where that is known."""


def replay(
    paths: Sequence[Path | str] | Path | str,
    *,
    rules: Sequence[str] | None = None,
    curves: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    probabilities: bool | None = None,
    unstable_ok: bool = False,
    max_share: float = 0.001,
    moved: float = 0.3,
    window_steps: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReplayTables:
    """Return what `rules` would have masked of the tokens in `paths`, as pandas tables.

    Nothing is written but a cache of converted records. Arguments and errors as `run_replay`.
    """
    from analysis.replay.frames import build_tables  # noqa: PLC0415  (pandas stays unloaded)

    return build_tables(
        run_replay(
            paths,
            rules=rules,
            curves=curves,
            columns=columns,
            probabilities=probabilities,
            unstable_ok=unstable_ok,
            max_share=max_share,
            moved=moved,
            window_steps=window_steps,
            seed=seed,
            progress=progress,
        )
    )


def run_replay(
    paths: Sequence[Path | str] | Path | str,
    *,
    rules: Sequence[str] | None = None,
    curves: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    probabilities: bool | None = None,
    unstable_ok: bool = False,
    max_share: float = 0.001,
    moved: float = 0.3,
    window_steps: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Return the counts of one pass over the tokens in `paths`, recommendations among them.

    Args:
        paths: run folders, sweep folders or files of token records.
        rules: such as `ipo:eps=0.3`; without them `DEFAULT_RULES` and the run's own loss.
        curves: such as `ipo:eps=0.01..1`; without them `DEFAULT_CURVES`.
        columns: role -> column, for files with names of their own.
        probabilities: whether those columns hold probabilities; None leaves it to the reader.
        unstable_ok: also read steps without a completion marker.
        max_share, moved: what a recommended threshold may mask at most, and has to mask.
        window_steps: steps per window of the table by steps.
        seed: of the bootstrap; None takes `analysis.replay.engine.SEED`.

    Raises:
        UsageError: a rule, a curve or a column is none, or a path holds no token records.
        HarnessError: a file is of a wrong kind.
    """
    from analysis.replay.engine import SEED  # noqa: PLC0415  (numpy stays unloaded)
    from analysis.replay.engine import replay as count  # noqa: PLC0415
    from analysis.replay.requests import parse_curve  # noqa: PLC0415
    from analysis.replay.rules import parse_rule  # noqa: PLC0415
    from analysis.replay.sources import open_tokens  # noqa: PLC0415

    # Rules first: a mistyped one is met before anything is read.
    parsed_rules = [parse_rule(text) for text in rules_of(None, rules)]
    parsed_curves = [parse_curve(text) for text in (DEFAULT_CURVES if curves is None else curves)]
    listed = [paths] if isinstance(paths, (str, Path)) else paths
    source = open_tokens(
        [str(path) for path in listed],
        columns=columns or {},
        unstable_ok=unstable_ok,
        probabilities=probabilities,
    )
    parsed_rules = [parse_rule(text) for text in rules_of(source.loss, rules)]
    say = None if progress is None else lambda done: progress(done, source.num_tokens)
    return count(
        source,
        parsed_rules,
        parsed_curves,
        seed=SEED if seed is None else seed,
        window_steps=window_steps,
        max_share=max_share,
        moved=moved,
        progress=say,
    )


def rules_of(loss: Mapping[str, Any] | None, rules: Sequence[str] | None) -> list[str]:
    """Return the rules to replay: those that were asked for, or `DEFAULT_RULES` and that of
    `loss`."""
    from analysis.replay.rules import parse_rule  # noqa: PLC0415

    if rules is not None:
        return list(rules)
    own = None if loss is None else _own_rule(loss)
    known = [parse_rule(text) for text in DEFAULT_RULES]
    return [*DEFAULT_RULES, *([own.label] if own is not None and own not in known else [])]


def _own_rule(loss: Mapping[str, Any]) -> Rule | None:
    """Return the rule of `loss` with the knobs that it says; None where there is none of it, or
    where it can't be."""
    from analysis.replay.rules import RULES, make_rule  # noqa: PLC0415
    from harness.errors import UsageError  # noqa: PLC0415

    spec = RULES.get(str(loss.get("type")))
    if spec is None:
        return None
    knobs = {knob.name: loss.get(knob.name) for knob in spec.knobs}
    numbers = {
        name: value
        for name, value in knobs.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    try:
        return make_rule(spec.type, numbers)
    except UsageError:  # nobody asked for it; that its decisions aren't checked is noted
        return None
