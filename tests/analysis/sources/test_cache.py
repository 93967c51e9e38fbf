from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis.sources.cache import cache_dir, cached
from analysis.sources.csv_table import read_csv
from analysis.sources.interface import MetricsFile, Wanted
from analysis.sources.jsonl import read_jsonl

CONTENT = (
    b'{"step": 1, "time": 5.5, "a": NaN, "b": -0.0, "\\ud800": 1}\n{"torn\n'
    b'{"step": 300, "attempt": 70000, "a": 1e300, "b": 2}\n{"a": 1}\n{"step": 300, "b": 3}\n'
    b'{"step": -4611686018427387903, "b": Infinity, "only_text": "x"}\n{"step": 300, "b": 4}\n'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return write(tmp_path / "m.jsonl", CONTENT)


def write(path: Path, content: bytes, *, age_s: float = 60.0) -> Path:
    path.write_bytes(content)
    written = time.time() - age_s
    os.utime(path, (written, written))
    return path


class Reads:
    """Reads through the cache, and tells whether the file itself was read."""

    def __init__(self) -> None:
        self.was_read = False

    def __call__(
        self,
        path: Path,
        wanted: Wanted = lambda key: True,
        *,
        kind: str = "jsonl",
        step_key: str = "step",
        max_total_bytes: int = 10**9,
    ) -> MetricsFile:
        self.was_read = False

        def read() -> MetricsFile:
            self.was_read = True
            reader = read_csv if kind == "csv" else read_jsonl
            return reader(path, wanted=wanted, step_key=step_key)

        return cached(
            read,
            path,
            kind,
            step_key=step_key,
            wanted=wanted,
            max_total_bytes=max_total_bytes,
        )


def assert_same(one: MetricsFile, other: MetricsFile) -> None:
    assert one.provenance == other.provenance
    assert one.keys == other.keys
    assert list(one.series) == list(other.series)
    for key, series in one.series.items():
        for name in ("steps", "values", "attempts", "times"):
            ours, theirs = getattr(series, name), getattr(other.series[key], name)
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()
    assert one.row_steps.tolist() == other.row_steps.tolist()
    assert one.row_attempts.tolist() == other.row_attempts.tolist()
    assert one.row_steps.dtype == one.row_attempts.dtype == np.int64


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_second_reading_gives_the_same_without_reading_the_file(metrics: Path) -> None:
    reads = Reads()
    first = reads(metrics)
    assert reads.was_read
    second = reads(metrics)
    assert not reads.was_read
    assert_same(second, first)


@pytest.mark.parametrize("content", [b"", b"\n", b'{"step": 1}\n', b'{"a": 1}\n'])
def test_a_file_without_values_is_cached_too(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "m.jsonl", content)
    reads = Reads()
    first = reads(path)
    assert_same(reads(path), first)
    assert not reads.was_read


def test_fewer_keys_than_before_come_from_the_cache(metrics: Path) -> None:
    reads = Reads()
    reads(metrics)
    found = reads(metrics, lambda key: key == "a")
    assert not reads.was_read
    assert_same(found, read_jsonl(metrics, wanted=lambda key: key == "a", step_key="step"))


def test_a_wanted_key_that_was_not_wanted_before_has_the_file_read_again(metrics: Path) -> None:
    reads = Reads()
    reads(metrics, lambda key: key == "a")
    found = reads(metrics, lambda key: key in "ab")
    assert reads.was_read
    assert found.series.keys() == {"a", "b"}
    reads(metrics, lambda key: key in "ab")
    assert not reads.was_read


def test_a_wanted_key_that_the_file_lacks_comes_from_the_cache(metrics: Path) -> None:
    reads = Reads()
    reads(metrics, lambda key: key == "a")
    reads(metrics, lambda key: key in ("a", "nowhere", "only_text"))
    assert not reads.was_read


def test_another_path_to_the_same_file_shares_its_entry(metrics: Path, tmp_path: Path) -> None:
    reads = Reads()
    reads(metrics)
    link = tmp_path / "link.jsonl"
    link.symlink_to(metrics)
    found = reads(link)
    assert not reads.was_read
    assert found.provenance.path == str(link)


def grown(path: Path) -> None:
    write(path, CONTENT + b'{"step": 301, "a": 9}\n')


def touched(path: Path) -> None:
    write(path, CONTENT, age_s=30.0)


def replaced(path: Path) -> None:
    times = path.stat()
    other = write(path.with_name("other"), CONTENT.replace(b"300", b"400"))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [grown, touched, replaced])
def test_a_file_that_changed_is_read_again(
    metrics: Path, change: Callable[[Path], None], folder: Path
) -> None:
    reads = Reads()
    reads(metrics)
    change(metrics)
    found = reads(metrics)
    assert reads.was_read
    assert_same(found, read_jsonl(metrics, wanted=lambda key: True, step_key="step"))
    reads(metrics)
    assert not reads.was_read
    assert len(entries(folder)) == 1


def test_formats_and_step_keys_do_not_share_entries(tmp_path: Path) -> None:
    path = write(tmp_path / "m", b'{"step": 1, "a": 2}\n')
    reads = Reads()
    reads(path)
    assert reads(path, step_key="a").row_steps.tolist() == [2]
    assert reads(path, kind="csv").provenance.format == "csv"
    assert reads(path).row_steps.tolist() == [1]
    assert not reads.was_read


def test_a_file_written_just_now_is_not_cached(tmp_path: Path, folder: Path) -> None:
    Reads()(write(tmp_path / "m.jsonl", CONTENT, age_s=0.5))
    assert entries(folder) == []


def test_a_file_that_changes_while_it_is_read_is_not_cached(metrics: Path, folder: Path) -> None:
    def read_and_append() -> MetricsFile:
        found = read_jsonl(metrics, wanted=lambda key: True, step_key="step")
        write(metrics, CONTENT + b"\n")
        return found

    cached(read_and_append, metrics, "jsonl", step_key="step", wanted=lambda key: True)
    assert entries(folder) == []


class _Trap:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, ("trapped",)


def truncated(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-100])


def emptied(entry: Path) -> None:
    entry.write_bytes(b"")


def foreign(entry: Path) -> None:
    with entry.open("wb") as file:
        np.savez(file, header=np.frombuffer(b'{"identity": 1}', dtype=np.uint8))


def pickled(entry: Path) -> None:
    entry.write_bytes(pickle.dumps(_Trap()))


def pickled_inside(entry: Path) -> None:
    with entry.open("wb") as file:
        np.savez(file, header=np.array([_Trap()], dtype=object))


@pytest.mark.parametrize("damage", [truncated, emptied, foreign, pickled, pickled_inside])
def test_a_damaged_or_foreign_entry_is_written_anew(
    metrics: Path,
    folder: Path,
    damage: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    reads = Reads()
    first = reads(metrics)
    damage(entries(folder)[0])
    found = reads(metrics)
    assert reads.was_read
    assert_same(found, first)
    reads(metrics)
    assert not reads.was_read
    assert not (tmp_path / "trapped").exists()


def test_no_wrong_byte_in_an_entry_gives_other_cells(metrics: Path, folder: Path) -> None:
    reads = Reads()
    first = reads(metrics)
    (entry,) = entries(folder)
    content = entry.read_bytes()
    for place in range(0, len(content), 13):
        entry.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert_same(reads(metrics), first)


def test_a_folder_that_cannot_be_made_is_no_error(metrics: Path, folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    reads = Reads()
    reads(metrics)
    assert reads(metrics).provenance.num_rows == 6
    assert reads.was_read


def test_the_oldest_entries_make_room_and_other_files_stay(tmp_path: Path, folder: Path) -> None:
    files = [write(tmp_path / f"{i}.jsonl", CONTENT) for i in range(3)]
    reads = Reads()
    reads(files[0])
    (size,) = [entry.stat().st_size for entry in entries(folder)]
    os.utime(entries(folder)[0], (1.0, 1.0))
    (folder / "notes.txt").write_text("x" * 10 * size)
    for path in files[1:]:
        reads(path, max_total_bytes=int(2.5 * size))
    assert len(entries(folder)) == 3
    assert (folder / "notes.txt").exists()
    reads(files[2])
    assert not reads.was_read
    reads(files[0])
    assert reads.was_read


@pytest.mark.parametrize("value", ["off", ""])
def test_the_cache_can_be_switched_off(
    metrics: Path, monkeypatch: pytest.MonkeyPatch, value: str, folder: Path
) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", value)
    reads = Reads()
    reads(metrics)
    reads(metrics)
    assert reads.was_read
    assert entries(folder) == []


def test_the_cache_lies_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "ablation-harness" / "metrics"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / ".cache" / "ablation-harness" / "metrics"


def test_what_is_no_file_is_left_to_the_reader(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Reads()(tmp_path / "none.jsonl")
    with pytest.raises(IsADirectoryError):
        Reads()(tmp_path)
    assert entries(folder) == []
