"""harness replay --on: counts parts of the token records as jobs, and puts the counts together.

The parts are runs of a sweep like any other, so that whatever starts, follows and resumes runs on a
queue or a cluster does so here.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from harness.cli import tell
from harness.cli.run import run_sweep_command
from harness.errors import HarnessError
from harness.profile import load_profile
from harness.records.files import canonical_json, write_json
from harness.records.layout import SweepPaths, outputs_root

if TYPE_CHECKING:
    from analysis.replay.tally import Tally

MAX_PARTS = 64
"""Parts that the records are dealt out to; a part reads several runs or files where there are more
of them."""


@dataclass(frozen=True)
class Question:
    """What is asked of the records, as users write it.

    Attributes:
        pieces: runs or files that only make sense together, each read by one part.
        stamp: another one once the files have changed, which makes it another question.
    """

    pieces: tuple[tuple[str, ...], ...]
    rules: tuple[str, ...]
    curves: tuple[str, ...]
    columns: Mapping[str, str]
    probabilities: bool | None
    unstable_ok: bool
    stamp: str


def count_on(question: Question, profile: str) -> Tally:
    """Return the counts of all parts, each a job of `profile`. The same question goes on where it
    was left: parts that have ended are not counted again.

    Raises:
        HarnessError: the profile can't be used, or a part failed.
    """
    from analysis.replay.part import TALLY_FILE, merge_parts, part_record  # noqa: PLC0415 (numpy)

    shares = [question.pieces[place::MAX_PARTS] for place in range(MAX_PARTS)]
    records = {
        f"part_{place:03d}": part_record(
            place,
            [str(Path(path).absolute()) for piece in share for path in piece],
            rules=question.rules,
            curves=question.curves,
            columns=question.columns,
            probabilities=question.probabilities,
            unstable_ok=question.unstable_ok,
        )
        for place, share in enumerate(shares)
        if share
    }
    load_profile(profile)  # refused before anything is written
    digest = hashlib.sha256(canonical_json([records, question.stamp])).hexdigest()[:10]
    paths = SweepPaths(outputs_root() / f"replay_{digest}")
    for name, record in records.items():
        write_json(paths.replay_part(name), record)
    num_paths = sum(len(piece) for piece in question.pieces)
    tell(f"{paths.name}: {num_paths} runs or files in {len(records)} parts")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{paths.name}.yaml"
        file.write_text(yaml.safe_dump(_sweep(paths, records), sort_keys=False))
        code = run_sweep_command(
            sweep=str(file),
            overrides=(),
            conf_dirs=(),
            as_name=None,
            profile_name=profile,
            slots=None,
            detach=False,
            max_gpu_hours=None,
            live_code=False,
            reuse_across_code=True,
            with_report=False,
            dry_run=False,
        )
    tallies = [paths.run(name, 0).trainer_dir / TALLY_FILE for name in records]
    missing = sum(not path.is_file() for path in tallies)
    if code or missing:
        raise HarnessError(
            f"{missing} of {len(tallies)} parts were not counted",
            f"`harness status {paths.name}` shows them; the same command starts them again",
        )
    return merge_parts(tallies)


def _sweep(paths: SweepPaths, records: Mapping[str, object]) -> dict[str, object]:
    part_file = paths.replay_part("{arm}").absolute()
    argv = ["{python}", "-m", "analysis.replay.part", str(part_file), "{trainer_dir}"]
    words = ", ".join(_quoted(word) for word in argv)
    names: Sequence[str] = list(records)
    return {
        "question": "Parts of one replay of token records: no ablation.",
        "baseline": names[0],
        "seeds": [0],
        "common": [
            "trainer=command",
            "task=external",
            "model=external",
            "loss=none",
            "max_steps=1",
            f"trainer.argv=[{words}]",
        ],
        "arms": {name: [f"trainer.native.part={place}"] for place, name in enumerate(names)},
        "may_differ": ["trainer.native"],
    }


def _quoted(word: str) -> str:
    """Return `word` as a quoted string of Hydra's override grammar."""
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
