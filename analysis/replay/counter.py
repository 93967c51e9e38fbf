"""Counts blocks of tokens: everything that a replay says, but for what is divided at its end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.replay.block import Block
from analysis.replay.bootstrap import FloatArray
from analysis.replay.clusters import ClusterSums
from analysis.replay.curves import make_counter
from analysis.replay.edges import decide, undecidable
from analysis.replay.own_rule import OwnRule
from analysis.replay.result import DifferingToken
from analysis.replay.tally import NUM_DIFFERING, Question, StepTally
from analysis.replay.tokens import BoolArray, Float32Array, IntArray

BUCKET_EDGES = (
    *(0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    *(0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 0.99, 1.0),
)
"""Of probabilities under the engine; a bucket has its upper edge, and the lowest one has 0, too."""
NUM_DENSITY_BINS = 200

NUM_BUCKETS = len(BUCKET_EDGES) - 1
_NUM_CELL_BLOCKS = 8
"""Blocks whose densities are counted at once: the table of counts is larger than a block."""
_INNER_EDGES = np.array(BUCKET_EDGES[1:-1], np.float32)


class Counter:
    """Adds up blocks, for `question`.

    Attributes:
        counts, sums: as of `analysis.replay.tally.Tally`.
    """

    def __init__(self, question: Question, own: OwnRule | None) -> None:
        self.question = question
        self.rules = question.counted_rules()
        self.curves = [make_counter(curve) for curve in question.counted_curves()]
        self._own = own
        num_rules = len(self.rules)
        self.counts: dict[str, IntArray] = {
            name: np.zeros(shape, np.int64)
            for name, shape in {
                "tokens": (),
                "identical": (),
                "with_advantage": (),
                "masked": (num_rules,),
                "undecidable": (num_rules,),
                "masked_with_advantage": (num_rules,),
                "both": (num_rules, num_rules),
                "bucket_tokens": (NUM_BUCKETS,),
                "bucket_masked": (num_rules, NUM_BUCKETS),
                "density": (NUM_DENSITY_BINS, NUM_DENSITY_BINS),
                "stored": (),
                "reproduced": (),
                "differing_undecidable": (),
                **{f"curve {place}": (len(curve),) for place, curve in enumerate(self.curves)},
            }.items()
        }
        self.sums: dict[str, FloatArray] = {
            name: np.zeros(shape)
            for name, shape in {
                "kl": (),
                "probability": (),
                "masked_kl": (num_rules,),
                "kept_kl": (num_rules,),
                "masked_probability": (num_rules,),
                "bucket_kl": (NUM_BUCKETS,),
            }.items()
        }
        self.max_kl: float | None = None
        self.steps: dict[int, StepTally] = {}
        self.differing: list[DifferingToken] = []
        self._cells: list[npt.NDArray[np.int32]] = []
        self._clusters: ClusterSums | None = None
        if question.columns.sequences:
            lengths = [len(curve) for curve in self.curves]
            self._clusters = ClusterSums(num_rules, lengths, question.seed)

    def add(self, block: Block) -> None:
        """Add a block; where a rule decides on sequences, one of whole sequences."""
        if not len(block):
            return
        kl = block.quantity("k3")
        bucket = self._add_tokens(block, kl)
        masks = [decide(rule, block) for rule in self.rules]
        tokens = [np.flatnonzero(mask) for mask in masks]
        for place in range(len(self.rules)):
            self._add_rule(place, block, tokens[place], kl, bucket)
            for other in range(place):
                both = np.count_nonzero(masks[place] & masks[other])
                self.counts["both"][place, other] += both
                self.counts["both"][other, place] += both
        if block.chunk.steps is not None:
            self._add_steps(block.chunk.steps, tokens, kl)
        self._add_curves(block, tokens)
        if self._own is not None and block.chunk.stored_masks is not None:
            self._add_stored(self._own, block, block.chunk.stored_masks)

    def finish(self) -> None:
        """Count what waited for the end of its sequence."""
        self._add_density()
        if self._clusters is None:
            return
        sums = self._clusters
        sums.finish()
        self.counts["sequences"] = np.array(sums.num_sequences, np.int64)
        self.counts["squared_tokens"] = np.array(sums.squared_tokens, np.int64)
        self.counts["replicate_tokens"] = sums.replicate_tokens
        self.counts["replicate_masked"] = sums.replicate_masked
        for place in range(len(self.curves)):
            self.counts[f"squared {place}"] = sums.squared[place]
            self.counts[f"crossed {place}"] = sums.crossed[place]

    def _add_tokens(self, block: Block, kl: Float32Array) -> IntArray:
        """Count what no rule is needed for, and return each token's bucket."""
        self.counts["tokens"] += len(block)
        self.counts["identical"] += np.count_nonzero(block.trainer == block.inference)
        if block.chunk.advantages is not None:
            self.counts["with_advantage"] += np.count_nonzero(block.advantages)
        bucket, num_tokens = _buckets(block.probabilities)
        self.counts["bucket_tokens"] += num_tokens
        by_bucket = np.bincount(bucket, weights=kl, minlength=NUM_BUCKETS)
        self.sums["bucket_kl"] += by_bucket
        self.sums["kl"] += by_bucket.sum()
        self.sums["probability"] += block.probabilities.sum(dtype=np.float64)
        self.max_kl = max(float(kl.max()), self.max_kl or 0.0)
        self._cells.append(_cells(block.probabilities, block.trainer_probabilities))
        if len(self._cells) >= _NUM_CELL_BLOCKS:
            self._add_density()
        return bucket

    def _add_density(self) -> None:
        cells = np.concatenate([np.zeros(0, np.int32), *self._cells])
        counts = np.bincount(cells, minlength=NUM_DENSITY_BINS**2)
        self.counts["density"] += counts.reshape(NUM_DENSITY_BINS, NUM_DENSITY_BINS)
        self._cells = []

    def _add_rule(
        self, place: int, block: Block, tokens: IntArray, kl: Float32Array, bucket: IntArray
    ) -> None:
        counts, sums = self.counts, self.sums
        counts["masked"][place] += len(tokens)
        counts["both"][place, place] += len(tokens)
        near = undecidable(self.rules[place], block, self.question.decimals)
        counts["undecidable"][place] += np.count_nonzero(near)
        if block.chunk.advantages is not None:
            counts["masked_with_advantage"][place] += np.count_nonzero(block.advantages[tokens])
        counts["bucket_masked"][place] += np.bincount(bucket[tokens], minlength=NUM_BUCKETS)
        # Not total minus masked: one ratio of 1e30 would leave nothing of the kept ones.
        kept = kl.copy()
        kept[tokens] = 0
        sums["masked_kl"][place] += kl[tokens].sum(dtype=np.float64)
        sums["kept_kl"][place] += kept.sum(dtype=np.float64)
        sums["masked_probability"][place] += block.probabilities[tokens].sum(dtype=np.float64)

    def _add_steps(self, steps: IntArray, tokens: list[IntArray], kl: Float32Array) -> None:
        starts = np.append(0, np.flatnonzero(steps[1:] != steps[:-1]) + 1)
        numbers, local = np.unique(steps[starts], return_inverse=True)
        ends = np.append(starts[1:], len(steps))
        num_tokens = _summed(local, ends - starts)
        total = np.bincount(local, weights=np.add.reduceat(kl, starts, dtype=np.float64))
        masked = [
            _summed(local, np.diff(np.searchsorted(one, [*starts, len(steps)]))) for one in tokens
        ]
        for place, step in enumerate(numbers.tolist()):
            old = self.steps.get(step, StepTally(0, (0,) * len(tokens), 0.0))
            self.steps[step] = StepTally(
                old.num_tokens + int(num_tokens[place]),
                tuple(
                    before + int(more[place])
                    for before, more in zip(old.num_masked, masked, strict=True)
                ),
                old.kl + float(total[place]),
            )

    def _add_curves(self, block: Block, tokens: list[IntArray]) -> None:
        if self._clusters is None:
            for place, curve in enumerate(self.curves):
                self.counts[f"curve {place}"] += curve.count(block)
            return
        by_run = [curve.count_runs(block) for curve in self.curves]
        for place, (_, found) in enumerate(by_run):
            self.counts[f"curve {place}"] += found.sum(axis=0)
        self._clusters.add(block, tokens, by_run)

    def _add_stored(self, own: OwnRule, block: Block, stored: BoolArray) -> None:
        differs = own.decide(block) != stored
        num_differing = int(np.count_nonzero(differs))
        self.counts["stored"] += len(block)
        self.counts["reproduced"] += len(block) - num_differing
        if not num_differing:
            return
        near = own.undecidable(block, self.question.decimals)
        self.counts["differing_undecidable"] += np.count_nonzero(differs & near)
        chunk = block.chunk
        for at in np.flatnonzero(differs)[: NUM_DIFFERING - len(self.differing)].tolist():
            self.differing.append(
                DifferingToken(
                    step=None if chunk.steps is None else int(chunk.steps[at]),
                    sequence=None if chunk.sequences is None else int(chunk.sequences[at]),
                    trainer_logprob=float(chunk.trainer_logprobs[at]),
                    inference_logprob=float(chunk.inference_logprobs[at]),
                    advantage=None if chunk.advantages is None else float(chunk.advantages[at]),
                    stored=bool(stored[at]),
                )
            )


def _summed(group: IntArray, values: IntArray) -> IntArray:
    """Return the sum of the values of each group."""
    total = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(total, group, values)
    return total


def _buckets(probabilities: Float32Array) -> tuple[IntArray, IntArray]:
    """Return the bucket of each token, and the number of tokens in each bucket."""
    # A few compares of everything take a fifth of the time of searchsorted.
    bucket = np.zeros(len(probabilities), np.uint8)
    num_above = [len(probabilities)]
    for edge in _INNER_EDGES:
        is_above = probabilities > edge
        bucket += is_above
        num_above.append(int(np.count_nonzero(is_above)))
    return bucket.astype(np.int64), -np.diff(num_above, append=0)


def _cells(inference: Float32Array, trainer: Float32Array) -> npt.NDArray[np.int32]:
    """Return the cell of the density that each token is in."""
    last = np.int32(NUM_DENSITY_BINS - 1)
    row, column = (
        np.minimum((values * np.float32(NUM_DENSITY_BINS)).astype(np.int32), last)
        for values in (inference, trainer)
    )
    return row * np.int32(NUM_DENSITY_BINS) + column
