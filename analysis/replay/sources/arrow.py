"""Columns of Arrow tables as tokens: one row per token, or one per sequence with lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.replay.sources.blocks import (
    NO_DECISION,
    NO_SEQUENCE,
    NO_STEP,
    FloatArray,
    Int8Array,
    RawTokens,
)
from analysis.replay.sources.columns import Roles
from analysis.replay.sources.numbering import Numbering, SplitSequenceError
from analysis.replay.tokens import BoolArray, IntArray
from harness.errors import UsageError

_LISTED = ("trainer", "inference", "advantage", "loss_mask", "is_masked")
"""Roles that have one value per token where rows are sequences; the others have one per row."""


def check_types(path: Path, schema: Any, roles: Roles) -> Roles:
    """Return the roles whose columns have a type that fits.

    A column that nobody mapped and that doesn't fit isn't what its name says: it is left out.

    Raises:
        UsageError: a column that is mapped or needed has another type.
    """
    is_list = is_list_type(schema.field(roles.columns["trainer"]).type)
    for role, column in dict(roles.columns).items():
        kind = schema.field(column).type
        expected = _expected(role, kind, is_list)
        if not expected:
            continue
        if role in ("trainer", "inference") or role in roles.mapped:
            raise UsageError(
                f"`{path}`: column `{column}` ({role}) has type {kind}, not {expected}",
                f"map `{role}` to a column of that type",
            )
        roles = roles.without(role)
    return roles


def is_list_type(kind: Any) -> bool:
    import pyarrow.types as kinds  # noqa: PLC0415 (slow to import)

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _expected(role: str, kind: Any, is_list: bool) -> str:
    """Return what type the column should have; empty where it has it."""
    import pyarrow.types as kinds  # noqa: PLC0415 (slow to import)

    inner = kind.value_type if is_list_type(kind) else kind
    if role in ("trainer", "inference") and is_list != is_list_type(kind):
        return "lists of numbers" if is_list else "numbers"
    if is_list_type(kind) and (not is_list or role not in _LISTED):
        return "one value per row"
    if role in ("loss_mask", "is_masked"):
        fits = kinds.is_boolean(inner) or kinds.is_integer(inner) or kinds.is_null(inner)
        return "" if fits else "true and false"
    if role in ("sequence", "step"):
        is_text = kinds.is_string(inner) or kinds.is_large_string(inner)
        is_text = is_text or kinds.is_dictionary(inner)
        # Tables with a gap hold whole numbers as floats.
        is_number = kinds.is_integer(inner) or kinds.is_floating(inner)
        return "" if is_number or (role == "sequence" and is_text) else "whole numbers"
    fits = kinds.is_floating(inner) or kinds.is_integer(inner) or kinds.is_decimal(inner)
    fits = fits or (role == "advantage" and kinds.is_null(inner))
    return "" if fits else ("lists of numbers" if is_list else "numbers")


class ArrowTokens:
    """Turns the batches of one file, in their order, into tokens."""

    def __init__(self, path: Path, roles: Roles) -> None:
        self._path = path
        self._roles = roles
        self._numbering = Numbering()
        self._row = 0
        self._num_sequences = 0

    def tokens(self, batch: Any) -> RawTokens:
        """Return the tokens of a record batch that has the columns of the roles.

        Raises:
            UsageError: lists of one row differ in length, or a sequence goes on after others.
        """
        is_list = is_list_type(self._column(batch, "trainer").type)
        raw = self._exploded(batch) if is_list else self._flat(batch)
        self._row += batch.num_rows
        return raw

    def _column(self, batch: Any, role: str) -> Any:
        name = self._roles.get(role)
        return None if name is None else batch.column(batch.schema.get_field_index(name))

    def _flat(self, batch: Any) -> RawTokens:
        trainer, trainer_nulls = numbers(self._column(batch, "trainer"))
        inference, inference_nulls = numbers(self._column(batch, "inference"))
        lacking: dict[str, BoolArray] = {}
        steps = self._integers(batch, "step", NO_STEP, lacking)
        ids = self._integers(batch, "sequence", NO_SEQUENCE, lacking)
        sequences = None
        if ids is not None:
            try:
                sequences = self._numbering.number(ids, steps)
            except SplitSequenceError as error:
                name = self._roles.columns["sequence"]
                raise UsageError(
                    f"`{self._path}`: row {error.row + 1}: the sequence of column `{name}` goes on "
                    "after other sequences",
                    "sort the rows by step and sequence",
                ) from None
        advantage = self._column(batch, "advantage")
        return RawTokens(
            trainer,
            inference,
            either(trainer_nulls, inference_nulls),
            loss_mask=_is_true(self._column(batch, "loss_mask")),
            advantages=None if advantage is None else numbers(advantage)[0],
            sequences=sequences,
            steps=steps,
            stored_masks=_decisions(self._column(batch, "is_masked")),
            lacking=lacking,
        )

    def _integers(
        self, batch: Any, role: str, reason: str, lacking: dict[str, BoolArray]
    ) -> IntArray | None:
        import pyarrow as pa  # noqa: PLC0415 (slow to import)
        import pyarrow.types as kinds  # noqa: PLC0415 (the same)

        column = self._column(batch, role)
        if column is None:
            return None
        if column.null_count:
            lacking[reason] = np.asarray(column.is_null())
        if kinds.is_integer(column.type) or kinds.is_floating(column.type):
            try:
                filled = column.fill_null(0).cast(pa.int64())
            except pa.ArrowException as error:
                raise UsageError(
                    f"`{self._path}`: column `{self._roles.columns[role]}` ({role}) doesn't hold "
                    f"whole numbers after row {self._row}: {' '.join(str(error).split())}",
                    f"map `{role}` to a column that does",
                ) from error
            return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
        coded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
        codes = self._numbering.codes(np.array(coded.dictionary.to_pylist(), dtype=object))
        indices = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return codes[indices] if len(codes) else np.zeros(len(column), dtype=np.int64)

    def _exploded(self, batch: Any) -> RawTokens:
        import pyarrow.compute as pc  # noqa: PLC0415 (slow to import)

        lengths = np.asarray(
            pc.list_value_length(self._column(batch, "trainer")).fill_null(0), dtype=np.int64
        )
        columns = {role: self._column(batch, role) for role in self._roles.columns}
        for role, column in columns.items():
            if is_list_type(column.type):
                self._check_lengths(role, column, lengths)
        trainer, trainer_nulls = numbers(columns["trainer"].flatten())
        inference, inference_nulls = numbers(columns["inference"].flatten())
        lacking: dict[str, BoolArray] = {}
        steps = self._integers(batch, "step", NO_STEP, lacking)
        lacking = {reason: np.repeat(hit, lengths) for reason, hit in lacking.items()}
        first = self._num_sequences
        self._num_sequences += batch.num_rows
        rows = np.arange(first, self._num_sequences, dtype=np.int64)
        advantage, loss_mask = columns.get("advantage"), columns.get("loss_mask")
        advantages = None if advantage is None else _spread(numbers, advantage, lengths, np.nan)
        mask = None if loss_mask is None else _spread(_is_true_pair, loss_mask, lengths, False)
        stored = columns.get("is_masked")
        return RawTokens(
            trainer,
            inference,
            either(trainer_nulls, inference_nulls),
            loss_mask=mask,
            advantages=advantages,
            # A row is a sequence, whatever an id beside it says.
            sequences=np.repeat(rows, lengths),
            steps=None if steps is None else np.repeat(steps, lengths),
            stored_masks=None
            if stored is None
            else _spread(_decisions_pair, stored, lengths, NO_DECISION),
            lacking=lacking,
        )

    def _check_lengths(self, role: str, column: Any, expected: IntArray) -> None:
        import pyarrow.compute as pc  # noqa: PLC0415 (slow to import)

        found = pc.list_value_length(column)
        lengths = np.asarray(found.fill_null(-1), dtype=np.int64)
        may_lack = role not in ("trainer", "inference")
        wrong = (lengths != expected) & ~((lengths == -1) & (may_lack | (expected == 0)))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise UsageError(
                f"`{self._path}`: row {self._row + row + 1}: column "
                f"`{self._roles.columns[role]}` has {max(int(lengths[row]), 0)} values, "
                f"`{self._roles.columns['trainer']}` has {int(expected[row])}",
                "all lists of a row must have one value per token",
            )


def numbers(column: Any) -> tuple[FloatArray, BoolArray | None]:
    """Return the numbers of a column, NaN where it is null, and where; None where nowhere."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)
    import pyarrow.types as kinds  # noqa: PLC0415 (the same)

    nulls = np.asarray(column.is_null()) if column.null_count else None
    is_float = kinds.is_float32(column.type) or kinds.is_float64(column.type)
    if not is_float:
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False)), nulls


def either(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def _is_true(column: Any) -> BoolArray | None:
    """Return where a mask is true; null isn't."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)

    if column is None:
        return None
    filled = column.cast(pa.bool_()).fill_null(False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _decisions(column: Any) -> Int8Array | None:
    import pyarrow as pa  # noqa: PLC0415 (slow to import)

    if column is None:
        return None
    filled = column.cast(pa.bool_()).cast(pa.int8()).fill_null(NO_DECISION)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int8)


def _is_true_pair(column: Any) -> tuple[Any, None]:
    return _is_true(column), None


def _decisions_pair(column: Any) -> tuple[Any, None]:
    return _decisions(column), None


def _spread(take: Any, column: Any, lengths: IntArray, missing: Any) -> Any:
    """Return one value per token of a column with a list, or with one value, per row.

    A row without a list has `missing` at all of its tokens.
    """
    if not is_list_type(column.type):
        return np.repeat(take(column)[0], lengths)
    values = take(column.flatten())[0]
    if not column.null_count:
        return values
    is_there = np.repeat(~np.asarray(column.is_null()), lengths)
    spread = np.full(len(is_there), missing, dtype=values.dtype)
    spread[is_there] = values
    return spread
