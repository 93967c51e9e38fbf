"""Replaying masks over 20M tokens: python tests/benchmarks/replay.py

100 thresholds each of IPO, IcePop (a symmetric band) and KPop, on one core. Compares a whole replay
with the plain numpy loop over thresholds, `(moved > eps).mean()`, on tokens in memory; checks that
both count the same at every threshold, there and on adversarial tokens; measures the peak memory of
a replay from Parquet, and the rate at which prime-rl's token export becomes Parquet. Prints the
ratios; exits 1 where a goal is missed. `--tokens 2000000` is a short version, and
`--parquet-tokens 200000000` measures the memory of more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.replay.block import Block
from analysis.replay.curves import make_counter
from analysis.replay.edges import decide
from analysis.replay.engine import replay
from analysis.replay.requests import CurveRequest, parse_curve
from analysis.replay.result import ReplayResult
from analysis.replay.rules import Rule, parse_rule
from analysis.replay.sources import open_tokens
from analysis.replay.tokens import Float32Array, TokenChunk
from harness.losses.arrays import log_bound
from harness.losses.quantities import larger_binary_kl, prob_delta
from tests.analysis.replay.replay_tokens import MadeSource, adversarial_tokens

MIN_SPEEDUP = 8.0
MAX_NS_PER_TOKEN = 50.0
MAX_PARQUET_MB = 400.0
MIN_CONVERSION = 4.0
TOKENS_PER_SEQUENCE = 1000
PIECE_TOKENS = 1 << 20

CURVES = (
    parse_curve("ipo:eps=0.01..1.0"),
    parse_curve("icepop:ratio_high=1.1..100,ratio_low=1/ratio_high"),
    parse_curve("kpop:phi=0.001..10"),
)
RULES = (parse_rule("ipo"), parse_rule("icepop"), parse_rule("kpop"))

Counts = list[list[int]]


def draw(num_tokens: int, seed: int) -> tuple[Float32Array, Float32Array]:
    """Return log-probabilities of trainer and engine.

    Half of the tokens are above q = 0.92; the trainer's log-odds are off by a long-tailed noise, so
    that 1.4 % of the probabilities moved by more than 0.1 and 0.04 % by more than 0.3.
    """
    generator = np.random.default_rng(seed)
    inference = -np.float32(0.25) * generator.standard_exponential(num_tokens, np.float32) ** 3
    shift = generator.standard_normal(num_tokens, np.float32) * np.float32(0.1)
    shift *= np.exp(generator.standard_exponential(num_tokens, np.float32) * np.float32(0.4))
    trainer = inference + shift - np.log1p(np.exp(inference) * np.expm1(np.minimum(shift, 80)))
    return np.minimum(trainer, np.float32(0)), inference


def make_tokens(num_tokens: int) -> TokenChunk:
    """Return tokens in memory, without sequences."""
    trainer, inference = np.empty(num_tokens, np.float32), np.empty(num_tokens, np.float32)
    for start in range(0, num_tokens, PIECE_TOKENS):
        end = min(start + PIECE_TOKENS, num_tokens)
        trainer[start:end], inference[start:end] = draw(end - start, start)
    return TokenChunk(trainer, inference)


def plain_loop(tokens: TokenChunk, share: Callable[[Any], float]) -> Counts:
    """Count by one comparison of all tokens per threshold; quantities are computed once.

    `share` is given the mask of one threshold, and returns the share of it that is set.
    """
    p, q = tokens.trainer_logprobs, tokens.inference_logprobs
    ipo, icepop, kpop = CURVES
    delta = in_pieces(lambda p, q: abs(prob_delta(p, q)), p, q)
    shares = [[share(delta > np.float32(at)) for at in ipo.thresholds]]
    log_ratio = p - q
    bounds = [(log_bound(1 / at, p), log_bound(at, p)) for at in icepop.thresholds]
    shares.append([share((log_ratio < low) | (log_ratio > high)) for low, high in bounds])
    divergence = in_pieces(lambda p, q: larger_binary_kl(p, q, clamp=1e-6), p, q)
    shares.append([share(divergence > np.float32(at)) for at in kpop.thresholds])
    return [[round(one * len(tokens)) for one in row] for row in shares]


def in_pieces(function: Any, p: Float32Array, q: Float32Array) -> Float32Array:
    """Return `function` of all tokens, without its temporaries for all of them at once."""
    found = np.empty_like(p)
    for start in range(0, len(p), PIECE_TOKENS):
        piece = slice(start, start + PIECE_TOKENS)
        found[piece] = function(p[piece], q[piece])
    return found


def counts_of(result: ReplayResult) -> Counts:
    """Return the counts of each curve."""
    return [list(curve.num_masked) for curve in result.curves]


def timed_replay(
    tokens: TokenChunk, curves: Sequence[CurveRequest], rules: Sequence[Rule] = ()
) -> tuple[float, ReplayResult]:
    """Return the seconds of one replay of tokens in memory, and its result."""
    source = MadeSource(tokens, chunk_tokens=1 << 18)
    start = time.perf_counter()
    result = replay(source, rules, curves)
    return time.perf_counter() - start, result


def check_speed(num_tokens: int) -> bool:
    """Print how long both ways take on the same tokens; return whether all goals are met."""
    tokens = make_tokens(num_tokens)
    first, result = timed_replay(tokens, CURVES)
    start = time.perf_counter()
    expected = plain_loop(tokens, np.mean)
    plain = time.perf_counter() - start
    start = time.perf_counter()
    plain_loop(tokens, lambda mask: np.count_nonzero(mask) / len(mask))
    counting = time.perf_counter() - start
    second, _ = timed_replay(tokens, CURVES)
    ours = min(first, second)
    ns = ours / num_tokens * 1e9
    is_equal = counts_of(result) == expected
    print(f"{num_tokens:,} tokens, 3 x 100 thresholds: plain loop {plain:.2f} s ", end="")
    print(f"({counting:.2f} s by np.count_nonzero), replay {ours:.2f} s")
    print(f"  {plain / ours:.1f} times as fast (goal: at least {MIN_SPEEDUP:g})", end="; ")
    print(f"{counting / ours:.1f} times as fast as by np.count_nonzero")
    print(f"  {ns:.1f} ns per token (goal: at most {MAX_NS_PER_TOKEN:g})")
    print(f"  counts {'identical' if is_equal else 'DIFFER'} at every threshold")
    sequences = np.arange(num_tokens) // TOKENS_PER_SEQUENCE
    with_sequences = TokenChunk(tokens.trainer_logprobs, tokens.inference_logprobs, None, sequences)
    everything, _ = timed_replay(with_sequences, CURVES, RULES)
    print(
        f"  with intervals and three listed rules {everything / num_tokens * 1e9:.1f} ns per token"
    )
    return is_equal and plain / ours >= MIN_SPEEDUP and ns <= MAX_NS_PER_TOKEN


def check_adversarial() -> bool:
    """Return whether tokens at edges, near 0 and 1 and with log-ratios of +-90 count the same."""
    trainer, inference = adversarial_tokens()
    block = Block(TokenChunk(trainer, inference))
    is_equal = all(
        int(found) == int(np.count_nonzero(decide(request.at(at), block)))
        for request in CURVES
        for at, found in zip(request.thresholds, make_counter(request).count(block), strict=True)
    )
    print(f"{len(block):,} adversarial tokens: counts {'identical' if is_equal else 'DIFFER'}")
    return is_equal


def write_parquet(path: Path, num_tokens: int) -> None:
    """Write tokens in groups of 1M rows."""
    names = ("trainer_logprob", "inference_logprob", "sequence")
    types: tuple[Any, ...] = (pa.float32(), pa.float32(), pa.int64())
    schema = pa.schema(list(zip(names, types, strict=True)))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start, columns in pieces(num_tokens):
            numbers = (np.arange(len(columns[0])) + start) // TOKENS_PER_SEQUENCE
            writer.write_table(pa.table([*columns, numbers], schema=schema))


def pieces(num_tokens: int) -> Iterator[tuple[int, tuple[npt.NDArray[np.float32], ...]]]:
    """Yield tokens in pieces, each with the number of its first one."""
    for start in range(0, num_tokens, PIECE_TOKENS):
        yield start, draw(min(PIECE_TOKENS, num_tokens - start), start)


def replay_file(path: str) -> None:
    """Replay one file, and print seconds, tokens and the peak memory of this process."""
    source = open_tokens([path])
    start = time.perf_counter()
    result = replay(source, RULES, CURVES)
    seconds = time.perf_counter() - start
    print(seconds, result.num_tokens, peak_memory_mb())


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process, by Linux.

    Not by getrusage, whose peak is at least what the parent held when it started this process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def check_memory(num_tokens: int) -> bool:
    """Print the peak memory of replays from Parquet; return whether the goal is met."""
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        for number in (num_tokens // 10, num_tokens):
            path = Path(folder) / "tokens.parquet"
            write_parquet(path, number)
            command = [sys.executable, __file__, "--replay-file", str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, counted, peak_mb = (float(word) for word in done.stdout.split())
            is_met &= peak_mb <= MAX_PARQUET_MB and counted == number
            print(
                f"{number:,} tokens from Parquet, with intervals and three listed rules: ", end=""
            )
            print(f"{seconds / number * 1e9:.1f} ns per token")
            print(f"  peak memory {peak_mb:.0f} MB (goal: at most {MAX_PARQUET_MB:g})")
    return is_met


def check_conversion(num_sequences: int = 600, length: int = 1000) -> bool:
    """Print the rate of converting prime-rl's token export to Parquet, against `json.loads` of its
    lines; return whether the goal is met."""
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        step = Path(folder) / "run" / "token_exports" / "step_1"
        step.mkdir(parents=True)
        path = step / "rank_0.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(num_sequences):
                file.write(_export_line(rng, number, length))
        (step / "STABLE").touch()
        os.utime(path, (1.79e9, 1.79e9))
        start = time.perf_counter()
        with path.open("rb") as lines:
            for line in lines:
                json.loads(line)
        plain_s = time.perf_counter() - start
        os.environ["HARNESS_CACHE_DIR"] = "off"
        start = time.perf_counter()
        num_tokens = sum(len(chunk) for chunk in open_tokens([str(path.parents[2])]).chunks())
        ours_s = time.perf_counter() - start
        size = path.stat().st_size
    print(
        f"token export of {num_tokens:,} tokens ({size / 1e6:.0f} MB, {length} per sequence):"
        f" json.loads alone {plain_s:.2f} s, to Parquet and read {ours_s:.2f} s,"
        f" {plain_s / ours_s:.1f}x as fast (goal {MIN_CONVERSION:g})"
    )
    return plain_s / ours_s >= MIN_CONVERSION


def _export_line(rng: np.random.Generator, number: int, length: int) -> str:
    """Return one sequence as prime-rl's token export holds it."""
    trainer = -rng.exponential(0.4, length)
    inference = np.minimum(0.0, trainer + rng.normal(0.0, 0.05, length))
    ratio = trainer - inference
    nothing = [None] * length
    record = {
        "schema_version": 1,
        "step": 1,
        "rank": 0,
        "micro_step": number,
        "micro_sequence_idx": 0,
        "export_sequence_idx": number,
        "env_name": "scaleswe",
        "token_ids": rng.integers(0, 150_000, length).tolist(),
        "position_ids": list(range(length)),
        "loss_mask": [position > 0 for position in range(length)],
        "advantages": [0.5] * length,
        "inference_logprobs": inference.tolist(),
        "trainer_logprobs": trainer.tolist(),
        "entropy": rng.exponential(0.4, length).tolist(),
        "mismatch_kl": (np.expm1(ratio) - ratio).tolist(),
        "log_importance_ratio": ratio.tolist(),
        "importance_ratio": np.exp(ratio).tolist(),
        "prob_delta": (np.exp(trainer) - np.exp(inference)).tolist(),
        **dict.fromkeys(("is_masked", "is_masked_high", "is_masked_low"), nothing),
        **dict.fromkeys(("rl_weights", "ce_weights", "ref_kl_weights"), nothing),
    }
    return json.dumps(record, separators=(",", ":")) + "\n"  # as prime-rl's lines are


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--parquet-tokens", type=int, default=0, help="of the largest file")
    parser.add_argument("--replay-file", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.replay_file:
        replay_file(chosen.replay_file)
        sys.exit(0)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    met = [check_speed(chosen.tokens), check_adversarial()]
    met.append(check_memory(chosen.parquet_tokens or chosen.tokens))
    met.append(check_conversion())
    sys.exit(not all(met))
