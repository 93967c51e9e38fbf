"""Token records of several files as one source."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from analysis.replay.sources.blocks import (
    NO_ADVANTAGE,
    NO_DECISION,
    NO_STORED_MASK,
    ROUNDING,
    Block,
    RawTokens,
    Tally,
    find_decimals,
    is_rounded,
    looks_like_probabilities,
    narrow_type,
)
from analysis.replay.tokens import CHUNK_TOKENS, TokenChunk, TokenColumns, TokenFile
from harness.errors import UsageError

_MAX_PEEKED = 8
"""Files of which the first tokens are looked at before anything is read: runs have hundreds."""
_MAX_LISTED = 5


class Part(Protocol):
    """One file of a source, or one folder whose files only make sense together.

    Attributes:
        num_tokens: about how many there are; None where only reading tells.
        probabilities: whether the file holds probabilities.
    """

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def num_tokens(self) -> int | None: ...

    @property
    def probabilities(self) -> bool: ...

    def blocks(self, tally: Tally) -> Iterator[Block]:
        """Yield the tokens in order, sequences numbered from 0; count in `tally` what is left out.

        Raises:
            UsageError: the file isn't what it was taken for.
        """
        ...

    def peek(self) -> Block | None:
        """Return the first tokens that count; None where there are none. Raises as `blocks`."""
        ...


class PartsSource:
    """The tokens of all parts, in their order: a `TokenSource`."""

    def __init__(
        self,
        label: str,
        parts: Sequence[Part],
        *,
        loss: Mapping[str, Any] | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        self.label = label
        self.loss = loss
        self._parts = tuple(parts)
        self._given_problems = tuple(problems)
        self._found_problems: list[str] = []
        self._files: list[TokenFile] = []
        self._num_clamped = 0
        blocks = _peek(self._parts)
        self.columns, unsure = _common_columns(blocks)
        self._given_problems += unsure
        is_log = not any(part.probabilities for part in self._parts)
        self.decimals = find_decimals(blocks) if is_log else None
        narrow = narrow_type(blocks) if is_log else ""
        if narrow:
            self._given_problems += (
                f"all log-probabilities are {narrow} numbers: tokens within that type's rounding "
                "of an edge aren't counted as undecidable",
            )
        counts = [part.num_tokens for part in self._parts]
        known = [count for count in counts if count is not None]
        self.num_tokens = sum(known) if len(known) == len(counts) else None

    def chunks(self) -> Iterator[TokenChunk]:
        """Yield all tokens that count, in the order of the files. Memory doesn't grow with them.

        Raises:
            UsageError: a file isn't what it was taken for, or no token counts.
        """
        self._files = []
        self._found_problems = []
        self._num_clamped = 0
        yield from _joined(self._blocks())
        self._finish()

    def files(self) -> tuple[TokenFile, ...]:
        return tuple(self._files)

    def stamp(self) -> str:
        """Return a text that is another one once a file of the source has changed, come or gone: by
        sizes and times, nothing is read."""
        files = [path for part in self._parts for path in getattr(part, "files", (part.path,))]
        found = [(path.stat() if path.exists() else None, str(path)) for path in files]
        known = [(name, status and (status.st_size, status.st_mtime_ns)) for status, name in found]
        return hashlib.sha256(repr(known).encode(errors="surrogateescape")).hexdigest()

    def problems(self) -> tuple[str, ...]:
        return (*self._given_problems, *self._found_problems)

    def _blocks(self) -> Iterator[Block]:
        offset = 0
        differing: list[str] = []
        for part in self._parts:
            tally = Tally()
            num_sequences = 0
            is_as_rounded = True
            for block in _readable(part, tally):
                if not len(block):
                    continue
                if block.sequences is not None:
                    num_sequences = max(num_sequences, int(block.sequences[-1]) + 1)
                    block = replace(block, sequences=block.sequences + offset)
                block = self._fit(block, tally)
                if self.decimals is not None and is_as_rounded:
                    is_as_rounded = is_rounded(block.trainer, self.decimals) and is_rounded(
                        block.inference, self.decimals
                    )
                if len(block):
                    tally.num_tokens += len(block)
                    yield block
            offset += num_sequences
            if not is_as_rounded:
                differing.append(str(part.path))
            self._close(part, tally)
        if differing:
            self._found_problems.append(
                f"log-probabilities are rounded to {self.decimals} decimals in some places, but "
                f"not in {_listed(differing)}: all are treated as rounded"
            )

    def _fit(self, block: Block, tally: Tally) -> Block:
        """Return `block` with the columns of the source, without tokens that lack one of them."""
        columns = self.columns
        block = replace(
            block,
            advantages=block.advantages if columns.advantages else None,
            sequences=block.sequences if columns.sequences else None,
            steps=block.steps if columns.steps else None,
            stored_masks=block.stored_masks if columns.stored_masks else None,
        )
        lacking: list[tuple[str, Any]] = []
        if columns.advantages:
            given = block.advantages
            lacking.append((NO_ADVANTAGE, None if given is None else ~np.isfinite(given)))
        if columns.stored_masks:
            stored = block.stored_masks
            lacking.append((NO_STORED_MASK, None if stored is None else stored == NO_DECISION))
        for name in ("sequences", "steps"):
            if getattr(columns, name) and getattr(block, name) is None:
                lacking.append((f"no {name.removesuffix('s')}", None))
        kept = np.ones(len(block), dtype=np.bool_)
        for reason, lacks in lacking:
            hit = np.ones(len(block), dtype=np.bool_) if lacks is None else lacks
            tally.exclude(reason, int(np.count_nonzero(kept & hit)))
            kept &= ~hit
        return block if kept.all() else block.apply(lambda one: one[kept])

    def _close(self, part: Part, tally: Tally) -> None:
        self._files.append(
            TokenFile(
                path=str(part.path),
                format=part.format,
                size_bytes=part.size_bytes,
                num_tokens=tally.num_tokens,
                excluded=dict(tally.excluded),
                num_bad_lines=tally.num_bad_lines,
                problem=tally.problem,
            )
        )
        self._num_clamped += tally.num_clamped
        if tally.num_bad_lines:
            named = ", ".join(map(str, tally.bad_lines))
            more = ", …" if tally.num_bad_lines > len(tally.bad_lines) else ""
            lines = "line is" if tally.num_bad_lines == 1 else "lines are"
            self._found_problems.append(
                f"`{part.path}`: {tally.num_bad_lines} {lines} no record (line {named}{more})"
            )

    def _finish(self) -> None:
        if self._num_clamped:
            self._found_problems.append(
                f"{self._num_clamped} log-probabilities lie above 0 by at most {ROUNDING:g}, as "
                "rounding leaves them: taken as 0"
            )
        if any(file.num_tokens for file in self._files):
            return
        excluded: Counter[str] = Counter()
        for file in self._files:
            excluded.update(file.excluded)
        why = ", ".join(f"{number} {reason}" for reason, number in excluded.most_common())
        num_bad = sum(file.num_bad_lines for file in self._files)
        why += f"{', ' if why else ''}{num_bad} bad lines" if num_bad else ""
        problem = next((file.problem for file in self._files if file.problem), "")
        raise UsageError(
            f"`{self.label}` holds no token that counts ({problem or why or 'no rows'})",
            _advice(excluded),
        )


def _readable(part: Part, tally: Tally) -> Iterator[Block]:
    try:
        yield from part.blocks(tally)
    except OSError as error:
        raise _no_reading(part, error) from error


def _no_reading(part: Part, error: OSError) -> UsageError:
    return UsageError(
        f"`{part.path}` can't be read: {error.strerror or error}",
        "make it readable; the folder for temporary files must be writable, too",
    )


def _advice(excluded: Counter[str]) -> str:
    most = excluded.most_common(1)
    if most and most[0][0] == "step without completion marker":
        return "wait until the trainer has finished a step, or allow unstable steps"
    if most and most[0][0] == "impossible":
        return "say whether the columns hold log-probabilities or probabilities"
    return "name records of tokens that a trainer was trained on"


def _peek(parts: Sequence[Part]) -> list[Block]:
    """Return the first tokens of some of the parts.

    Raises:
        UsageError: they are no log-probabilities.
    """
    places = np.unique(np.linspace(0, len(parts) - 1, _MAX_PEEKED).round().astype(int))
    blocks = []
    for place in places.tolist():
        try:
            block = parts[place].peek()
        except OSError as error:
            raise _no_reading(parts[place], error) from error
        if block is not None and len(block):
            blocks.append(block)
    return blocks


def refuse_probabilities(path: Path, raw: RawTokens) -> None:
    """Raise UsageError where one of the columns holds nothing but numbers in (0, 1]."""
    for name, values in (("trainer", raw.trainer), ("inference", raw.inference)):
        if raw.loss_mask is not None:
            values = values[raw.loss_mask]
        if looks_like_probabilities(values):
            raise UsageError(
                f"`{path}`: the {name} column looks like probabilities: all values lie in (0, 1], "
                "log-probabilities are at most 0",
                "map `trainer_prob=…,inference_prob=…`, or take the logarithm",
            )


def _common_columns(blocks: Sequence[Block]) -> tuple[TokenColumns, tuple[str, ...]]:
    problems = []
    found = {}
    for name, what in (
        ("advantages", "advantages"),
        ("sequences", "ids of sequences"),
        ("steps", "steps"),
        ("stored_masks", "the trainer's decisions"),
    ):
        has = [_has(block, name) for block in blocks]
        found[name] = bool(has) and all(has)
        if any(has) and not all(has):
            problems.append(f"some of the files lack {what}: not used")
    return TokenColumns(**found), tuple(problems)


def _has(block: Block, name: str) -> bool:
    column = getattr(block, name)
    if column is None:
        return False
    if name == "advantages":
        return bool(np.isfinite(column).any())
    return name != "stored_masks" or bool((column != NO_DECISION).any())


def _joined(blocks: Iterator[Block]) -> Iterator[TokenChunk]:
    """Yield the tokens of `blocks` in chunks of CHUNK_TOKENS: small files would cost more."""
    waiting: list[Block] = []
    num_waiting = 0
    for block in blocks:
        for start in range(0, len(block), CHUNK_TOKENS):
            piece = _slice(block, start, start + CHUNK_TOKENS)
            if num_waiting + len(piece) > CHUNK_TOKENS:
                yield _chunk(waiting)
                waiting, num_waiting = [], 0
            waiting.append(piece)
            num_waiting += len(piece)
    if waiting:
        yield _chunk(waiting)


def _slice(block: Block, start: int, end: int) -> Block:
    if start == 0 and end >= len(block):
        return block
    return block.apply(lambda one: one[start:end])


def _chunk(blocks: Sequence[Block]) -> TokenChunk:
    def joined(name: str) -> Any:
        parts = [getattr(block, name) for block in blocks]
        if parts[0] is None:
            return None
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    stored = joined("stored_masks")
    return TokenChunk(
        trainer_logprobs=joined("trainer"),
        inference_logprobs=joined("inference"),
        advantages=joined("advantages"),
        sequences=joined("sequences"),
        steps=joined("steps"),
        stored_masks=None if stored is None else stored == 1,
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_MAX_LISTED]) + more
