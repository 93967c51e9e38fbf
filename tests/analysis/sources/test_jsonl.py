from __future__ import annotations

import hashlib
import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.sources.interface import NO_ATTEMPT, MetricsFile, parse_step, parse_value
from analysis.sources.jsonl import Row, read_json_rows, read_jsonl

Cells = dict[str, list[tuple[int, str, int, str]]]

KEYS = ("a", "b", "a:b", 'quo\\"te', "ü", "lo\\u0073s", "time/step")
WANTED = {"a", "a:b", 'quo"te', "loss", "time/step", "renamed"}
NUMBERS = (
    *("0", "-0", "-0.0", "0.5", "-1.25e-3", "1E5", "12", "1e400", "-1e400", "5e-324", "1e-400"),
    *("NaN", "Infinity", "-Infinity", "9007199254740993", "9" * 300, "-" + "9" * 400, "9" * 5000),
    *("0.1234567890123456789", "123456789012345678901234567890.5", "-9223372036854775808"),
)
OTHERS = (
    *("null", "true", "false", '"NaN"', '"1e-3"', '" 7 "', '"-inf"', '"ipo"', '"x: 1, y"', '"é"'),
    *("[1, 2]", '{"a": 1}', "[]", '"\\ud800"', '"tab\\t"'),
)
STEPS = ("7", "12", "0", "-3", "2.0", "1e2", '"4"', "null", "1.5", '"x"', "true", "9" * 25)
BROKEN = (
    *("", "  ", "[1]", "1", '{"step": 1, "a"', '{"step": 01}', '{"step": 1, "a": 1.}', "{}"),
    *('{"step": 1, "a": 1}{"step": 1, "a": 1}', '{"step": 1, "a": +1}', '{"step": 1, "a": .5}'),
    *('{"step": 1, "a": 01.5}', '{"step": 1, "a": -00}', '{"step": 01, "a": 1}'),
    *('{"step": 1, "a": 0.10.2}', '{"step": 1, "a": Inf}', '{"step": 1, "a": 1_0}', "\x00\x01"),
    *('\ufeff{"step": 1, "a": 2}', '{"step": 1, "a": 1,}', '{"step": 1, "a": "\x01"}', "\x0b"),
    *(' {"step": 5, "a": 6}', '{"step": 5, "a": 1, "a": 2}', '{"step": 5, "step": 6, "a": 2}'),
)


def unchanged(row: Row) -> Row:
    return row


def without_b(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "b"} if "a" in row else row


def renamed(row: Row) -> Row:
    return {"renamed" if key == "b" else key: value for key, value in row.items()}


def halved(row: Row) -> Row:
    return {k: v / 2 if k == "a" and isinstance(v, float) else v for k, v in row.items()}


def plain(content: bytes, step_key: str, clean: Callable[[Row], Row]) -> dict[str, Any]:
    """Read `content` a line at a time by `json.loads`."""
    series: Cells = {}
    keys: set[str] = set()
    rows: list[tuple[int, int]] = []
    bad: list[int] = []
    num_rows = 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            bad.append(number)
            continue
        row = clean(row)
        num_rows += 1
        step = parse_step(row.get(step_key))
        if step is None:
            continue
        attempt = parse_step(row.get("attempt"))
        attempt = NO_ATTEMPT if attempt is None else attempt
        time = parse_value(row.get("time"))
        rows.append((step, attempt))
        for key, raw in row.items():
            value = parse_value(raw)
            if key in (step_key, "attempt", "time") or value is None:
                continue
            keys.add(key)
            if key in WANTED:
                cell = (step, exact(value), attempt, exact(math.nan if time is None else time))
                series.setdefault(key, []).append(cell)
    return {
        "series": series,
        "keys": keys,
        "rows": rows,
        "num_rows": num_rows,
        "num_without_step": num_rows - len(rows),
        "num_bad_lines": len(bad),
        "bad_lines": tuple(bad[:5]),
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
    }


def exact(value: float) -> str:
    """Tell all floats apart, zeros by their sign, and no NaN from another."""
    return float(value).hex()


def summed_up(file: MetricsFile) -> dict[str, Any]:
    columns = {
        key: (
            one.steps.tolist(),
            [exact(v) for v in one.values],
            one.attempts.tolist(),
            [exact(t) for t in one.times],
        )
        for key, one in file.series.items()
    }
    rows = zip(file.row_steps.tolist(), file.row_attempts.tolist(), strict=True)
    return {
        "series": {key: list(zip(*column, strict=True)) for key, column in columns.items()},
        "keys": set(file.keys),
        "rows": list(rows),
        "num_rows": file.provenance.num_rows,
        "num_without_step": file.provenance.num_rows_without_step,
        "num_bad_lines": file.provenance.num_bad_lines,
        "bad_lines": file.provenance.bad_lines,
        "sha256": file.provenance.sha256,
        "size_bytes": file.provenance.size_bytes,
    }


def read(
    path: Path,
    content: bytes,
    *,
    step_key: str = "step",
    clean: Callable[[Row], Row] = unchanged,
    block_bytes: int = 1 << 20,
) -> MetricsFile:
    path.write_bytes(content)
    return read_json_rows(
        path,
        "jsonl",
        wanted=WANTED.__contains__,
        step_key=step_key,
        clean=clean,
        block_bytes=block_bytes,
    )


def usual(token: str) -> st.SearchStrategy[str]:
    """Mostly a plain number, now and then `token` or another one."""
    plain_number = st.integers(0, 999).map(lambda number: f"{number / 8}")
    return st.one_of(*[plain_number] * 6, st.just(token), st.sampled_from(NUMBERS))


@st.composite
def layouts(draw: st.DrawFn) -> st.SearchStrategy[str]:
    """Lines that have the same keys and spaces, mostly with other numbers in them."""
    keys = draw(st.lists(st.sampled_from((*KEYS, "time", "attempt")), max_size=6))
    keys.insert(draw(st.integers(0, len(keys))), draw(st.sampled_from(("step", "step", "other"))))
    colon, comma, end = draw(
        st.sampled_from(((": ", ", ", "}"), (":", ",", "}"), (" :\t", " , ", " } ")))
    )
    values: list[st.SearchStrategy[str]] = []
    for key in keys:
        kinds: list[st.SearchStrategy[str]] = [st.integers(0, 99).map(str)] * 6
        if key in ("step", "other", "attempt"):
            values.append(st.one_of(*kinds, st.sampled_from(STEPS)))
        elif draw(st.integers(0, 3)):
            values.append(usual(draw(st.sampled_from(NUMBERS))))
        else:
            values.append(st.just(draw(st.sampled_from(OTHERS))))
    names = [f'"{key}"{colon}' for key in keys]
    newline = draw(st.sampled_from(("\n", "\n", "\r\n")))
    return st.tuples(*values).map(
        lambda cells: (
            "{" + comma.join(n + c for n, c in zip(names, cells, strict=True)) + end + newline
        )
    )


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Files in which a few layouts come in turns, with other lines in between."""
    kinds = [draw(layouts()) for _ in range(draw(st.integers(1, 3)))]
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 14))):
        lines += [draw(kind) for kind in kinds]
        if not draw(st.integers(0, 4)):
            lines.append(draw(st.sampled_from(BROKEN)) + "\n")
    content = "".join(lines).encode()
    return content[: len(content) - draw(st.sampled_from((0, 0, 1, 2, 9)))]


ROTATION = b'{"step": 1, "a": 0.5}\n{"step": 1, "b": 1, "time": 5}\n' * 30


@settings(max_examples=300, deadline=None)
@given(
    content=contents(),
    step_key=st.sampled_from(("step", "step", "other", "time", "attempt")),
    clean=st.sampled_from((unchanged, without_b, renamed, halved)),
    block_bytes=st.sampled_from((1, 100, 400, 1 << 20)),
)
@example(ROTATION, "step", unchanged, 100)
@example(ROTATION + b'{"step": 1, "a": 0.10.2}\n' + ROTATION, "step", unchanged, 200)
@example(ROTATION + b"".join(line.encode() + b"\n" for line in BROKEN), "step", renamed, 400)
@example(ROTATION, "step", halved, 100)
@example(b'{"step": 1, "a": \xff}\n{"step": 1, "\xff": 1}\n' * 9, "step", unchanged, 10)
@example(b'{"step": 1, "a": -0, "a:b": -0.0}\n' * 9, "step", unchanged, 10)
def test_every_cell_is_what_json_loads_makes_of_its_line(
    tmp_path_factory: pytest.TempPathFactory,
    content: bytes,
    step_key: str,
    clean: Callable[[Row], Row],
    block_bytes: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    found = read(path, content, step_key=step_key, clean=clean, block_bytes=block_bytes)
    assert summed_up(found) == plain(content, step_key, clean)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_the_same_in_the_first_line_and_in_the_thousandth(
    tmp_path: Path, number: str
) -> None:
    content = f'{{"step": 1, "a": {number}}}\n'.encode() * 20
    found = read(tmp_path / "m.jsonl", content, block_bytes=100)
    assert summed_up(found) == plain(content, "step", unchanged)


def test_long_lines_may_differ_at_their_ends_alone(tmp_path: Path) -> None:
    start = b'{"step": 1, ' + b"".join(b'"key_%d": 0.5, ' % i for i in range(100))
    content = (start + b'"a": 0.5}\n' + start + b'"b": 0.5}\n') * 20
    found = read(tmp_path / "m.jsonl", content)
    assert summed_up(found) == plain(content, "step", unchanged)


def test_keys_of_a_line_that_comes_once_in_a_million_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(ROTATION * 50 + b'{"step": 2, "b": 1, "rare": 1}\n' + ROTATION * 50)
    assert read_jsonl(path, wanted=lambda key: False, step_key="step").keys == {"a", "b", "rare"}


def test_memory_is_bounded_by_the_wanted_keys(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    rest = ", ".join(f'"key_{i}": {i}.5' for i in range(1000))
    with path.open("w") as file:
        for step in range(2000):
            file.write(f'{{"step": {step}, {rest}}}\n')
    tracemalloc.start()
    try:
        found = read_jsonl(path, wanted=lambda key: key == "key_7", step_key="step")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found.series["key_7"].values, np.full(2000, 7.5))
    assert peak < path.stat().st_size / 2


def test_values_that_repeat_key_step_and_attempt_are_counted(tmp_path: Path) -> None:
    found = read(
        tmp_path / "m.jsonl",
        b'{"step": 1, "a": 1, "b": 1}\n{"step": 2, "a": 1, "b": 1}\n{"step": 2, "a:b": 1}\n'
        b'{"step": 1, "attempt": 2, "a": 1}\n{"step": 2, "a": 1, "b": 1}\n{"step": 2, "a": 1}\n',
    )
    assert found.provenance.num_duplicates == 2


@pytest.mark.parametrize(
    ("steps", "num_gaps"),
    [
        ([], 0),
        ([7], 0),
        ([3, 1, 2, 2], 0),
        ([0, 10, 20, 50, 60], 2),
        ([0, 10, 20, 25, 35], 0),
        ([-(2**62) + 1, 2**62 - 1], 0),
    ],
)
def test_steps_that_no_row_has_are_counted(tmp_path: Path, steps: list[int], num_gaps: int) -> None:
    content = "".join(f'{{"step": {step}}}\n' for step in steps)
    assert read(tmp_path / "m.jsonl", content.encode()).provenance.num_gaps == num_gaps
