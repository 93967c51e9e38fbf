"""The exported losses under prime-rl's contract: terms, weights, metrics, fields and knobs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.errors import UsageError
from harness.losses.config import LOSS_TYPES, parse_loss
from harness.losses.metrics import token_metrics
from harness.losses.policy import TokenBatch, compute_loss
from harness.trainers.prime_rl.export_loss import write_loss_file
from harness.trainers.prime_rl.loss_knobs import KNOBS, complete_knobs
from tests.harness.losses.test_policy import (
    LOSS_NAMES,
    NONFINITE,
    VARIANTS,
    make_random_batch,
    variant_id,
)
from tests.harness.trainers.prime_rl.exported_loss import (
    DTYPES,
    HERE,
    gradient_of,
    load_file,
    make_sequence,
    make_tensors,
)
from tests.harness.trainers.prime_rl.loss_stand_in import (
    EarlyLossInputs,
    LossInputs,
    LossOutputs,
    make_inputs,
)
from tests.harness.trainers.prime_rl.loss_stand_in import compute_loss as compute_as_prime_rl


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load_file(write_loss_file(tmp_path_factory.mktemp("exported"), "0123abcd"))


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_a_token_that_is_not_finite_has_no_term(exported: ModuleType, name: str) -> None:
    good = [(-1.0, -1.2), (-0.5, -0.45), (-2.0, -2.0)]
    clean = make_sequence(good, [1.3, -0.7, 0.4])
    dirty = make_sequence(good + NONFINITE, [1.3, -0.7, 0.4] + [1.0, -1.0] * 4)
    expected = exported.compute(clean, type=name)
    outputs = exported.compute(dirty, type=name)
    assert outputs.loss.item() == pytest.approx(expected.loss.item(), rel=1e-12)
    gradient = gradient_of(outputs.loss, dirty)
    assert gradient[:3] == pytest.approx(gradient_of(expected.loss, clean), rel=1e-12)
    assert gradient[3:] == [0.0] * len(NONFINITE)
    assert all(math.isfinite(value) for value in outputs.metrics.values())
    assert outputs.metrics["is_nonfinite"].item() == pytest.approx(8 / 11)
    kl = "unmasked_mismatch_kl"
    assert outputs.metrics[kl].item() == pytest.approx(expected.metrics[kl].item(), rel=1e-12)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_an_empty_loss_mask_gives_a_zero_to_call_backward_on(
    exported: ModuleType, name: str
) -> None:
    for pairs in ([(-1.0, math.nan), (0.0, -1e4)], []):
        inputs = make_sequence(pairs, [math.nan] * len(pairs))
        inputs.loss_mask.fill_(False)
        outputs = exported.compute(inputs, type=name)
        assert outputs.loss.item() == 0
        assert gradient_of(outputs.loss, inputs) == [0.0] * len(pairs)
        assert {value.item() for value in outputs.metrics.values()} == {0.0}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", LOSS_NAMES)
def test_extreme_tokens_give_finite_values(
    exported: ModuleType, name: str, dtype: torch.dtype
) -> None:
    far = -1e4
    lp = torch.tensor([-1.0, far, far, 0.0, 0.0, far], dtype=dtype, requires_grad=True)
    lq = torch.tensor([far, -1.0, far, 0.0, far, 0.0], dtype=dtype)
    mask = torch.ones(6, dtype=torch.bool)
    for sign in (1.0, -1.0, 0.0):
        inputs = make_inputs(lp, lq, torch.full_like(lq, sign), mask)
        outputs = exported.compute(inputs, type=name)
        assert math.isfinite(outputs.loss.item())
        assert all(map(math.isfinite, gradient_of(outputs.loss, inputs)))
        assert all(math.isfinite(value) for value in outputs.metrics.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(exported: ModuleType, dtype: torch.dtype) -> None:
    lp = torch.tensor([-0.5, -3.0], dtype=dtype, requires_grad=True)
    inputs = make_inputs(
        lp, torch.tensor([-0.6, -2.0]), torch.tensor([1.0, -1.0]), torch.tensor([1, 1])
    )
    outputs = exported.compute(inputs, type="none")
    assert outputs.loss.dtype == torch.float32
    assert outputs.loss.item() == pytest.approx(-math.exp(0.1) + math.exp(-1.0), rel=1e-3)
    [gradient] = torch.autograd.grad(outputs.loss, lp)
    assert gradient.dtype == dtype


# ---------------------------------------------------------------- prime-rl's contract


@pytest.mark.parametrize("knobs", VARIANTS, ids=variant_id)
def test_metrics_average_to_those_of_the_built_in_trainer(
    exported: ModuleType, knobs: dict[str, Any]
) -> None:
    batch = make_random_batch(3, max_log_ratio=4.0)
    batch.lq[0][0] = math.nan
    lp, lq, advantages, loss_mask = make_tensors(batch, torch.float64)
    tokens = TokenBatch(lp, lq, advantages, loss_mask)
    config = parse_loss(knobs)
    ours = token_metrics(config, tokens, compute_loss(config, tokens))
    # prime-rl ships no sequence without a token to train on.
    filled = [i for i, mask in enumerate(batch.loss_mask) if any(mask)]
    sequences = [make_inputs(lp[i], lq[i], advantages[i], loss_mask[i]) for i in filled]
    num_tokens = sum(map(sum, batch.loss_mask))
    loss, metrics = compute_as_prime_rl(
        lambda inputs: exported.compute(inputs, **knobs), sequences, rl_scale=num_tokens
    )
    assert loss.item() == pytest.approx(ours["loss/mean"], rel=1e-12)
    shared = {key for key in metrics if f"{key}/mean" in ours}
    assert shared == set(metrics) - {"is_nonfinite"}
    wanted = {"is_masked", "masked_mismatch_kl", "unmasked_mismatch_kl"}
    assert wanted <= shared <= wanted | {"is_clipped", "ratio_capped"}
    for key in shared:
        mean = metrics[key].mean().item()
        assert mean == pytest.approx(ours[f"{key}/mean"], rel=1e-9), key


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_weights_scale_the_term_of_each_token(exported: ModuleType, name: str) -> None:
    """Weights of 2 and 0.5 on halves of a sequence; the mask is unmoved."""
    pairs = [(-1.0, -1.2), (-0.5, -0.45), (-2.0, -2.5), (-4.0, -3.0)]
    advantages = [1.3, -0.7, 0.4, -1.0]
    weights = torch.tensor([2.0, 2.0, 0.5, 0.5], dtype=torch.float64)
    inputs = make_sequence(pairs, advantages, loss_weights=weights)
    found = exported.compute(inputs, type=name)
    total = 0.0
    for i, weight in enumerate(weights.tolist()):
        alone = [advantage if i == j else 0.0 for j, advantage in enumerate(advantages)]
        total += weight * exported.compute(make_sequence(pairs, alone), type=name).loss.item()
    assert found.loss.item() == pytest.approx(total, rel=1e-12)
    plain = exported.compute(make_sequence(pairs, advantages), type=name)
    for key, value in plain.metrics.items():
        assert found.metrics[key].item() == value.item(), key


def test_outputs_are_the_class_of_the_trainer(exported: ModuleType, tmp_path: Path) -> None:
    inputs = make_sequence([(-1.0, -1.0)], [1.0])
    assert type(exported.compute(inputs, type="kpop")) is LossOutputs
    path = tmp_path / "no_outputs_here.py"
    path.write_text(
        "class Bag:\n    def __init__(self, **fields):\n        vars(self).update(fields)\n"
    )
    bag = load_file(path).Bag(**vars(inputs))
    outputs = exported.compute(bag, type="kpop")
    assert type(outputs) is exported.LossOutputs
    assert [field.name for field in dataclasses.fields(outputs)] == ["loss", "metrics"]


def test_early_versions_get_the_mismatch_kl_that_they_do_not_log(
    exported: ModuleType, tmp_path: Path
) -> None:
    new = make_sequence([(-1.0, -1.5), (-2.0, -1.0)], [1.0, -1.0])
    early = EarlyLossInputs(
        new.trainer_logprobs, new.inference_logprobs, None, new.advantages, new.loss_mask
    )
    found = exported.compute(early, type="none")
    assert found.loss.item() == exported.compute(new, type="none").loss.item()
    k3 = [math.expm1(x) - x for x in (0.5, -1.0)]
    assert found.metrics["mismatch_kl"].item() == pytest.approx(sum(k3) / 2, rel=1e-12)
    assert "mismatch_kl" not in exported.compute(new, type="none").metrics

    stand_in = (HERE / "loss_stand_in.py").read_text()
    path = tmp_path / "loss_stand_in_of_may.py"
    path.write_text(f"{stand_in}\n\ndef compute_importance_ratio_and_mismatch_kl(): ...\n")
    may = load_file(path).EarlyLossInputs(**vars(early))
    assert "mismatch_kl" not in exported.compute(may, type="none").metrics


@dataclasses.dataclass
class StrangeInputs(LossInputs):
    values: torch.Tensor | None = None
    rollout_is_weights: torch.Tensor | None = None
    action_mask: torch.Tensor | None = None


@dataclasses.dataclass
class RenamedInputs:
    policy_logprobs: torch.Tensor
    advantages: torch.Tensor
    loss_mask: torch.Tensor


def test_unknown_fields_that_select_or_weigh_tokens_are_refused(exported: ModuleType) -> None:
    inputs = make_sequence([(-1.0, -1.0)], [1.0])
    ones = torch.ones(1)
    exported.compute(StrangeInputs(**vars(inputs), values=ones), type="none")
    for name in ("rollout_is_weights", "action_mask"):
        with pytest.raises(exported.UsageError, match=rf"{name}, unknown.*fields of StrangeInputs"):
            exported.compute(StrangeInputs(**vars(inputs), **{name: ones}), type="none")


def test_missing_fields_are_named_with_those_found(exported: ModuleType) -> None:
    ones = torch.ones(1)
    with pytest.raises(
        exported.UsageError,
        match="no trainer_logprobs, inference_logprobs .*policy_logprobs, advantages, loss_mask",
    ):
        exported.compute(RenamedInputs(ones, ones, ones), type="none")
    inputs = make_sequence([(-1.0, -1.0)], [1.0], inference_logprobs=None)
    with pytest.raises(exported.UsageError, match="no inference_logprobs"):
        exported.compute(inputs, type="none")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"loss_mask": torch.ones(3)}, "loss_mask"),
        ({"inference_logprobs": torch.ones(1, 2)}, "inference_logprobs"),
        ({"loss_weights": torch.ones(1)}, "loss_weights"),
        ({"loss_weights": torch.tensor([1.0, -1.0])}, "at least 0"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    exported: ModuleType, change: dict[str, torch.Tensor], named: str
) -> None:
    inputs = make_sequence([(-1.0, -1.0), (-2.0, -2.0)], [1.0, 1.0], **change)
    with pytest.raises(exported.UsageError, match=named):
        exported.compute(inputs, type="none")


def test_gspo_takes_the_mean_over_the_loss_mask_tokens_of_the_sequence(
    exported: ModuleType,
) -> None:
    """s = exp(mean(1, -0.5, -0.2)) = e^0.1; three terms of -A s."""
    pairs = [(-1.0, -2.0), (-2.0, -1.5), (-2.0, -1.8), (-7.0, 0.0)]
    inputs = make_sequence(pairs, [2.0] * 4)
    inputs.loss_mask[3] = False
    outputs = exported.compute(inputs, type="gspo", ratio_low=0.8, ratio_high=1.2)
    assert outputs.loss.item() == pytest.approx(-6 * math.exp(0.1), rel=1e-12)
    gradient = gradient_of(outputs.loss, inputs)
    assert gradient == pytest.approx([-2 * math.exp(0.1)] * 3 + [0.0], rel=1e-12)


# ---------------------------------------------------------------- knobs


def test_knobs_and_defaults_are_those_of_the_configuration() -> None:
    assert set(KNOBS) == set(LOSS_TYPES)
    for name in LOSS_TYPES:
        assert complete_knobs({"type": name}) == vars(parse_loss({"type": name}))
    assert complete_knobs({"type": "none", "max_importance_ratio": "None"}) == complete_knobs(
        {"type": "none"}
    )
    assert complete_knobs({"type": "tis", "max_importance_ratio": 3})["max_importance_ratio"] == 3.0


@pytest.mark.parametrize(
    ("kwargs", "named"),
    [
        ({}, "`type`.*dppo_kl.*kpop"),
        ({"type": "kpo"}, "kpo"),
        ({"type": "kpop", "fi": 0.1}, "no knob `fi`.*knobs: phi"),
        ({"type": "kpop", "phi": -0.1}, "`phi`.*>= 0"),
        ({"type": "kpop", "phi": "0.1"}, "'0.1'"),
        ({"type": "kpop", "phi": True}, "True"),
        ({"type": "kpop", "phi": math.nan}, "nan"),
        ({"type": "kpop", "phi": None}, "None"),
        ({"type": "kpop", "max_importance_ratio": math.inf}, "inf"),
        ({"type": "kpop", "clamp": 0.5}, "`clamp`.*< 0.5"),
        ({"type": "icepop", "ratio_low": 6}, "`ratio_low` 6 .*`ratio_high` 5"),
        ({"type": "dapo", "max_importance_ratio": 1.1}, "1.1.*1.28"),
    ],
)
def test_bad_knobs_are_refused_by_name(
    exported: ModuleType, kwargs: dict[str, Any], named: str
) -> None:
    with pytest.raises(exported.UsageError, match=named):
        exported.compute(make_sequence([(-1.0, -1.0)], [1.0]), **kwargs)
    with pytest.raises(UsageError):
        complete_knobs(kwargs)
